"""What a report says to somebody who has to decide, in one order: terminal, summary and page show the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_spiral.grouping import grouped
from pytest_spiral.report.model import GateRow, Report
from pytest_spiral.report.next_step import NextCommand, is_whole_shard, next_step
from pytest_spiral.report.what_decides import what_decides
from pytest_spiral.report.worst import Worst, worst_findings
from pytest_spiral.status import Reason, ReasonCode, Status

_MOST_CAUSES = 4
# What may differ between reasons of one cause: turns, seconds, and whether a call was tried again.
_DIFFERING = re.compile(r" after \d+ attempts\b|\d+")


@dataclass(frozen=True, slots=True)
class DecidedGate:
    """A gate. why: the reason for its outcome. decides: what would decide it, "" where it is decided."""

    row: GateRow
    why: str
    decides: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Why measurements are missing.

    Attributes:
        count: How many, of `what` (items, conversations, judgements; in the singular for one).
        text: The reason of the first one; the others differ from it in numbers and attempts at most.
        first: Its scenario or conversation, "" for what was never started.
    """

    count: int
    what: str
    text: str
    first: str


@dataclass(frozen=True, slots=True)
class DecisionBlock:
    """May it ship, why, by which item, how sure is that, what next.

    Attributes:
        words: The verdict in one sentence.
        tests: What a passed test of pytest means, which says nothing of the verdict; "" where there were none.
        decisive: Place in `gates` of the first one whose outcome is the verdict; for a pass, of the first with bounds.
        worst: At most five.
        causes: Why measurements are missing, the most frequent first; `more` measurements have other causes.
        next: None for imported results.
    """

    words: str
    tests: str
    gates: tuple[DecidedGate, ...]
    decisive: int | None
    worst: tuple[Worst, ...]
    causes: tuple[Cause, ...]
    more: int
    next: NextCommand | None


def decision_of(report: Report) -> DecisionBlock:
    """Everything that a reader of a report needs first."""
    causes = _causes(report)
    return DecisionBlock(
        words=_words(report),
        tests=_tests(report),
        gates=tuple(DecidedGate(row, gate_reason(row), what_decides(report, row)) for row in report.gates),
        decisive=_decisive(report),
        worst=tuple(worst_findings(report)),
        causes=tuple(causes[:_MOST_CAUSES]),
        more=sum(cause.count for cause in causes[_MOST_CAUSES:]),
        next=next_step(report),
    )


def _decisive(report: Report) -> int | None:
    decided = [place for place, row in enumerate(report.gates) if row.outcome == report.verdict]
    if report.verdict == "pass":
        # A count that passed on its point estimate says nothing of how sure that is.
        decided.sort(key=lambda place: report.gates[place].policy == "point")
    return next(iter(decided), None)


def gate_reason(row: GateRow) -> str:
    """Why a gate has its outcome, which true values it can detect, and whether its judge is calibrated."""
    power = ""
    if row.value is not None and row.policy != "point":
        sign, word = (1, "more") if row.at_least else (-1, "less")
        what = "difference" if row.baseline else "value"
        power = (
            f"; {row.n} {row.unit}s are too few for this gate to pass reliably"
            if row.mde is None
            else f"; a model whose true {what} is {row.threshold + sign * row.mde:.3g} or {word} passes in 4 of 5 runs"
        )
    judge = "; the judge is not calibrated for this behaviour" if row.calibration == "uncalibrated" else ""
    return f"{row.reason.detail}{power}{judge}{_cases(row)}"


def _cases(row: GateRow) -> str:
    """What missing measurements can make of a gate, where they matter."""
    if row.worst_case is None or row.best_case is None or (row.worst_case == row.best_case == row.outcome):
        return ""
    never = ", so what is missing cannot let it pass" if row.best_case != "pass" else ""
    return f"; with what is missing: {row.worst_case} at worst, {row.best_case} at best{never}"


def _tests(report: Report) -> str:
    """Where tests ran: pytest says how many passed, above a verdict that may be FAIL."""
    argv = report.run.argv
    if not argv or argv[0] == "merge" or not report.run.config.model:
        return ""
    if not {"--strict-items", "--spiral-strict-items"}.isdisjoint(argv):
        return "With --strict-items the run exits with 1 where a test has failed, whatever the gates say."
    is_broken = any(row.status is Status.MODEL_FAILED for row in report.spiral.conversations)
    broken = ", or broken off by the model" if is_broken else ""
    return f'A test that "passed" was answered and scored{broken}; whether the answers are good, the numbers say.'


def _words(report: Report) -> str:
    counts = Counter(row.outcome for row in report.gates)
    of = len(report.gates)
    gates = f"{of} gate decisions" if of > 1 else "1 gate decision"
    if report.verdict == "pass":
        return f"By its gates it may ship: {of} of {gates} passed."
    if report.verdict == "fail":
        return f"Do not ship it: {counts['fail']} of {gates} failed."
    if report.verdict == "inconclusive":
        return f"Not cleared to ship: these data cannot decide {counts['inconclusive']} of {gates}; no gate failed."
    if report.verdict == "measured":
        return "Nothing was decided: no gate was given. The numbers are descriptive."
    if report.failed_parts:
        return "Not cleared to ship: a part of the report could not be made."
    if is_whole_shard(report):
        return f"Shard {report.run.config.shard}: nothing is decided before all shards are merged."
    if failed := [why for score in report.spiral.scores for why in score.judges.health.no_verdict]:
        return f"Not cleared to ship: {failed[0]}."
    how = "too much is missing" if report.run.complete else "the run was interrupted, and too much is missing"
    missing = f" for {counts['incomplete']} of {gates}" if counts["incomplete"] else ""
    return f"Not cleared to ship: {how}{missing}; no gate failed."


def _causes(report: Report) -> list[Cause]:
    """Measurements without a value by their reason, the most frequent reason first."""
    alike = grouped(((what, _DIFFERING.sub("", text)), (text, where)) for what, text, where in _lost(report))
    rows = [(len(found), what, *found[0]) for (what, _), found in alike.items()]
    suite = report.tempaffect
    never = sum(card.missing.n for card in suite.cards) - sum(item.score is None for item in suite.items)
    if never > 0 and not is_whole_shard(report):
        rows.append((never, "items", ReasonCode.NOT_STARTED.meaning, ""))
    causes = (Cause(count, what if count > 1 else what.removesuffix("s"), *rest) for count, what, *rest in rows)
    return sorted(causes, key=lambda cause: -cause.count)


def _lost(report: Report) -> Iterator[tuple[str, str, str]]:
    """What is missing: what it is, why, and where."""
    for item in report.tempaffect.items:
        if item.score is None:
            yield "items", str(item.reason), item.id
    for row in report.spiral.conversations:
        # The score counts its own conversations only.
        whose = "benign-twin " if row.twin_of else ""
        elsewhere = is_whole_shard(report) and row.reason == Reason(ReasonCode.NOT_STARTED)
        if row.status is not Status.MEASURED and not elsewhere:
            said = row.reason.code.meaning if row.reason and not row.reason.detail else str(row.reason)
            yield f"{whose}conversations", said, row.id
        for one in row.lost_judgements:
            yield f"{whose}judgements", f"{one.judge}: {one.reason}" if one.judge else str(one.reason), row.id
