"""The console script `pytest-spiral`: everything that needs no test run. `data/commands.toml` declares the commands."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name

from pytest_spiral.errors import UserError
from pytest_spiral.resources import data_root, read_text
from pytest_spiral.settings import DEFAULT_PROTOCOL

USAGE_ERROR, INTERNAL_ERROR = 4, 3


def _count(text: str) -> int:
    """A whole number from 1, for argparse."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 20_000:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 to 20,000")
    return int(text)


def _half_width(text: str) -> float:
    """A number between 0 and 1/2, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 0.5:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number between 0 and 0.5, such as 0.05")
    return value


_TYPES: Mapping[str, Callable[[str], object]] = {"path": Path, "int": int, "count": _count, "half_width": _half_width}
COMMANDS = tomllib.loads(read_text(data_root() / "commands.toml").replace("{protocol}", DEFAULT_PROTOCOL))
"""In the order of the help. The module of a command is imported only to run it: loading all of them takes a second."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog="pytest-spiral",
        description="Score, compare and publish recorded runs.",
        epilog="Exit code 0: done; 1: a check failed; 3: internal error; 4: usage error, described on stderr. `merge` "
        "exits like a run.",
        allow_abbrev=False,
    )
    _add_commands(parser, "", "COMMAND")
    try:
        options = parser.parse_args(_complete(sys.argv[1:] if arguments is None else arguments))
    except SystemExit as stop:
        return USAGE_ERROR if stop.code else 0
    # Usage errors and help do without it.
    from pytest_spiral.report.parts import Parts, tracebacks

    parts = Parts()
    with tracebacks(options.full_trace):
        code = parts.attempt(options.run, _run, options)
    for failed in parts.failed:
        print(f"pytest-spiral: internal error, {failed.detail}; --full-trace shows where", file=sys.stderr)
    return INTERNAL_ERROR if code is None else code


def _complete(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments with the default command of a group, where they name none of its commands."""
    group = COMMANDS.get(arguments[0], {}) if len(arguments) > 1 else {}
    if "default" not in group or arguments[1] in (*group["commands"], "-h", "--help"):
        return arguments
    return [arguments[0], group["default"], *arguments[1:]]


def _run(options: argparse.Namespace) -> int:
    try:
        run: Callable[[argparse.Namespace], int] = resolve_name(f"{__name__}.{options.run}")
        return run(options)
    except BrokenPipeError:
        # The reader has closed the pipe; flushing at exit must not fail on it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # A name that is too long, a directory that may not be read, a full disk.
        print(f"pytest-spiral: {UserError(error)}; check the path and its permissions", file=sys.stderr)
    except UserError as error:
        print(f"pytest-spiral: {error}", file=sys.stderr)
    return USAGE_ERROR


def print_json(value: object) -> None:
    """Print JSON values."""
    print(json.dumps(value, indent=1, ensure_ascii=True))


def tell(options: argparse.Namespace, value: object, lines: Iterable[object]) -> int:
    """Print a value where JSON is asked for, and lines for people otherwise. Returns 0: done."""
    if options.json:
        print_json(value)
    else:
        print(*lines, sep="\n")
    return 0


def _add_commands(parser: argparse.ArgumentParser, group: str, metavar: str) -> None:
    """Add the commands of a group, or all for ""."""
    subparsers = parser.add_subparsers(required=True, metavar=metavar)
    for name, command in (COMMANDS[group]["commands"] if group else COMMANDS).items():
        about = command["help"]
        if "commands" in command:
            described = f"{about[0].upper()}{about[1:]}."
            _add_commands(subparsers.add_parser(name, help=about, description=described), name, "ACTION")
            continue
        one = subparsers.add_parser(name, help=about, description=about)
        one.set_defaults(run=command["run"])
        one.add_argument("--json", action="store_true", help="print JSON")
        one.add_argument("--full-trace", action="store_true", help="show the traceback of an internal error")
        for argument in command["arguments"]:
            said = {**argument}
            names = said.pop("names")
            if "type" in said:
                said["type"] = _TYPES[said["type"]]
            one.add_argument(*names, **said)
