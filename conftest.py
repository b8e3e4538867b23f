"""Configuration of this project's own tests. Read by evaluations started here as well, so it needs no test extras."""

pytest_plugins = ["pytester"]
