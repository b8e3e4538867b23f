"""`leaderboard`: a static site over many runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_spiral.cli.output import Subparsers, add_command, print_written
from pytest_spiral.cli.reports import add_paths, find_reports, open_report
from pytest_spiral.report.site import write_site


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "leaderboard", run, "write a static site over many runs")
    add_paths(parser, "run directories, directories of runs, report.json or result files")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="directory of the site")


def run(options: argparse.Namespace) -> int:
    """Write the site."""
    written = write_site([open_report(path, options.protocol) for path in find_reports(options.paths)], options.output)
    print_written(written if options.json else written[:1], options.json)
    return 0
