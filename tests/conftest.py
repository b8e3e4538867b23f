"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Timing belongs to the benchmarks; a busy machine must not fail a property.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
