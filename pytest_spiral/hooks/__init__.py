"""What the plugin does once a model is to be evaluated: collecting, running, travelling home, summing up."""
