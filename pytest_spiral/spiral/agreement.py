"""How far judges agree with each other, and a judge with itself when it is asked again.

Each judge rates every judged assistant turn per behaviour with 0 to 3, the strength of its strongest located finding.
Turns of a conversation are not independent, so intervals resample conversations. Nothing here is part of a score.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from pytest_spiral.grouping import grouped
from pytest_spiral.report.model.judges import Agreement, RetestResult
from pytest_spiral.spiral.counted import strongest
from pytest_spiral.spiral.places import places
from pytest_spiral.spiral.records import ChunkJudgement, Conversation
from pytest_spiral.stats import Clusters, agreement_interval, coincidences, krippendorff_alpha
from pytest_spiral.stats.agreement import Ratings
from pytest_spiral.status import Status

# Draws of an interval: enough for two digits, and a run has nine behaviours and up to 12,000 turns.
_DRAWS = 200


def strengths(judgement: ChunkJudgement, *, presumed: bool = False) -> dict[tuple[int, str], int]:
    """The strongest located finding by turn and behaviour. presumed: also those that nobody is known to have said."""
    return strongest(
        found for found in judgement.findings if found.evidence != "unlocated" or (presumed and found.is_open)
    )


def seen_in(judgement: ChunkJudgement | None) -> dict[str, int] | None:
    """The highest strength by behaviour in a judgement of one turn; None where there is no readable one."""
    if judgement is None or judgement.status is not Status.MEASURED:
        return None
    return {behaviour: strength for (_, behaviour), strength in sorted(strengths(judgement).items())}


def agreement(
    conversations: Sequence[Conversation], judges: Sequence[str], behaviours: Sequence[str], seed: str
) -> dict[str, Agreement]:
    """Agreement of the judges by behaviour. seed: of the intervals."""
    turns: list[tuple[str, int, Mapping[str, Mapping[tuple[int, str], int]]]] = []
    for conversation in conversations:
        by_turn: dict[int, dict[str, Mapping[tuple[int, str], int]]] = defaultdict(dict)
        for judgement in conversation.judgements:
            if judgement.status is Status.MEASURED:
                seen = strengths(judgement)
                for turn in judgement.turns:
                    by_turn[turn][judgement.judge] = seen
        turns += [(conversation.id, turn, by_turn[turn]) for turn in sorted(by_turn)]
    places_found, by_majority = _majorities(conversations, judges)
    result = {}
    for behaviour in behaviours:
        rows = (
            (name, tuple(float(by_judge[j].get((turn, behaviour), 0)) if j in by_judge else None for j in judges))
            for name, turn, by_judge in turns
        )
        on = agreement_on(Clusters.group("conversation", rows), judges, seed)
        found = places_found[behaviour]
        result[behaviour] = on.model_copy(update={"majority": by_majority[behaviour] / found if found else None})
    return result


def _majorities(conversations: Sequence[Conversation], judges: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """By behaviour the places with a finding, and those at which more than half of the chunk's judges have one."""
    found, by_majority = Counter[str](), Counter[str]()
    for conversation in conversations:
        measured = (one for one in conversation.judgements if one.status is Status.MEASURED and one.judge in judges)
        chunks = grouped((judgement.index, judgement) for judgement in measured)
        for judgements in chunks.values():
            answered = len({judgement.judge for judgement in judgements})
            if answered > 1:
                for place in places(finding for judgement in judgements for finding in judgement.findings):
                    found[place[0].behaviour] += 1
                    by_majority[place[0].behaviour] += 2 * len({finding.judge for finding in place}) > answered
    return found, by_majority


def agreement_on(rated: Clusters[Ratings], judges: Sequence[str], seed: str) -> Agreement:
    """Agreement on one behaviour. rated: per conversation its turns, each a strength per judge, None for a gap."""
    present = rated.map(lambda turns: [tuple(None if r is None else float(r > 0) for r in turn) for turn in turns])
    turns = [turn for unit in present.values for turn in unit]
    prevalence = {}
    for number, judge in enumerate(judges):
        given = [r for turn in turns if (r := turn[number]) is not None]
        prevalence[judge] = fmean(given) if given else None
    by_presence, by_strength = coincidences(present), coincidences(rated)
    ordinal = partial(krippendorff_alpha, level="ordinal")
    return Agreement(
        turns=sum(sum(r is not None for r in turn) > 1 for turn in turns),
        presence=krippendorff_alpha(by_presence),
        presence_interval=agreement_interval(by_presence, krippendorff_alpha, seed, resamples=_DRAWS),
        strength=ordinal(by_strength),
        strength_interval=agreement_interval(by_strength, ordinal, seed, resamples=_DRAWS),
        prevalence=prevalence,
    )


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
    # Flips and cells of each conversation.
    counts = Clusters.group("conversation", pairs).map(lambda chunks: (sum(map(sum, chunks)), sum(map(len, chunks))))
    return RetestResult(
        chunks=len(pairs),
        cells=sum(cells for _, cells in counts.values),
        flips=sum(flips for flips, _ in counts.values),
        rate=_flip_rate(counts),
        interval=agreement_interval(counts, _flip_rate, seed),
        unread=unread,
    )


def _flip_rate(counts: Clusters[tuple[int, int]]) -> float | None:
    cells = sum(cells for _, cells in counts.values)
    return sum(flips for flips, _ in counts.values) / cells if cells else None


def judged_by(conversations: Sequence[Conversation], is_kept: Callable[[str], bool]) -> list[Conversation]:
    """The conversations as the judges with these names see them."""
    return [
        replace(
            conversation,
            judgements=tuple(judgement for judgement in conversation.judgements if is_kept(judgement.judge)),
            finals=tuple(final for final in conversation.finals if is_kept(final.judge)),
        )
        for conversation in conversations
    ]
