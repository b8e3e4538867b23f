"""Configuration of all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing about its correctness: machines are shared.
settings.register_profile("no-deadline", deadline=None)
# For an hour of search: --hypothesis-profile=thorough.
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile("no-deadline")
