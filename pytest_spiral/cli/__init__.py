"""The console script `pytest-spiral`: everything that needs no test run, one module per command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from pytest_spiral.errors import UserError

__all__ = ["main"]

COMMANDS = (
    "rescore",
    "compare",
    "report",
    "leaderboard",
    "merge",
    "export",
    "scenarios",
    "score-replies",
    "shadow",
    "calibrate",
    "fetch-model",
)
"""In the order of the help. Each is a module with `add_parser(subparsers)` and `run(options) -> int`."""
USAGE_ERROR = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        options = _parser(arguments).parse_args(arguments)
    except SystemExit as stop:
        return USAGE_ERROR if stop.code else 0
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except BrokenPipeError:
        # The reader has closed the pipe; flushing at exit must not fail on it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as error:
        print(f"pytest-spiral: {error}", file=sys.stderr)
        return USAGE_ERROR


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the named command, or of all of them: loading every command takes a second."""
    parser = argparse.ArgumentParser(
        prog="pytest-spiral",
        description="Score, compare and publish recorded runs.",
        epilog="Exit code 0: done; 1: faults found; 4: wrong input, described on stderr. `merge` exits like the run.",
        allow_abbrev=False,
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS:
        import_module(f"{__name__}.{name.replace('-', '_')}").add_parser(subparsers)
    return parser
