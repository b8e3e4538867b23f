"""Command-line options and ini keys, as `pytest_spiral.settings` declares them.

Imported by every pytest run of an environment that has the package: standard library and pytest only.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest

from pytest_spiral.plugin._compat import add_short_name, remove_short_name
from pytest_spiral.settings import OPTIONS, Option, OptionKind, Settings

# What argparse makes of a value of this kind, and the type of the ini key.
_KINDS: dict[OptionKind, tuple[dict[str, Any], Literal["string", "int", "float", "linelist", "bool"]]] = {
    "text": ({}, "string"),
    "int": ({"type": int}, "int"),
    "float": ({"type": float}, "float"),
    "many": ({"action": "append"}, "linelist"),
    "flag": ({"action": "store_true"}, "bool"),
}


def add_options(parser: pytest.Parser) -> None:
    """Register the prefixed options and their ini keys."""
    group = parser.getgroup("spiral", "model evaluation (pytest-spiral)")
    for option in OPTIONS:
        parsed, ini_type = _KINDS[option.kind]
        shown = {name: value for name in ("choices", "metavar") if (value := getattr(option, name))}
        # argparse formats help texts with the % operator.
        text = option.described().replace("%", "%%")
        group.addoption(option.flag, dest=option.dest, default=None, help=text, **parsed, **shown)
        # An absent key must be told from one set to the default, so the registered default is empty.
        empty: Any = [] if option.kind == "many" else None
        parser.addini(option.dest, f"Default of {option.flag}", type=ini_type, default=empty)


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
        elif value == "" or (option.kind == "many" and "" in value):
            # Taken for absent, it would let a run measure or decide something else than was meant.
            raise pytest.UsageError(
                f"{option.alias}: the value is empty, as that of a variable which is not set; give one, or leave the "
                "option out"
            )
        values[option.key] = tuple(value) if option.kind == "many" else value
    if not values["model"] and not values["replay"]:
        if asked := on_command_line(config, "gate", "gate_recipe"):
            raise pytest.UsageError(f"{asked}: nothing is evaluated; name a model with --model or a run with --replay")
        return None
    # Not light, so not before somebody evaluates a model.
    from pytest_spiral.errors import ConfigError

    try:
        return Settings(**values)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


def on_command_line(config: pytest.Config, *keys: str) -> str:
    """The first of these options that the user has typed, "" for none; `addopts` and ini keys do not count."""
    typed = {argument.partition("=")[0] for argument in map(str, config.invocation_params.args)}
    # A short name may be somebody else's option; ours has no value then.
    own = (option for option in OPTIONS if option.key in keys and config.getoption(option.dest) is not None)
    return next((name for option in own for name in (option.alias, option.flag) if name in typed), "")


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
