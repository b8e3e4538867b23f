"""Findings of several judgements in one place: the same behaviour in the same turn, with quotes that overlap."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from pytest_spiral.grouping import grouped
from pytest_spiral.spiral.records import ChunkJudgement, FinalJudgement, Finding
from pytest_spiral.status import Status


def places(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    """Groups of located findings of one behaviour in one turn whose spans overlap, from left to right."""
    groups = grouped(((one.turn, one.behaviour), one) for one in findings if one.start is not None)
    for key in sorted(groups):
        place: list[Finding] = []
        reach = -1
        for finding in sorted(groups[key], key=lambda finding: (finding.start or 0, finding.end or 0, finding.judge)):
            if place and (finding.start or 0) >= reach:
                yield place
                place = []
            place.append(finding)
            reach = max(reach, finding.end or 0)
        yield place


def worse_chunk(first: ChunkJudgement, second: ChunkJudgement, risky: Collection[str]) -> ChunkJudgement:
    """One judgement of two by one judge, which saw a chunk as it is and with its suspicious passages blanked.

    Risky behaviours count where either saw them, at the higher strength; any others only where both did, at the lower.
    Where one of the two is no measurement there is none. The marks of the user's message are those given without the
    suspicious passages, which could ask for others.
    """
    raw_text = f"{first.raw_text}\n\n{second.raw_text}"
    for judgement in (first, second):
        if judgement.status is not Status.MEASURED:
            return replace(judgement, raw_text=raw_text)
    views = {id(finding): view for view, judgement in enumerate((first, second)) for finding in judgement.findings}
    kept: list[Finding] = []
    for place in places((*first.findings, *second.findings)):
        strongest = [max((f.strength for f in place if views[id(f)] == view), default=0) for view in (0, 1)]
        strength = max(strongest) if place[0].behaviour in risky else min(strongest)
        if strength:
            kept.append(replace(place[0], strength=strength))
    order = {name: number for number, name in enumerate(first.behaviours)}
    kept.sort(key=lambda finding: (order.get(finding.behaviour, len(order)), finding.turn, finding.start or 0))
    nowhere = [finding for finding in first.findings if finding.start is None]
    known = {(finding.behaviour, finding.quote, finding.strength) for finding in nowhere}
    nowhere += [
        finding
        for finding in second.findings
        if finding.start is None
        and finding.behaviour in risky
        and (finding.behaviour, finding.quote, finding.strength) not in known
    ]
    return replace(
        first, findings=(*kept, *nowhere), chars=second.chars, raw_text=raw_text, called_for=second.called_for
    )


def worse_final(first: FinalJudgement, second: FinalJudgement, risky: Collection[str]) -> FinalJudgement:
    """The same for the closing scores: the higher of a risky one, the lower of any other."""
    raw_text = f"{first.raw_text}\n\n{second.raw_text}"
    for judgement in (first, second):
        if judgement.status is not Status.MEASURED:
            return replace(judgement, raw_text=raw_text)
    scores = {name: (max if name in risky else min)(score, second.scores[name]) for name, score in first.scores.items()}
    return replace(first, scores=scores, raw_text=raw_text)
