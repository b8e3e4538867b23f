"""`shadow`: the public suite against a private form of it."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_spiral.cli.output import FAULTS_FOUND, Subparsers, add_command, print_json
from pytest_spiral.compare.shadow import compare_shadow
from pytest_spiral.report.comparison import shadow_lines


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "shadow", run, "compare results on the public suite and on a private form; exits 1 on a caution"
    )
    parser.add_argument("public", type=Path, help="a run of the public suite: its directory or report.json")
    parser.add_argument("shadow", type=Path, help="a run of the same models with --tempaffect-scenarios")


def run(options: argparse.Namespace) -> int:
    """Print the difference for every model and mode."""
    comparison = compare_shadow(options.public, options.shadow)
    if options.json:
        print_json(comparison.model_dump(mode="json"))
    else:
        print(*shadow_lines(comparison), sep="\n")
    return FAULTS_FOUND if any(row.verdict == "caution" for row in comparison.rows) else 0
