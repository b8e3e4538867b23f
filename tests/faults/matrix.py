"""The fault matrix: every fault in every role of both suites, once and for good, and the resume after it.

A cell holds when the run ended in bounded time, every unit is in the state that the fault's nature demands, calls were
made again or not as it demands, the exit code follows from what is missing, the same run with a healthy endpoint
afterwards asks for nothing that was answered before and ends with the report of an undisturbed run, and the key that
was sent is in none of its files, messages and log records.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pytest_spiral.evaluate.verdict import is_beyond_limit
from tests.fakes.openai_server import FakeOpenAI
from tests.fakes.script import Rule, Script
from tests.faults.catalogue import CATALOGUE, COLUMNS, KEY, Case, Column, Nature
from tests.faults.runs import MODELS, Outcome, Run, cast, measured, patient, remains

__all__ = ["Cell", "Mode", "documented", "markdown", "outcomes", "play", "play_all", "write_docs"]

DOCS = Path(__file__).parents[2] / "docs" / "validation" / "faults.md"
MARK = "<!-- matrix -->"

Mode = Literal["once", "always"]
MODES: tuple[Mode, ...] = ("once", "always")
_ROLE: Mapping[Column, str] = {"tempaffect": "evaluated", "assistant": "evaluated", "user": "user", "judge": "judge"}
# Seconds for one run of a cell: six requests with a deadline each, on a busy machine.
_BOUND = 40.0


@dataclass
class Cell:
    """One fault in one role. problems: what did not hold; empty where all did. says: what became of the units."""

    case: Case
    column: Column
    mode: Mode
    says: str = ""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.column}, {self.mode}"


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.text.append(logging.Formatter().format(record))


@contextmanager
def _logged() -> Iterator[list[str]]:
    handler, root = _Log(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler.text
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


@cache
def _undisturbed(suite: str) -> Mapping[str, Any]:
    folder = Path(tempfile.mkdtemp())
    try:
        with FakeOpenAI(cast(), key=KEY) as server, patient(20, 60):
            return measured(Run(folder, server, suite, KEY).go().report)
    finally:
        shutil.rmtree(folder)


def play(case: Case, column: Column, mode: Mode) -> Cell:
    """One cell."""
    cell = Cell(case, column, mode)
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    started = time.monotonic()
    try:
        with _logged() as log:
            _play(cell, folder)
        _expect(cell, "the key is in no file", remains(folder, KEY), [])
        _expect(cell, "the key is in no log record", KEY[8:24] in "\n".join(log), False)
    finally:
        shutil.rmtree(folder)
    cell.seconds = time.monotonic() - started
    return cell


def _play(cell: Cell, folder: Path) -> None:
    suite = "tempaffect" if cell.column == "tempaffect" else "spiral"
    model = MODELS[_ROLE[cell.column]]
    rule = Rule(cell.case.make, model)
    script = Script(cast())

    def arm() -> None:
        script.counts.clear()
        script.rules = [Rule(rule.fault, model, calls={1})] if cell.mode == "once" else [rule]

    with FakeOpenAI(script, key=KEY) as server:
        run = Run(folder, server, suite, KEY)
        started = time.monotonic()
        with patient(*((0.4, 4.0) if cell.case.slow else (10.0, 30.0))):
            broken = run.go(arm)
        _expect(cell, f"over within {_BOUND:g} s", time.monotonic() - started < _BOUND, True)
        _expect(cell, "the fault was met", script.faults[model] > 0, True)
        script.rules = []
        answered, before = _answered(run), len(server.requests)
        _check_broken(cell, broken, run)
        with patient(20, 60):
            resumed = run.go()
        asked = [request.raw for request in server.requests[before:]]
    _check_resumed(cell, broken, resumed, asked, answered)
    for outcome in (broken, resumed):
        _expect(cell, "the key is in no message", KEY[8:24] in outcome.text, False)


def _expect(cell: Cell, what: str, result: object, wanted: object) -> None:
    if result != wanted:
        cell.problems.append(f"{what}: {str(result)[:300]}, expected {str(wanted)[:300]}")


def _states(report: Mapping[str, Any], column: Column) -> Counter[tuple[str, str]]:
    """State and class of everything that a role's calls decide: items, conversations or judgements."""
    conversations = report["spiral"]["conversations"]
    if column == "tempaffect":
        return Counter((item["status"], _code_of(item["reason"])) for item in report["tempaffect"]["items"])
    if column == "judge":
        parts = [
            part for conversation in conversations for part in (*conversation["judgements"], *conversation["finals"])
        ]
        return Counter((part["status"], _code_of(part["reason"])) for part in parts)
    return Counter((conversation["status"], _code_of(conversation["reason"])) for conversation in conversations)


def _code_of(reason: Mapping[str, str] | None) -> str:
    return reason["code"] if reason else ""


def _failures(run: Run) -> list[tuple[str, str, int]]:
    with sqlite3.connect(run.run_dir / "run.sqlite") as store:
        return store.execute("SELECT role, code, attempts FROM failure").fetchall()


def _answered(run: Run) -> int:
    with sqlite3.connect(run.run_dir / "run.sqlite") as store:
        return int(store.execute("SELECT count(*) FROM reply").fetchone()[0])


def _check_broken(cell: Cell, broken: Outcome, run: Run) -> None:
    """State, class, retries and exit code of the run that met the fault."""
    case, nature = cell.case, cell.case.nature_in(cell.column)
    role = _ROLE[cell.column]
    states = _states(broken.report, cell.column)
    bad = {state: n for state, n in states.items() if state[0] != "measured"}
    usage = broken.report["usage"]["by_role"].get(role, {"retries": 0})
    failures = _failures(run)
    _expect(cell, "states", {state for state, _ in states} <= {"measured", "model_failed", "instrument_failed"}, True)
    judged = cell.column in ("user", "judge")
    if nature == "harmless" or (cell.mode == "once" and (nature == "passing" or (nature == "unusable" and judged))):
        _expect(cell, "all measured", bad, {})
        _expect(cell, "failures", failures, [])
        retried = usage["retries"] > 0 if nature == "passing" else usage["retries"] == 0
        _expect(cell, "retries", retried, True)
    elif nature in ("passing", "final"):
        _expect(cell, "class", {(state, kind) for state, kind in bad}, {("instrument_failed", case.kind)})
        _expect(cell, "class on record", {kind for r, kind, _ in failures if r == role}, {case.kind})
        tries = [attempts for _, _, attempts in failures]
        # Where an endpoint was given up, later calls try once.
        _expect(cell, "tried again", max(tries) > 1, nature == "passing")
        if cell.mode == "once":
            _expect(cell, "failed", sum(bad.values()), 1)
        elif cell.column != "judge":
            _expect(cell, "measured", states[("measured", "")], 0)
    elif judged:
        _expect(cell, "state", {state for state, _ in bad}, {"instrument_failed"})
    else:
        _expect(cell, "state", {state for state, _ in bad}, {"model_failed"})
        if cell.column == "tempaffect":
            _expect(cell, "reason", {reason for _, reason in bad}, {case.reason})
        _expect(cell, "asked again", failures, [])
        _expect(cell, "failed", sum(bad.values()), 1 if cell.mode == "once" else sum(states.values()))
    _expect(cell, "exit code", broken.code, _code(broken.report))
    cell.says = _says(nature, cell.mode, bad)


def _code(report: Mapping[str, Any]) -> int:
    """11 where more is missing than may be, counted here from the units themselves."""
    items, conversations = report["tempaffect"]["items"], report["spiral"]["conversations"]
    parts = [[item["status"] == "instrument_failed" for item in items if item["prompting_mode"] == mode]
             for mode in ("schema_assisted", "raw_json")]  # fmt: skip
    parts.append([conversation["status"] != "measured" for conversation in conversations])
    held = [conversation for conversation in conversations if conversation["status"] == "measured"]
    parts += [
        [part["status"] != "measured" for conversation in held for part in conversation[name]]
        for name in ("judgements", "finals")
    ]
    return 11 if any(is_beyond_limit(sum(lost), len(lost)) for lost in parts) else 0


def _says(nature: Nature, mode: Mode, bad: Mapping[tuple[str, str], int]) -> str:
    if bad:
        (state, kind) = sorted(bad)[0]
        return f"{state} ({kind})" if kind else state
    return {"harmless": "measured", "passing": "measured, tried again", "unusable": "measured, asked again"}.get(
        nature, "measured"
    )


def _check_resumed(cell: Cell, broken: Outcome, resumed: Outcome, asked: list[bytes], answered: int) -> None:
    """With a healthy endpoint the same run ends as if nothing had been."""
    nature = cell.case.nature_in(cell.column)
    suite = "tempaffect" if cell.column == "tempaffect" else "spiral"
    changed = nature == "harmless" and cell.case.make("x") != cell.case.make("y") and cell.says == "measured"
    own_text = nature == "harmless" and not changed
    kept = own_text or (nature == "unusable" and cell.column in ("tempaffect", "assistant"))
    # A model's own failure and a model's own words are measurements: they stand.
    wanted = measured(broken.report) if kept else _undisturbed(suite)
    _expect(cell, "resumed report", _difference(wanted, measured(resumed.report)), [])
    _expect(cell, "exit code after resume", resumed.code, _code(resumed.report))
    _expect(cell, "each missing request sent once", max(Counter(asked).values(), default=1), 1)
    total = sum(row["requests"] for row in resumed.report["usage"]["by_role"].values())
    _expect(cell, "only what was missing is asked", len(asked), total - answered)
    if not broken.failed:
        _expect(cell, "nothing was missing", asked, [])


def _difference(wanted: Any, result: Any, path: str = "") -> list[str]:
    """Where two JSON values differ."""
    if isinstance(wanted, dict) and isinstance(result, dict):
        return [
            d for key in {*wanted, *result} for d in _difference(wanted.get(key), result.get(key), f"{path}.{key}")
        ][:5]
    if isinstance(wanted, list) and isinstance(result, list) and len(wanted) == len(result):
        return [
            d for n, pair in enumerate(zip(wanted, result, strict=True)) for d in _difference(*pair, f"{path}.{n}")
        ][:5]
    return [] if wanted == result else [f"{path}: {str(wanted)[:60]} / {str(result)[:60]}"]


def play_all(
    cases: Iterable[Case] = CATALOGUE, columns: Iterable[Column] = COLUMNS, modes: Iterable[Mode] = MODES
) -> Iterator[Cell]:
    """The matrix, cell by cell."""
    columns, modes = tuple(columns), tuple(modes)
    for case in cases:
        for column in columns:
            for mode in modes:
                yield play(case, column, mode)


def outcomes(cells: Iterable[Cell]) -> dict[str, tuple[str, ...]]:
    """For each fault what becomes of the units in each role: met once, and on every call where that differs."""
    result = {(cell.case.name, cell.column, cell.mode): cell for cell in cells}
    rows = {}
    for name in dict.fromkeys(name for name, _, _ in result):
        row = []
        for column in COLUMNS:
            pair = [result.get((name, column, mode)) for mode in MODES]
            says = [("FAILED: " if cell.problems else "") + cell.says for cell in pair if cell is not None]
            row.append(says[0] if len(set(says)) == 1 else "; always: ".join(says))
        rows[name] = tuple(row)
    return rows


def markdown(rows: Mapping[str, Sequence[str]]) -> str:
    """Outcomes as a table, in the order of the catalogue."""
    heads = ("TempAffect, evaluated", "Spiral-Bench, evaluated", "Spiral-Bench, simulated user", "Spiral-Bench, judge")
    lines = [f"| fault | {' | '.join(heads)} |", "|---" * 5 + "|"]
    lines += [f"| {case.name} | {' | '.join(rows[case.name])} |" for case in CATALOGUE if case.name in rows]
    return "\n".join(lines) + "\n"


def documented() -> dict[str, tuple[str, ...]]:
    """The outcomes that the page of faults shows."""
    table = DOCS.read_text(encoding="utf-8").partition(MARK)[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {name: tuple(row) for name, *row in lines[1:]}


def write_docs(rows: Mapping[str, Sequence[str]]) -> None:
    """Put outcomes into the page of faults; rows that are not among them stay as they are."""
    before, mark, rest = DOCS.read_text(encoding="utf-8").partition(MARK)
    after = rest[rest.index("\n## ") :]
    DOCS.write_text(f"{before}{mark}\n\n{markdown({**documented(), **rows})}{after}", encoding="utf-8")
