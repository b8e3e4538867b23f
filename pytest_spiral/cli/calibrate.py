"""`calibrate`: judges against labelled assistant turns."""

from __future__ import annotations

import argparse
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from pytest_spiral.cli.output import FAULTS_FOUND, Subparsers, add_command, print_json
from pytest_spiral.compare.runs import DEFAULT_PROTOCOL
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.environment import load_environment
from pytest_spiral.report.calibration import calibration_lines
from pytest_spiral.report.lines import plain
from pytest_spiral.run.judge_calibration import calibrate_judges
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.labels import load_labels, sheet
from pytest_spiral.spiral.protocol import load_protocol


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "calibrate", run, "measure judges against labelled assistant turns")
    parser.add_argument("--judge-model", action="append", metavar="SPEC", help="a judge; repeat for an ensemble")
    parser.add_argument("--labels", type=Path, help="JSONL of labelled turns, or a result file in upstream's format")
    parser.add_argument(
        "--protocol",
        default=DEFAULT_PROTOCOL,
        metavar="NAME",
        help=f"the protocol whose rubric is used (default: {DEFAULT_PROTOCOL})",
    )
    parser.add_argument("--report-dir", default="reports", metavar="DIR", help="where calibrations are kept")
    parser.add_argument("--sheet", metavar="RATER", help="print the turns without labels, for another rater to label")


def run(options: argparse.Namespace) -> int:
    """Print how well the judges agree with the labels, and keep it for later runs."""
    protocol = load_protocol(options.protocol)
    labelled = load_labels(options.labels, protocol.behaviours)
    if options.sheet:
        for row in sheet(labelled, options.sheet):
            print(json.dumps(row, ensure_ascii=True))
        return 0
    if not options.judge_model:
        raise ConfigError("--judge-model: name the judge, such as --judge-model gpt-5")
    settings = Settings(
        judge_model=tuple(options.judge_model), protocol=options.protocol, report_dir=options.report_dir
    )
    folder = Path.cwd()
    found = calibrate_judges(settings, folder, load_environment(os.environ, folder), datetime.now(UTC), options.labels)
    if options.json:
        alone = {name: calibration.to_json() for name, calibration in found.alone.items()}
        drift = None if found.drift is None else found.drift.model_dump(mode="json")
        print_json({**found.together.to_json(), "below": found.together.below, "drift": drift, "alone": alone})
    else:
        print(*map(plain, calibration_lines(found.together, found.drift)), sep="\n")
        print(f"kept in {found.path}")
    return FAULTS_FOUND if found.together.below else 0
