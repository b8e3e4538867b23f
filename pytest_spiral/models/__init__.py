"""Talking to models: the HTTP client, limits, budget, and dry and local models."""
