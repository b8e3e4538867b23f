"""A finished run in a directory, and playing raters without a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_spiral.labelling.sheets import Sheet, read_sheet
from pytest_spiral.report.write import write_results
from tests.html.reports import demo

Play = Callable[[str, str], object]
"""The answer to an item, by its id, and a question; None for none."""


def demo_run(folder: Path) -> Path:
    """The run directory of the small report that the pages' tests read."""
    folder.mkdir(exist_ok=True)
    write_results(demo(), folder)
    return folder


def export(path: Path, sheet: Sheet, rater: str, answer: Play, stage: str = "rate", kind: str = "person") -> Path:
    """Write what the page of a rater exports."""
    header = {
        "format": "pytest-spiral answers",
        "version": 1,
        "set": sheet.header.set,
        "wording": sheet.header.wording,
        "suite": sheet.header.suite,
        "stage": stage,
        "rater": {"name": rater, "kind": kind},
    }
    rows: list[Mapping[str, object]] = [header]
    for item in sheet.items:
        given = {name: answer(item.item, name) for name in sheet.header.questions}
        answers = {name: value for name, value in given.items() if value is not None}
        rows += [{"item": item.key, "answers": answers}] if answers else []
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def sheet_in(folder: Path, suite: str) -> Sheet:
    return read_sheet(folder / suite / "sampling.jsonl")
