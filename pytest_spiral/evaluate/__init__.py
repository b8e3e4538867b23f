"""From run results to one typed report: scoring, cards, gates and verdict."""
