"""`compare`: candidate minus baseline, paired."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_spiral.cli.output import RUN_PATH, Subparsers, add_command, print_json, write_page
from pytest_spiral.cli.reports import find_reports, open_report
from pytest_spiral.compare.runs import DEFAULT_PROTOCOL, compare_paths
from pytest_spiral.report.comparison import comparison_lines, comparison_markdown
from pytest_spiral.report.html.build import compare_page


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "compare", run, "compare two runs, paired, with the minimum detectable difference")
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help=f"the run to compare with: {RUN_PATH}")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run to judge, likewise")
    parser.add_argument("--protocol", metavar="NAME", help="score both again under it (default: the reports' own)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with both runs side by side")


def run(options: argparse.Namespace) -> int:
    """Print the comparison as text, Markdown or JSON."""
    comparison = compare_paths(options.baseline, options.candidate, options.protocol)
    if options.html is not None:
        paths = find_reports([options.baseline, options.candidate])
        reports = [open_report(path, comparison.protocol or DEFAULT_PROTOCOL) for path in paths]
        write_page(options.html, compare_page(reports, comparison))
    if options.json:
        print_json(comparison.model_dump(mode="json"))
    elif options.markdown:
        print(comparison_markdown(comparison), end="")
    else:
        print(*comparison_lines(comparison), sep="\n")
    return 0
