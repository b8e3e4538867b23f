"""The gate language and its decision. A gate answers pass, fail or inconclusive; never more than the data can bear.

gate   = path op number
path   = suite [ "[" mode "]" ] { "." name }
op     = ">=" | "<="
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from pytest_spiral.errors import ConfigError
from pytest_spiral.stats import Interval, bca, clopper_pearson

__all__ = ["Decision", "Gate", "Outcome", "Policy", "Sample", "check_metric", "compare", "decide", "parse_gate"]

Outcome = Literal["pass", "fail", "inconclusive", "incomplete"]
Policy = Literal["bound", "point"]
# One-sided 95 % bounds are the ends of a two-sided 90 % interval.
_TWO_SIDED = 0.90

_TOKENS = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+))|(?P<op>>=|<=)|(?P<mark>[.\[\]]))"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """A parsed gate. qualifier: what stood in brackets, None for all cards. metric: path without suite."""

    expr: str
    suite: str
    qualifier: str | None
    metric: str
    op: Literal[">=", "<="]
    threshold: float


def parse_gate(expr: str) -> Gate:
    """Parse one gate. Raises `ConfigError` pointing at the column."""
    reader = _Reader(expr)
    suite = reader.take("name", "a suite name such as 'tempaffect'")
    qualifier = None
    if reader.peek() == ("mark", "["):
        reader.take("mark", "'['")
        qualifier = reader.take("name", "a prompting mode such as 'raw'")
        reader.expect("mark", "]")
    names = []
    while reader.peek() == ("mark", "."):
        reader.take("mark", "'.'")
        names.append(reader.take("name", "a metric name"))
    if not names:
        raise reader.error("'.' and a metric name")
    op = reader.take("op", "'>=' or '<='")
    threshold = float(reader.take("number", "a number"))
    reader.end()
    return Gate(expr.strip(), suite, qualifier, ".".join(names), ">=" if op == ">=" else "<=", threshold)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def peek(self) -> tuple[str, str] | None:
        match = _TOKENS.match(self._text, self._at)
        if match is None:
            return None
        kind = str(match.lastgroup)
        return kind, match.group(kind)

    def take(self, kind: str, wanted: str) -> str:
        match = _TOKENS.match(self._text, self._at)
        if match is None or match.lastgroup != kind:
            raise self.error(wanted)
        self._at = match.end()
        return match.group(kind)

    def expect(self, kind: str, text: str) -> None:
        if self.peek() != (kind, text):
            raise self.error(f"{text!r}")
        self.take(kind, text)

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self.error("the end of the gate")

    def error(self, wanted: str) -> ConfigError:
        column = len(self._text) - len(self._text[self._at :].lstrip()) + 1
        return ConfigError(f"--gate {self._text!r}: expected {wanted} at column {column}")


def check_metric(gate: Gate, suites: Collection[str], qualifiers: Collection[str], metrics: Collection[str]) -> None:
    """Raise `ConfigError` listing what exists where a gate names something that does not."""
    if gate.suite not in suites:
        raise ConfigError(
            f"--gate {gate.expr!r}: no suite {gate.suite!r} in this run; there is {', '.join(sorted(suites))}"
        )
    if gate.qualifier is not None and gate.qualifier not in qualifiers:
        raise ConfigError(
            f"--gate {gate.expr!r}: no prompting mode {gate.qualifier!r} here; there is {', '.join(sorted(qualifiers))}"
        )
    if gate.metric not in metrics:
        close = get_close_matches(gate.metric, metrics, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        known = ", ".join(f"{gate.suite}.{name}" for name in sorted(metrics))
        raise ConfigError(f"--gate {gate.expr!r}: no metric {gate.metric!r}{hint}; known metrics: {known}")


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements behind one metric of one card.

    units: one entry per cluster; statistic: from units to the metric's value.
    binary: units are all 0.0 or 1.0 and the statistic is their mean.
    missing: clusters that were to be measured and were not. worst, best: the units they would be at the extremes of the
    metric's scale, low end first; empty where the statistic has no such extremes.
    """

    units: Sequence[Any]
    statistic: Callable[[Sequence[Any]], float]
    binary: bool
    missing: int
    extremes: tuple[Any, Any] | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a gate on one card. low, high: one-sided 95 % bounds."""

    outcome: Outcome
    value: float | None
    low: float | None
    high: float | None
    method: str
    worst_case: Outcome | None
    best_case: Outcome | None


def decide(gate: Gate, sample: Sample, policy: Policy, draws: Callable[[int], Sequence[Sequence[int]]]) -> Decision:
    """Decide a gate. What is missing counts once as worst and once as best: pass only if the worst case passes,
    fail only if the best case fails. draws: bootstrap index lists for a number of units."""
    if not sample.units:
        return Decision("incomplete", None, None, None, "", None, None)
    value, interval = _measure(sample.units, sample, draws)
    if not sample.missing:
        outcome = compare(gate, value, interval.low, interval.high, policy)
        return Decision(outcome, value, interval.low, interval.high, interval.method, outcome, outcome)
    if sample.extremes is None:
        return Decision("inconclusive", value, interval.low, interval.high, interval.method, None, None)
    outcomes = []
    for extreme in sample.extremes if gate.op == ">=" else reversed(sample.extremes):
        at, bounds = _measure([*sample.units, *[extreme] * sample.missing], sample, draws)
        outcomes.append(compare(gate, at, bounds.low, bounds.high, policy))
    worst, best = outcomes
    outcome = "pass" if worst == "pass" else "fail" if best == "fail" else "inconclusive"
    return Decision(outcome, value, interval.low, interval.high, interval.method, worst, best)


def _measure(
    units: Sequence[Any], sample: Sample, draws: Callable[[int], Sequence[Sequence[int]]]
) -> tuple[float, Interval]:
    value = sample.statistic(units)
    if sample.binary:
        return value, clopper_pearson(round(sum(units)), len(units), _TWO_SIDED)
    return value, bca(units, sample.statistic, draws(len(units)), _TWO_SIDED)


def compare(gate: Gate, value: float, low: float, high: float, policy: Policy) -> Outcome:
    """Outcome of a gate on a value with its one-sided 95 % bounds."""
    if policy == "point":
        low = high = value
    if gate.op == ">=":
        return "pass" if low >= gate.threshold else "fail" if high < gate.threshold else "inconclusive"
    return "pass" if high <= gate.threshold else "fail" if low > gate.threshold else "inconclusive"
