"""Command-line options and ini keys, as `pytest_spiral.settings` declares them.

Imported by every pytest run of an environment that has the package: standard library and pytest only.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest

from pytest_spiral.plugin._compat import add_short_name, remove_short_name
from pytest_spiral.settings import OPTIONS, Option, Settings

_INI_TYPES: dict[str, Literal["string", "int", "float", "linelist", "bool"]] = {
    "text": "string",
    "int": "int",
    "float": "float",
    "many": "linelist",
    "flag": "bool",
}


def add_options(parser: pytest.Parser) -> None:
    """Register the prefixed options and their ini keys."""
    group = parser.getgroup("spiral", "model evaluation (pytest-spiral)")
    for option in OPTIONS:
        # argparse formats help texts with the % operator.
        group.addoption(option.flag, help=option.described().replace("%", "%%"), **_argparse_keywords(option))
        # An absent key must be told from one set to the default, so the registered default is empty.
        empty: Any = [] if option.kind == "many" else None
        parser.addini(option.dest, f"Default of {option.flag}", type=_INI_TYPES[option.kind], default=empty)


def _argparse_keywords(option: Option) -> dict[str, Any]:
    keywords: dict[str, Any] = {"dest": option.dest, "default": None}
    if option.kind == "flag":
        return {**keywords, "action": "store_true"}
    keywords["action"] = "append" if option.kind == "many" else "store"
    if option.kind in ("int", "float"):
        keywords["type"] = {"int": int, "float": float}[option.kind]
    if option.choices:
        keywords["choices"] = list(option.choices)
    if option.metavar:
        keywords["metavar"] = option.metavar
    return keywords


def add_short_names(parser: pytest.Parser) -> None:
    """Register the short names that nobody else has taken. To be called once all other options are known."""
    for option in OPTIONS:
        add_short_name(parser, option.flag, option.alias)


def free_short_names(parser: pytest.Parser) -> None:
    """Give the short names up once the command line is read.

    pytest loads the conftest of a deeper directory during collection, and that conftest may define one of them.
    """
    for option in OPTIONS:
        remove_short_name(parser, option.flag, option.alias)


def read_settings(config: pytest.Config) -> Settings | None:
    """The settings: command line first, then ini, then the default. None for a run that evaluates nothing.

    Raises `pytest.UsageError` naming the option or ini key.
    """
    values: dict[str, Any] = {}
    for option in OPTIONS:
        value = config.getoption(option.dest)
        if value is None:
            value = _from_ini(config, option)
        values[option.key] = tuple(value) if option.kind == "many" else value
    if not values["model"] and not values["replay"]:
        return None
    # Not light, so not before somebody evaluates a model.
    from pytest_spiral.errors import ConfigError

    try:
        return Settings(**values)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


def _from_ini(config: pytest.Config, option: Option) -> Any:
    try:
        value = config.getini(option.dest)
    except (TypeError, ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"ini key {option.dest}: {error}") from None
    if value is None or value == [] or (value == "" and option.kind == "text"):
        return option.default
    for entry in value if option.kind == "many" else [value]:
        if option.choices and entry not in option.choices:
            raise pytest.UsageError(f"ini key {option.dest}: {entry!r} is not one of {', '.join(option.choices)}")
    return value
