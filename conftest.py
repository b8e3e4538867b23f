"""Configuration of this project's own tests."""

from hypothesis import settings

pytest_plugins = ["pytester"]

# Timing belongs to the benchmarks; a busy machine must not fail a property.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
