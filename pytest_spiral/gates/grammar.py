"""The gate language, its parser, and errors that point at the column.

gate   = path ( ">=" | "<=" ) bound
path   = suite [ "[" mode "]" ] "." name { "." name }
bound  = [ "+" | "-" ] number | "baseline" [ ( "+" | "-" ) number ]
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NoReturn, get_args

from pytest_spiral.errors import ConfigError

__all__ = ["OPERATORS", "Gate", "Scale", "check_metric", "parse_gate"]

Scale = tuple[float, float]
"""Least and greatest value a metric can have; infinite where there is none."""

Operator = Literal[">=", "<="]
OPERATORS: tuple[Operator, ...] = get_args(Operator)

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_NUMBER = r"[0-9]+\.?[0-9]*|\.[0-9]+"
_MAX_LENGTH = 500
_MAX_NUMBER = 1e9


@dataclass(frozen=True, slots=True)
class Gate:
    """A parsed gate.

    Attributes:
        expr: The gate as written.
        suite: Suite of the metric.
        qualifier: Prompting mode in brackets; None for all cards.
        metric: Path of the metric, without the suite.
        op: How the metric is compared with the threshold.
        threshold: For a relative gate, what candidate minus baseline is compared with.
        relative: Whether the bound contains the baseline.
    """

    expr: str
    suite: str
    qualifier: str | None
    metric: str
    op: Operator
    threshold: float
    relative: bool = False

    @property
    def path(self) -> str:
        """Suite and metric."""
        return f"{self.suite}.{self.metric}"

    @property
    def at_least(self) -> bool:
        """Whether the threshold is the least value that passes; otherwise it is the greatest."""
        return self.op == ">="


def parse_gate(expr: str) -> Gate:
    """Parse one gate. Raises `ConfigError` naming the column, counted from 1."""
    return _Parser(expr).gate()


class _Parser:
    """Takes one token after the other; `_at` is where the next one begins or the white space before it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def gate(self) -> Gate:
        if len(self._text) > _MAX_LENGTH:
            self._fail(f"at most {_MAX_LENGTH} characters", _MAX_LENGTH)
        suite = self._take(_NAME, "a suite name such as 'tempaffect'")
        qualifier = None
        if self._skip(r"\["):
            qualifier = self._take(_NAME, "a prompting mode such as 'raw'")
            self._take("]", "']'")
        names = []
        while self._skip(r"\."):
            names.append(self._take(_NAME, "a metric name"))
        if not names:
            self._fail("'.' and a metric name")
        hint = " (names are written with underscores)" if re.match("-[A-Za-z]", self._text[self._at :]) else ""
        op = next((op for op in OPERATORS if self._skip(re.escape(op))), None)
        if op is None:
            self._fail(f"{' or '.join(map(repr, OPERATORS))}{hint}")
        relative, threshold = self._bound()
        return Gate(self._text.strip(), suite, qualifier, ".".join(names), op, threshold, relative)

    def _bound(self) -> tuple[bool, float]:
        """Whether it contains the baseline, and the number."""
        relative = self._skip(r"baseline\b") != ""
        sign = self._skip("[+-]")
        if relative and not sign:
            self._end("'+', '-' or the end of the gate")
            return True, 0.0
        written = self._take(_NUMBER, "a number" if sign else "a number or 'baseline'")
        number = float(written)
        if number > _MAX_NUMBER:
            self._fail("a number of at most a billion", self._at - len(written))
        is_turned = not relative and re.match(r"\s*\+\s*baseline\b", self._text[self._at :])
        self._end("the end of the gate" + f" (write 'baseline {sign or '+'} {written}')" * bool(is_turned))
        return relative, 0.0 - number if sign == "-" else number

    def _end(self, expected: str) -> None:
        if self._text[self._at :].strip():
            self._fail(expected)

    def _take(self, pattern: str, expected: str) -> str:
        """The next token, which must match."""
        return self._skip(pattern) or self._fail(expected)

    def _skip(self, pattern: str) -> str:
        """The next token, if it matches; otherwise nothing, and it is left where it is."""
        match = re.compile(rf"\s*({pattern})").match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[1]

    def _fail(self, expected: str, at: int | None = None) -> NoReturn:
        if at is None:
            at = len(self._text) - len(self._text[self._at :].lstrip())
        shown = self._text if len(self._text) <= _MAX_LENGTH else f"{self._text[:60]}..."
        raise ConfigError(f"--gate {shown!r}: expected {expected} at column {at + 1}")


def check_metric(
    gate: Gate,
    suites: Collection[str],
    qualifiers: Collection[str],
    metrics: Mapping[str, Scale],
    baseline: bool = True,
) -> None:
    """Reject a gate that can never be decided in a run with these suites, prompting modes, metrics of the gate's suite.

    Raises:
        ConfigError: Naming what exists, of many metrics the nearest.
    """
    where = f"--gate {gate.expr!r}"
    if gate.suite not in suites:
        raise ConfigError(f"{where}: no suite {gate.suite!r} in this run; there is {', '.join(sorted(suites))}")
    if gate.qualifier is not None and gate.qualifier not in qualifiers:
        known = ", ".join(sorted(qualifiers)) or "none for this suite"
        raise ConfigError(f"{where}: no prompting mode {gate.qualifier!r} here; there is {known}")
    if gate.metric not in metrics:
        near = ", ".join(f"{gate.suite}.{name}" for name in get_close_matches(gate.metric, metrics, n=4, cutoff=0.0))
        every = "`pytest --help` ends with all of the default protocol"
        raise ConfigError(f"{where}: no metric {gate.metric!r}; nearest: {near}; {every}")
    if gate.relative and not baseline:
        raise ConfigError(f"{where}: there is no baseline; name one with --baseline=reports/RUN-ID")
    low, high = metrics[gate.metric]
    if gate.relative:
        low, high = low - high, high - low
    if not low <= gate.threshold <= high:
        what = "the difference to the baseline" if gate.relative else gate.path
        raise ConfigError(f"{where}: {what} lies between {low:g} and {high:g}, never at {gate.threshold:g}")
