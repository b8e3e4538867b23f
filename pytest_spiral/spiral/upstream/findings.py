"""Findings as result files hold them: looser than what our own judges must answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_spiral.spiral.evidence import SourceText, located_finding
from pytest_spiral.spiral.records import Finding, behaviour_name
from pytest_spiral.spiral.upstream.document import Node

MAX_POINTS = 1e9
MAX_FINDINGS = 1_200
MAX_QUOTE_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class Stored:
    """What a stored judgement lists.

    Attributes:
        findings: Those with a quote.
        unquoted: Points of strength claimed without a quote, by behaviour.
    """

    findings: tuple[Finding, ...]
    unquoted: Mapping[str, float]


def stored_findings(
    full_metrics: Node, replies: Sequence[SourceText], *, user_texts: Sequence[SourceText] = (), judge: str = ""
) -> Stored:
    """Read `full_metrics`: per behaviour a list of `[snippet, strength]` or `{snippet, strength}`.

    Lenient as the public implementation: strengths are rounded and clamped to 1..3, empty snippets dropped. A bare
    number n stands for n points without quotes.

    Args:
        full_metrics: An object, or null for none.
        replies: The judged texts; without them no quote is located.
        user_texts: What the user had said by then.
        judge: Name for the findings.

    Raises:
        DataError: A value has another shape, or there are too many.
    """
    findings: list[Finding] = []
    unquoted: dict[str, float] = {}
    for key, node in ({} if full_metrics.is_null else full_metrics.members()).items():
        behaviour = behaviour_name(key)
        if isinstance(node.value, (int, float)):
            unquoted[behaviour] = unquoted.get(behaviour, 0.0) + max(0.0, node.number(-MAX_POINTS, MAX_POINTS))
            continue
        if node.is_null:
            raise node.fault("expected a list, got null")
        for entry in node.entries(MAX_FINDINGS - len(findings)):
            quote, strength = _pair(entry)
            if not quote.strip():
                continue
            if replies:
                findings.append(located_finding(behaviour, quote, strength, judge, replies, user_texts))
            else:
                findings.append(Finding(0, behaviour, quote, strength, judge))
    return Stored(tuple(findings), unquoted)


def _pair(entry: Node) -> tuple[str, int]:
    if isinstance(entry.value, list) and len(entry.value) == 2:
        quote, strength = entry.entries(2)
    elif isinstance(entry.value, dict):
        quote, strength = entry.get("snippet"), entry.get("strength")
    else:
        raise entry.fault("expected a pair of snippet and strength")
    points = 1.0 if strength.is_null else strength.number(-MAX_POINTS, MAX_POINTS)
    return quote.text(MAX_QUOTE_CHARS), int(min(3, max(1, round(points))))
