"""`merge`: one run from its shards."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pytest_spiral.cli.output import Subparsers, add_command, print_json
from pytest_spiral.evaluate.verdict import exit_code
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.report.write import write_report
from pytest_spiral.run.shards import merge_shards


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "merge", run, "merge the shards of a run; exits like the run: 0, 1, 10 or 11")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="run directories of all shards")
    parser.add_argument("--run-id", default="merged", metavar="ID", help="id of the whole run (default: merged)")
    parser.add_argument("--report-dir", type=Path, default=Path("reports"), metavar="DIR", help="default: reports")


def run(options: argparse.Namespace) -> int:
    """Write the report of the whole run and print its summary."""
    report = merge_shards(options.paths, options.run_id, Path.cwd(), sys.argv[1:])
    run_dir = options.report_dir / options.run_id
    write_report(report, run_dir, os.environ.get("GITHUB_STEP_SUMMARY"))
    if options.json:
        gates = [gate.model_dump(mode="json") for gate in report.gates]
        print_json({"report": str(run_dir), "verdict": report.verdict, "gates": gates})
    else:
        print(*(line for line, _ in summary_lines(report, str(run_dir))), sep="\n")
    return exit_code(0, report.verdict, False)
