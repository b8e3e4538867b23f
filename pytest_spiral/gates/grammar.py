"""The gate language: a grammar, a recursive-descent parser, and errors that point at the column.

gate   = path ( ">=" | "<=" ) bound
path   = suite [ "[" name "]" ] "." name { "." name }
bound  = term { ( "+" | "-" ) term }
term   = number | "baseline" | ( "+" | "-" ) term | "(" bound ")"
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

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)|(?P<mark>[.\[\]()+-])"
    rf"|(?P<op>{'|'.join(map(re.escape, OPERATORS))}))"
)
_EXPECTED_OPERATOR = " or ".join(map(repr, OPERATORS))
_MAX_LENGTH = 500
_MAX_DEPTH = 20
_MAX_NUMBER = 1e9
_Linear = tuple[int, float]
"""A bound: so many times the baseline, plus a constant."""


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
    """Recursive descent; `_at` is where the next token begins or the white space before it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def gate(self) -> Gate:
        if len(self._text) > _MAX_LENGTH:
            self._fail(f"at most {_MAX_LENGTH} characters", _MAX_LENGTH)
        suite, qualifier, metric = self._path()
        written = self._take("op", _EXPECTED_OPERATOR)
        op = next(known for known in OPERATORS if known == written)
        start = self._start()
        times, threshold = self._bound()
        if self._text[self._at :].strip():
            self._fail("'+', '-' or the end of the gate")
        if times not in (0, 1):
            self._fail("a bound that contains the baseline at most once", start)
        return Gate(
            expr=self._text.strip(),
            suite=suite,
            qualifier=qualifier,
            metric=metric,
            op=op,
            threshold=threshold,
            relative=times == 1,
        )

    def _path(self) -> tuple[str, str | None, str]:
        suite = self._take("name", "a suite name such as 'tempaffect'")
        qualifier = None
        if self._skip("["):
            qualifier = self._take("name", "a prompting mode such as 'raw'")
            self._expect("]")
        names = []
        while self._skip("."):
            names.append(self._take("name", "a metric name"))
        if not names:
            self._fail("'.' and a metric name")
        if re.match(r"-[A-Za-z]", self._text[self._at :]):
            self._fail(f"{_EXPECTED_OPERATOR} (names are written with underscores)")
        return suite, qualifier, ".".join(names)

    def _bound(self, depth: int = 1) -> _Linear:
        times, constant = self._term(depth)
        while (plus := self._skip("+")) or self._skip("-"):
            sign = 1 if plus else -1
            more_times, more = self._term(depth)
            times, constant = times + sign * more_times, constant + sign * more
        return times, constant

    def _term(self, depth: int) -> _Linear:
        if depth > _MAX_DEPTH:
            self._fail(f"at most {_MAX_DEPTH} nested signs and parentheses")
        if self._skip("("):
            inner = self._bound(depth + 1)
            self._expect(")")
            return inner
        for mark, sign in (("+", 1), ("-", -1)):
            if self._skip(mark):
                times, constant = self._term(depth + 1)
                # Adding 0 makes -0 the ordinary zero.
                return sign * times, 0.0 + sign * constant
        if self._skip("baseline"):
            return 1, 0.0
        start = self._start()
        value = float(self._take("number", "a number or 'baseline'"))
        if value > _MAX_NUMBER:
            self._fail("a number of at most a billion", start)
        return 0, value

    def _take(self, kind: str, expected: str) -> str:
        """The next token, which must be of this kind."""
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup != kind:
            self._fail(expected)
        self._at = match.end()
        return match.group(kind)

    def _skip(self, text: str) -> bool:
        """Whether the next token reads like this; if so it is taken."""
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.group(str(match.lastgroup)) != text:
            return False
        self._at = match.end()
        return True

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            self._fail(f"{mark!r}")

    def _start(self) -> int:
        """Where the next token begins."""
        rest = self._text[self._at :]
        return self._at + len(rest) - len(rest.lstrip())

    def _fail(self, expected: str, at: int | None = None) -> NoReturn:
        column = (self._start() if at is None else at) + 1
        shown = self._text if len(self._text) <= _MAX_LENGTH else f"{self._text[:60]}..."
        raise ConfigError(f"--gate {shown!r}: expected {expected} at column {column}")


def check_metric(
    gate: Gate,
    suites: Collection[str],
    qualifiers: Collection[str],
    metrics: Mapping[str, Scale],
    baseline: bool = True,
) -> None:
    """Reject a gate that can never be decided in a run with these suites, prompting modes, metrics of the gate's suite.

    Raises:
        ConfigError: Listing what exists.
    """
    where = f"--gate {gate.expr!r}"
    if gate.suite not in suites:
        raise ConfigError(f"{where}: no suite {gate.suite!r} in this run; there is {', '.join(sorted(suites))}")
    if gate.qualifier is not None and gate.qualifier not in qualifiers:
        known = ", ".join(sorted(qualifiers)) or "none for this suite"
        raise ConfigError(f"{where}: no prompting mode {gate.qualifier!r} here; there is {known}")
    if gate.metric not in metrics:
        close = get_close_matches(gate.metric, metrics, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        known = ", ".join(f"{gate.suite}.{name}" for name in sorted(metrics))
        raise ConfigError(f"{where}: no metric {gate.metric!r}{hint}; known metrics: {known}")
    if gate.relative and not baseline:
        raise ConfigError(f"{where}: there is no baseline; name one with --baseline reports/RUN-ID")
    low, high = metrics[gate.metric]
    if gate.relative:
        low, high = low - high, high - low
    if not low <= gate.threshold <= high:
        what = "the difference to the baseline" if gate.relative else gate.path
        raise ConfigError(f"{where}: {what} lies between {low:g} and {high:g}, never at {gate.threshold:g}")
