"""One run: what is asked, where the results are kept, how they become a verdict."""
