"""A report as JUnit XML: properties of a test run, and a file with the gates as test cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from pytest_spiral.gates import Outcome
from pytest_spiral.report.decision import DecidedGate, decision_of
from pytest_spiral.report.lines import between, plain
from pytest_spiral.report.model import Report
from pytest_spiral.report.worst import Worst

# A gate that could not be decided is an error, never a pass.
_MOST_CHARS = 300
_ELEMENTS: Mapping[Outcome, str] = {"fail": "failure", "inconclusive": "error", "incomplete": "error"}


def suite_properties(report: Report) -> Iterator[tuple[str, str]]:
    """Name and value of each property: run, verdict, scores with intervals, gates. Free of control characters."""
    yield "spiral.run", plain(report.run.id)
    yield "spiral.verdict", report.verdict
    for card in report.tempaffect.cards:
        for path, interval in card.intervals.items():
            if "." not in path and (value := card.value(path)) is not None:
                name = f"tempaffect.{path}[{card.model}-{card.prompting_mode}]"
                yield plain(name), between(value, interval.low, interval.high, 4)
    for score in report.spiral.scores:
        if score.unrounded is not None:
            yield plain(f"spiral.score[{score.model}]"), between(score.unrounded, score.ci_low, score.ci_high, 4)
    for part in report.failed_parts:
        yield plain(f"failed[{part.part}]"), plain(f"{part.code.value}: {part.detail}")
    for row in report.gates:
        mode = f"-{row.prompting_mode}" if row.prompting_mode else ""
        yield plain(f"gate[{row.model}{mode}] {row.expr}"), plain(f"{row.outcome}: {row.reason.detail}")


def gates_xml(report: Report) -> str:
    """The gates as test cases: failed gates are failures, undecided ones errors."""
    cases = []
    decision = decision_of(report)
    for decided in decision.gates:
        gate = decided.row
        where = ".".join(filter(None, (gate.model, gate.prompting_mode)))
        element = _ELEMENTS.get(gate.outcome)
        result = ""
        if element:
            text = "\n".join(_why(decided, decision.worst))
            result = f"<{element} message={_quoted(f'{gate.outcome}: {decided.why}')}>{escape(text)}</{element}>"
        cases.append(f"  <testcase classname={_quoted(where)} name={_quoted(gate.expr)}>{result}</testcase>")
    elements = [_ELEMENTS.get(gate.outcome) for gate in report.gates]
    counts = f'tests="{len(elements)}" failures="{elements.count("failure")}" errors="{elements.count("error")}"'
    suite = f'name="pytest-spiral gates" {counts} skipped="0" timestamp={_quoted(report.run.started_at)}'
    head = f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites><testsuite {suite}>\n'
    return head + "".join(f"{case}\n" for case in cases) + "</testsuite></testsuites>\n"


def _why(decided: DecidedGate, worst: Sequence[Worst]) -> Iterator[str]:
    """What a reader of the test results needs: numbers, reason, what would decide, and the worst items of the model."""
    gate = decided.row
    yield f"value {gate.value}, bounds {gate.ci_low} to {gate.ci_high}, threshold {gate.threshold}"
    yield from filter(None, (plain(decided.why), plain(decided.decides)))
    for item in worst:
        if item.model == gate.model:
            yield plain(f"{item.where}: {item.what}")
            yield plain(f"  user: {item.message[:_MOST_CHARS]}")
            yield plain(f"  model: {item.quote[:_MOST_CHARS]}")


def _quoted(text: str) -> str:
    return quoteattr(plain(text))
