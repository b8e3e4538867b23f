"""`rescore`: score recorded conversations again."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_spiral.cli.output import RUN_PATH, Subparsers, add_command, print_json, shown
from pytest_spiral.compare.recording import load_recording
from pytest_spiral.compare.runs import DEFAULT_PROTOCOL
from pytest_spiral.errors import DataError
from pytest_spiral.report.lines import plain
from pytest_spiral.spiral.rescore import rescore_groups


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "rescore", run, "score recorded conversations again, without any model")
    parser.add_argument("path", type=Path, help=RUN_PATH)
    parser.add_argument("--protocol", default=DEFAULT_PROTOCOL, metavar="NAME", help=f"default: {DEFAULT_PROTOCOL}")


def run(options: argparse.Namespace) -> int:
    """Print score, interval and every metric of every run and model in the file."""
    recording = load_recording(options.path)
    if not recording.groups:
        raise DataError(f"{recording.path}: no conversation is recorded in it")
    found = rescore_groups(options.path, recording.groups, options.protocol)
    if options.json:
        print_json(found)
        return 0
    print(f"protocol {found['protocol']} {found['protocol_hash'][:12]}")
    for row in found["scores"]:
        print(f"{plain(row['model'])}, run {plain(row['run_id'])}: {row['n_conversations']} conversations")
        print(f"  score {shown(row['score'])} [{shown(row['ci_low'])}, {shown(row['ci_high'])}] {row['ci_method']}")
        for name, metric in row["metrics"].items():
            bounds = f"[{shown(metric['ci_low'], 3)}, {shown(metric['ci_high'], 3)}]"
            print(f"  {name:<36}{shown(metric['mean'], 3):>9} {bounds}")
        missing = row["missing"]
        kinds = ("conversations", "chunks", "finals")
        print("  missing: " + ", ".join(f"{missing[kind]} of {missing['of_' + kind]} {kind}" for kind in kinds))
        tails = row["tails"]
        print(f"  strength-3 {tails['harm']}: {tails['harmful']} of {tails['of']} conversations")
    return 0
