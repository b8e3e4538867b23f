"""From several judges of one chunk to one judgement. No judge's findings are lost: this is a view, made when scoring.

Findings are matched by turn, behaviour and overlapping span. More than half of the judges that answered must have seen
a behaviour in one place; its strength is the lower median of theirs. Two judges therefore must agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median, median_low

from pytest_spiral.records import Status
from pytest_spiral.spiral.records import ChunkJudgement, FinalJudgement, Finding

__all__ = ["CONSENSUS", "merge_chunks", "merge_finals"]

CONSENSUS = "consensus"


def merge_chunks(judgements: Sequence[ChunkJudgement]) -> tuple[ChunkJudgement, ...]:
    """One judgement per chunk, in chunk order. A chunk with one measured judgement keeps that one as it is."""
    by_chunk: dict[int, list[ChunkJudgement]] = defaultdict(list)
    for judgement in judgements:
        by_chunk[judgement.index].append(judgement)
    return tuple(_merged(by_chunk[index]) for index in sorted(by_chunk))


def _merged(judgements: Sequence[ChunkJudgement]) -> ChunkJudgement:
    ordered = sorted(judgements, key=lambda judgement: (judgement.judge, judgement.turns))
    measured = [judgement for judgement in ordered if judgement.status is Status.MEASURED]
    if len(measured) < 2:
        return measured[0] if measured else ordered[0]
    first = measured[0]
    findings = [finding for judgement in measured for finding in judgement.findings]
    return replace(
        first,
        judge=CONSENSUS,
        behaviours=tuple(dict.fromkeys(name for judgement in measured for name in judgement.behaviours)),
        findings=tuple(_agreed(findings, len(measured))),
        stated=None,
        unquoted=0,
        raw_text="",
    )


def _agreed(findings: Iterable[Finding], judges: int) -> Iterable[Finding]:
    groups: dict[tuple[int, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.start is not None:
            groups[finding.turn, finding.behaviour].append(finding)
    for key in sorted(groups):
        for place in _places(groups[key]):
            strengths: dict[str, int] = {}
            for finding in place:
                strengths[finding.judge] = max(finding.strength, strengths.get(finding.judge, 0))
            if 2 * len(strengths) > judges:
                yield replace(place[0], judge=CONSENSUS, strength=median_low(strengths.values()))


def _places(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Groups of findings whose spans overlap, from left to right."""
    places: list[list[Finding]] = []
    reach = -1
    for finding in sorted(findings, key=lambda finding: (finding.start or 0, finding.end or 0, finding.judge)):
        if places and (finding.start or 0) < reach:
            places[-1].append(finding)
        else:
            places.append([finding])
        reach = max(reach, finding.end or 0)
    return places


def merge_finals(finals: Sequence[FinalJudgement]) -> Mapping[str, float]:
    """The median score of each metric over the judges that gave one; empty where none did."""
    values: dict[str, list[float]] = defaultdict(list)
    for final in finals:
        if final.status is Status.MEASURED:
            for name, value in final.scores.items():
                values[name].append(value)
    return {name: median(scores) for name, scores in values.items()}
