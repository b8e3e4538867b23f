"""`export`: a report in other formats."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_spiral.cli.output import Subparsers, add_command, print_json
from pytest_spiral.errors import DataError
from pytest_spiral.report.export import FORMATS, export
from pytest_spiral.report.read import load_report


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "export", run, "write a report as CSV or Parquet tables, JUnit XML, model card or Inspect log"
    )
    parser.add_argument("path", type=Path, help="a run directory or its report.json")
    parser.add_argument("--format", dest="formats", action="append", choices=FORMATS, help="repeatable (default: csv)")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="default: export/ in the run directory")


def run(options: argparse.Namespace) -> int:
    """Write the files."""
    file = options.path / "report.json" if options.path.is_dir() else options.path
    report = load_report(file)
    directory = options.output or file.parent / "export"
    try:
        written = [path for name in options.formats or ["csv"] for path in export(report, name, directory)]
    except OSError as error:
        raise DataError(f"{directory}: cannot be written ({error.strerror or error})") from None
    print_json([str(path) for path in written]) if options.json else print(*written, sep="\n")
    return 0
