"""From the results of a run to what people and programs read."""
