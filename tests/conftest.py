"""Configuration of all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing about its correctness: machines are shared.
settings.register_profile("no-deadline", deadline=None)
# What `make test` looks at, the same every time.
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True, max_examples=30)
# For an hour of search: --hypothesis-profile=thorough.
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile("no-deadline")
