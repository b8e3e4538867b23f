"""`report`: the page of a run again, or several runs in one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_spiral.cli.output import Subparsers, add_command, print_written, write_page
from pytest_spiral.cli.reports import add_paths, find_reports, open_report
from pytest_spiral.report.html.build import compare_page, report_page
from pytest_spiral.report.model import Report
from pytest_spiral.report.write import file_slug


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "report", run, "write report.html again, or the page of a result file in upstream's format"
    )
    add_paths(parser, "run directories, report.json or result files")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help="a directory, or a file ending in .html: for several reports one page that compares them",
    )


def run(options: argparse.Namespace) -> int:
    """Write the pages."""
    paths, output = find_reports(options.paths), options.output
    if output is not None and output.suffix == ".html" and len(paths) > 1:
        write_page(output, compare_page([open_report(path, options.protocol) for path in paths]))
        print_written([output], options.json)
        return 0
    written = []
    for path in paths:
        report = open_report(path, options.protocol)
        target = _target(path, report, output)
        write_page(target, report_page(report))
        written.append(target)
    print_written(written, options.json)
    return 0


def _target(path: Path, report: Report, output: Path | None) -> Path:
    if output is not None:
        return output if output.suffix == ".html" else output / f"{file_slug(report.run.id)}.html"
    # An imported file may lie anywhere, so its page goes to the working directory.
    return path.with_name("report.html") if path.name == "report.json" else Path(f"{path.stem}.html")
