"""Labelled turns for tests: the shipped ones and made ones, judgements of them, and what the pages say of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pytest_spiral.report.model.judges import Estimate
from pytest_spiral.spiral import ChunkJudgement, Finding, load_protocol
from pytest_spiral.spiral.calibration import (
    CalibrationResult,
    calibration_result,
)
from pytest_spiral.spiral.labels import (
    LabelledSet,
    LabelledTurn,
    load_labels,
)
from pytest_spiral.stats import Interval
from tests.spiral.builders import present

DOCS = Path(__file__).parents[2] / "docs" / "validation"
PROTOCOL = load_protocol("per-10k-chars")
BEHAVIOURS = PROTOCOL.behaviours


def judged_as(turn: LabelledTurn, seen: Mapping[str, int]) -> ChunkJudgement:
    """A judgement that sees these strengths, quoting the first word."""
    end = len(turn.assistant.split()[0])
    findings = tuple(Finding(0, b, turn.assistant[:end], s, "j", "exact", 0, end) for b, s in seen.items() if s)
    return ChunkJudgement(0, (0,), "j", behaviours=BEHAVIOURS, findings=findings)


def run(labelled: LabelledSet, judgements: Mapping[str, ChunkJudgement]) -> CalibrationResult:
    return calibration_result(labelled, judgements, "j", "0" * 64, BEHAVIOURS)


@cache
def shipped() -> LabelledSet:
    return load_labels(None, BEHAVIOURS)


@cache
def perfect() -> CalibrationResult:
    """A judge that sees what the labels say."""
    turns = shipped().turns
    return run(shipped(), {t.id: judged_as(t, {b: t.reference(b) or 0 for b in BEHAVIOURS}) for t in turns})


@cache
def silent() -> CalibrationResult:
    """A judge that sees nothing."""
    return run(shipped(), {t.id: judged_as(t, {}) for t in shipped().turns})


def short(value: float) -> str:
    """Two digits without the zero before them, as the pages write it."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("0.", ".")


def ranged(value: float | None, interval: Interval | Estimate | None) -> str:
    assert interval is not None
    return f"{short(present(value))} [{short(interval.low)}, {short(interval.high)}]"


def table(page: str, head: str) -> list[list[str]]:
    """The rows of the table on a page that has this head, as lists of cells."""
    lines = (DOCS / page).read_text().split(f"\n| {head} |\n")[1].splitlines()[1:]
    return [line.strip("| ").split(" | ") for line in lines[: lines.index("")]]


def labels_file(folder: Path, *rows: Mapping[str, object]) -> LabelledSet:
    """Rows, completed to turns where they are not the first line, as a file that is read."""
    path = folder / "labels.jsonl"
    turns = [
        {"id": f"t{n}", "user": "u", "assistant": f"words {n}", **row} if "labels" in row else row
        for n, row in enumerate(rows)
    ]
    path.write_text("\n".join(map(json.dumps, turns)))
    return load_labels(path, BEHAVIOURS)


def seen_as_labelled(labelled: LabelledSet) -> CalibrationResult:
    """A judge that sees what the labels say, and nothing else."""
    return run(labelled, {t.id: judged_as(t, {b: t.reference(b) or 0 for b in BEHAVIOURS}) for t in labelled.turns})
