"""Commands on scenario files: check, hash and print them, and run the reply checks on replies in a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pytest_spiral.cli import print_json, tell
from pytest_spiral.errors import DataError
from pytest_spiral.report.lines import plain
from pytest_spiral.report.write import write_atomically
from pytest_spiral.resources import naming_faults, read_json, read_text
from pytest_spiral.spiral.content import SPIRAL_LOCK, suite_hashes
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.lint import lint_scenario
from pytest_spiral.tempaffect.records import REPLY_CHECKS
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.self_check import check_scorer
from pytest_spiral.tempaffect.suite import LOCK_FILE, build_messages, load_suite


def lint(options: argparse.Namespace) -> int:
    """Print faults; 1 if there are any."""
    suite = load_suite(options.paths or None)
    faults = [fault for scenario in suite.scenarios for fault in lint_scenario(scenario)]
    value = {"scenarios": len(suite.scenarios), "faults": [asdict(fault) for fault in faults]}
    lines = [f"{fault.scenario}: {fault.rule}: {fault.message}" for fault in faults]
    tell(options, value, [*lines, f"scenarios: {len(suite.scenarios)}, faults: {len(faults)}"])
    return int(bool(faults))


def show_hashes(options: argparse.Namespace) -> int:
    """Print hashes; 1 where those of the bundled suites are not the pinned ones."""
    if options.write and options.paths:
        raise DataError("--write pins the bundled suites; leave out the paths")
    suite = load_suite(options.paths or None)
    hashes: dict[str, object] = {"suite_hash": suite.suite_hash, "components": dict(suite.components)}
    lines = [f"suite_hash {suite.suite_hash}", *(f"  {name} {value}" for name, value in suite.components.items())]
    shown, pinned = hashes, dict[Path, Mapping[str, object]]()
    if not options.paths:
        hashes["scorer_fingerprint"], spiral = check_scorer(suite).fingerprint, suite_hashes()
        shown, pinned = {**hashes, "spiral": spiral}, {LOCK_FILE: hashes, SPIRAL_LOCK: spiral}
        lines.append(f"scorer_fingerprint {hashes['scorer_fingerprint']}")
        lines += ["spiral", *(f"  {name} {value}" for name, value in spiral.items())]
    for path, value in pinned.items() if options.write else ():
        write_atomically(path, json.dumps(value, indent=2, sort_keys=True) + "\n")
    tell(options, shown, lines)
    if is_changed := any(read_json(path) != value for path, value in pinned.items()):
        print("differs from the pinned hashes", file=sys.stderr)
    return int(is_changed)


def show(options: argparse.Namespace) -> int:
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
    print_json(scenario.model_dump(mode="json")["expected"])
    print(f"--- reference\n{scenario.reference_reply}\n--- rationale\n{scenario.rationale}")
    return 0


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)

    scenario: Scenario
    reply: str


def score_replies(options: argparse.Namespace) -> int:
    """Print the checks that each reply passed, on request with the evidence, and how many passed each check."""
    checked = [(line, row, check_reply(row.scenario, row.reply)) for line, row in _rows(options.file)]
    if not checked:
        raise DataError(f"{options.file}: no reply in it; write one object with scenario and reply per line")
    if options.json:
        print_json([{"line": line, "scenario": row.scenario.id, **asdict(checks)} for line, row, checks in checked])
        return 0
    names = (*REPLY_CHECKS, "useful_bounded")
    for line, row, checks in checked:
        print(f"{line:>5} {row.scenario.id:<24} " + " ".join(name for name in names if getattr(checks, name)))
        for name, reasons in checks.reasons.items() if options.explain else ():
            print(*(f"      {name}: {plain(reason)}" for reason in reasons), sep="\n")
    for name in names:
        told = [getattr(checks, name) for _, _, checks in checked if getattr(checks, name) is not None]
        print(f"{name}: {sum(told)} of {len(told)}")
    return 0


def _rows(file: Path) -> Iterator[tuple[int, _Row]]:
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if line.strip():
            where = f"{file}:{number}"
            try:
                # Through `json`, whose limits on depth and numbers are Python's own.
                value = json.dumps(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: not valid JSON: {error}") from None
            with naming_faults(where, "object"):
                row = _Row.model_validate_json(value)
            yield number, row
