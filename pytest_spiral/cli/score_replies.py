"""`score-replies`: the reply checks on a file of scenarios and replies."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_spiral.cli.output import Subparsers, add_command, print_json
from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.resources import read_text
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.records import REPLY_CHECKS
from pytest_spiral.tempaffect.scenario import Scenario


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)

    scenario: Scenario
    reply: str


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "score-replies", run, "check replies of a JSONL file of {scenario, reply} objects")
    parser.add_argument("file", type=Path)


def run(options: argparse.Namespace) -> int:
    """Print the checks that each reply passed, and how many passed each check."""
    rows = [
        {"line": line, "scenario": row.scenario.id, **asdict(check_reply(row.scenario, row.reply))}
        for line, row in _rows(options.file)
    ]
    if options.json:
        print_json(rows)
        return 0
    names = (*REPLY_CHECKS, "useful_bounded")
    for row in rows:
        print(f"{row['line']:>5} {row['scenario']:<24} " + " ".join(name for name in names if row[name]))
    for name in names:
        print(f"{name}: {sum(row[name] for row in rows)} of {len(rows)}")
    return 0


def _rows(file: Path) -> Iterator[tuple[int, _Row]]:
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if line.strip():
            where = f"{file}:{number}"
            try:
                # Through `json`, whose limits on depth and numbers are Python's own.
                yield number, _Row.model_validate_json(json.dumps(json.loads(line)))
            except ValidationError as error:
                raise DataError(f"{where}: {first_fault(error, 'object')}") from None
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: not valid JSON: {error}") from None
