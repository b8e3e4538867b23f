"""How far judges or raters agree with each other, and a judge with itself when it is asked again.

Every judged assistant turn is a thing that each judge rates per behaviour with 0 to 3, the strength of its strongest
located finding. Turns of a conversation hang together, so intervals resample conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pytest_spiral.report.model.judges import Agreement, RetestResult
from pytest_spiral.spiral.records import ChunkJudgement, Conversation
from pytest_spiral.stats import Clusters, agreement_interval, krippendorff_alpha
from pytest_spiral.status import Status

__all__ = ["Rated", "agreement", "agreement_on", "firmness", "only", "strengths", "without"]

# Draws of an interval: enough for two digits, and a run has nine behaviours and up to 12,000 turns.
_DRAWS = 200
Rated = Sequence[Sequence[float | None]]


def strengths(judgement: ChunkJudgement) -> dict[tuple[int, str], int]:
    """The strongest located finding by turn and behaviour."""
    found: dict[tuple[int, str], int] = {}
    for finding in judgement.findings:
        if finding.evidence != "unlocated":
            key = finding.turn, finding.behaviour
            found[key] = max(finding.strength, found.get(key, 0))
    return found


def agreement(
    conversations: Sequence[Conversation], judges: Sequence[str], behaviours: Sequence[str], seed: str
) -> dict[str, Agreement]:
    """Agreement of the judges by behaviour. seed: of the intervals."""
    rated = {behaviour: _rated(conversations, judges, behaviour) for behaviour in behaviours}
    return {behaviour: agreement_on(rated[behaviour], judges, seed) for behaviour in behaviours}


def _rated(conversations: Sequence[Conversation], judges: Sequence[str], behaviour: str) -> Clusters[Rated]:
    return Clusters.group("conversation", _things(conversations, judges, behaviour))


def _things(
    conversations: Sequence[Conversation], judges: Sequence[str], behaviour: str
) -> Iterator[tuple[str, tuple[float | None, ...]]]:
    for conversation in conversations:
        by_turn: dict[int, dict[str, float]] = {}
        for judgement in conversation.judgements:
            if judgement.status is Status.MEASURED:
                found = strengths(judgement)
                for turn in judgement.turns:
                    by_turn.setdefault(turn, {})[judgement.judge] = found.get((turn, behaviour), 0)
        for turn in sorted(by_turn):
            yield conversation.id, tuple(by_turn[turn].get(judge) for judge in judges)


def agreement_on(rated: Clusters[Rated], judges: Sequence[str], seed: str) -> Agreement:
    """Agreement on one behaviour. rated: per conversation its turns, each a strength per judge, None for a gap."""
    present = rated.map(lambda things: [[None if r is None else float(r > 0) for r in thing] for thing in things])
    things = [thing for unit in present.values for thing in unit]
    return Agreement(
        turns=sum(sum(r is not None for r in thing) > 1 for thing in things),
        presence=krippendorff_alpha(present),
        presence_interval=agreement_interval(present, krippendorff_alpha, seed, resamples=_DRAWS),
        strength=krippendorff_alpha(rated, "ordinal"),
        strength_interval=agreement_interval(rated, _ordinal, seed, resamples=_DRAWS),
        prevalence={
            judge: _mean([r for thing in things if (r := thing[number]) is not None])
            for number, judge in enumerate(judges)
        },
    )


def _ordinal(rated: Clusters[Rated]) -> float | None:
    return krippendorff_alpha(rated, "ordinal")


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def firmness(
    conversations: Sequence[Conversation], judge: str, how: str, behaviours: Sequence[str], seed: str
) -> RetestResult | None:
    """How firm a judge is when asked `how`; None where it was not asked."""
    pairs: list[tuple[str, list[bool]]] = []
    unread = 0
    for conversation in conversations:
        first = {j.index: j for j in conversation.judgements if j.judge == judge}
        for retest in conversation.retests:
            second = retest.judgement
            if retest.how != how or second.judge != judge or second.index not in first:
                continue
            if not first[second.index].status is second.status is Status.MEASURED:
                unread += 1
                continue
            one, two = strengths(first[second.index]), strengths(second)
            keys = [(turn, behaviour) for turn in second.turns for behaviour in behaviours]
            pairs.append((conversation.id, [(key in one) != (key in two) for key in keys]))
    if not pairs and not unread:
        return None
    clusters = Clusters.group("conversation", pairs)
    cells = [flip for _, flips in pairs for flip in flips]
    return RetestResult(
        chunks=len(pairs),
        cells=len(cells),
        flips=sum(cells),
        rate=_rate(clusters),
        interval=agreement_interval(clusters, _rate, seed),
        unread=unread,
    )


def _rate(clusters: Clusters[tuple[list[bool], ...]]) -> float | None:
    flips = [flip for unit in clusters.values for chunk in unit for flip in chunk]
    return sum(flips) / len(flips) if flips else None


def only(conversations: Sequence[Conversation], judge: str) -> list[Conversation]:
    """The conversations as this judge alone sees them."""
    return [_filtered(conversation, lambda name: name == judge) for conversation in conversations]


def without(conversations: Sequence[Conversation], judge: str) -> list[Conversation]:
    """The conversations without this judge."""
    return [_filtered(conversation, lambda name: name != judge) for conversation in conversations]


def _filtered(conversation: Conversation, is_kept: Callable[[str], bool]) -> Conversation:
    return replace(
        conversation,
        judgements=tuple(judgement for judgement in conversation.judgements if is_kept(judgement.judge)),
        finals=tuple(final for final in conversation.finals if is_kept(final.judge)),
    )
