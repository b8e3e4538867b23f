"""Blind ratings of recorded TempAffect replies: the sheets that raters get, and what they answered.

    python benchmarks/field_trial/rating.py sheets RECORDS... -o DIR [--seed 1] [--size 50]
    python benchmarks/field_trial/rating.py collect DIR RATER=FILE.jsonl... > ratings.jsonl

`sheets` writes the replies of several recorded runs in one random order, without model, condition, key or score, and
`order.json`, which raters do not see. `collect` joins the raters' lines with what they rated.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_spiral.report.read import load_report
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.scenario import Scenario

QUESTIONS = ("about", "step", "fair", "right", "send")
ANSWERS = frozenset("yn?")
INSTRUCTIONS = Path(__file__).with_name("rating.txt")


def write_sheets(records: Sequence[Path], directory: Path, seed: int, size: int) -> int:
    """Write the sheets; returns how many replies they hold."""
    pairs = [(record.name, item, scenario) for record in records for item, scenario in _answered(record)]
    random.Random(seed).shuffle(pairs)
    directory.mkdir(parents=True, exist_ok=True)
    order = [{"n": n, "record": name, "id": item.id} for n, (name, item, _) in enumerate(pairs, 1)]
    (directory / "order.json").write_text(json.dumps(order), encoding="utf-8")
    (directory / "instructions.txt").write_text(INSTRUCTIONS.read_text(encoding="utf-8"), encoding="utf-8")
    for first in range(0, len(pairs), size):
        blocks = [
            f"=== {n}\nROLE: {scenario.agent_role}\nSITUATION: {scenario.agent_context}\n"
            f"MESSAGE: {scenario.user_message}\nREPLY: {item.answer.reply if item.answer else ''}\n"
            for n, (_, item, scenario) in enumerate(pairs[first : first + size], first + 1)
        ]
        (directory / f"sheet-{first // size + 1}.txt").write_text("\n".join(blocks), encoding="utf-8")
    return len(pairs)


def _answered(record: Path) -> list[tuple[Item, Scenario]]:
    """Items of a run with a readable answer, each with its scenario."""
    suite = load_report(record / "report.json").tempaffect
    if suite is None:
        raise SystemExit(f"{record}: has no TempAffect results")
    return [(item, suite.scenarios[item.id]) for item in suite.items if item.answer]


def collect(directory: Path, raters: dict[str, Path]) -> list[dict[str, Any]]:
    """Every rater's answers with what they rated, in the order of the sheets; refuses missing and unreadable lines."""
    order = json.loads((directory / "order.json").read_text(encoding="utf-8"))
    rows = []
    for rater, path in raters.items():
        given = {row["n"]: row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())}
        if missing := [entry["n"] for entry in order if entry["n"] not in given]:
            raise SystemExit(f"{path}: no line for {missing}")
        for entry in order:
            row = given[entry["n"]]
            if wrong := [question for question in QUESTIONS if row.get(question) not in ANSWERS]:
                raise SystemExit(f"{path}: reply {entry['n']}: no answer to {wrong}")
            answers = {question: row[question] for question in QUESTIONS}
            rows.append({"rater": rater, **entry, **answers, "why": row.get("why", "")})
    return rows


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sheets = commands.add_parser("sheets")
    sheets.add_argument("records", type=Path, nargs="+")
    sheets.add_argument("-o", "--output", type=Path, required=True)
    sheets.add_argument("--seed", type=int, default=1)
    sheets.add_argument("--size", type=int, default=50)
    collected = commands.add_parser("collect")
    collected.add_argument("directory", type=Path)
    collected.add_argument("raters", nargs="+", metavar="RATER=FILE")
    arguments = parser.parse_args()
    if arguments.command == "sheets":
        number = write_sheets(arguments.records, arguments.output, arguments.seed, arguments.size)
        print(f"{number} replies in {arguments.output}")
        return
    raters = {name: Path(path) for name, _, path in (pair.partition("=") for pair in arguments.raters)}
    for row in collect(arguments.directory, raters):
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
