"""`scenarios lint|hash|show`: check, hash and print scenario files."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from pytest_spiral.cli.output import FAULTS_FOUND, Subparsers, add_command, print_json
from pytest_spiral.errors import DataError
from pytest_spiral.report.write import write_atomically
from pytest_spiral.tempaffect.lint import lint_scenario
from pytest_spiral.tempaffect.prompting import build_messages
from pytest_spiral.tempaffect.self_check import preflight
from pytest_spiral.tempaffect.suite import load_suite, lock, lock_file


def add_parser(subparsers: Subparsers) -> None:
    """Add the commands."""
    parser = subparsers.add_parser("scenarios", help="lint, hash and show scenario files")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    lint = add_command(actions, "lint", run_lint, "check scenario files against the authoring rules")
    hashes = add_command(actions, "hash", run_hash, "print the suite hash and its components")
    hashes.add_argument("--write", action="store_true", help="pin the bundled suite's hashes in its lock file")
    show = add_command(actions, "show", run_show, "print one scenario as the model sees it, with its expected answer")
    show.add_argument("id")
    for action in (lint, hashes, show):
        action.add_argument("paths", nargs="*", type=Path, help="scenario files (default: the bundled suite)")


def run_lint(options: argparse.Namespace) -> int:
    """Print faults."""
    suite = load_suite(options.paths or None)
    faults = [fault for scenario in suite.scenarios for fault in lint_scenario(scenario)]
    if options.json:
        print_json({"scenarios": len(suite.scenarios), "faults": [asdict(fault) for fault in faults]})
    else:
        for fault in faults:
            print(f"{fault.scenario}: {fault.rule}: {fault.message}")
        print(f"{len(suite.scenarios)} scenarios, {len(faults)} faults")
    return FAULTS_FOUND if faults else 0


def run_hash(options: argparse.Namespace) -> int:
    """Print hashes; those of the bundled suite must be the pinned ones."""
    if options.write and options.paths:
        raise DataError("--write pins the bundled suite; leave out the paths")
    suite = load_suite(options.paths or None)
    hashes: dict[str, object] = {"suite_hash": suite.suite_hash, "components": dict(suite.components)}
    if not options.paths:
        hashes["scorer_fingerprint"] = preflight(suite).fingerprint
    if options.write:
        write_atomically(lock_file(), json.dumps(hashes, indent=2, sort_keys=True) + "\n")
    if options.json:
        print_json(hashes)
    else:
        print(f"suite_hash {suite.suite_hash}")
        for name, value in suite.components.items():
            print(f"  {name} {value}")
        if not options.paths:
            print(f"scorer_fingerprint {hashes['scorer_fingerprint']}")
    if not options.paths and dict(lock()) != hashes:
        print("differs from the pinned hashes", file=sys.stderr)
        return FAULTS_FOUND
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Print one scenario."""
    suite = load_suite(options.paths or None)
    if options.id not in suite.by_id:
        raise DataError(f"no scenario {options.id!r}; there are {', '.join(suite.by_id)}")
    scenario = suite[options.id]
    if options.json:
        print_json(scenario.model_dump(mode="json", by_alias=True))
        return 0
    for message in build_messages(scenario):
        print(f"--- {message.role}\n{message.content}\n")
    print("--- key")
    print_json(scenario.expected.model_dump(mode="json"))
    print(f"--- reference\n{scenario.reference_reply}\n--- rationale\n{scenario.rationale}")
    return 0
