"""What commands have in common: their parsers, JSON, numbers, and files to write."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from pytest_spiral.errors import StoreError
from pytest_spiral.report.write import write_atomically

__all__ = [
    "FAULTS_FOUND",
    "RUN_PATH",
    "Subparsers",
    "add_command",
    "print_json",
    "print_written",
    "shown",
    "write_page",
]

# Generic in the stubs of the standard library only.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
FAULTS_FOUND = 1
RUN_PATH = "a run directory, its report.json, or a result file in upstream's format"


def add_command(
    subparsers: Subparsers, name: str, run: Callable[[argparse.Namespace], int], summary: str
) -> argparse.ArgumentParser:
    """A parser for one command, with --json."""
    parser: argparse.ArgumentParser = subparsers.add_parser(name, help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def print_json(value: object) -> None:
    """Print JSON values."""
    print(json.dumps(value, indent=1, ensure_ascii=True))


def print_written(paths: Iterable[Path], as_json: bool) -> None:
    """Print the names of files that were written."""
    names = [str(path) for path in paths]
    print_json({"written": names}) if as_json else print(*names, sep="\n")


def shown(value: float | None, digits: int = 2) -> str:
    """A number for people."""
    return "not measured" if value is None else f"{value:.{digits}f}"


def write_page(target: Path, page: str) -> None:
    """Write a page.

    Raises:
        StoreError: Where the target cannot be written.
    """
    try:
        write_atomically(target, page)
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror or error}); choose another -o") from None
