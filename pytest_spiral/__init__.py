"""pytest-spiral: does a language model hold its ground, and does it help without caving?"""
