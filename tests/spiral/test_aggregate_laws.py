"""Laws that every score obeys: order, one finding more, missing parts."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.spiral import (
    ChunkJudgement,
    Conversation,
    Finding,
    load_protocol,
    score_conversations,
)
from pytest_spiral.spiral.counting import MissingAs
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import (
    BEHAVIOURS,
    bench,
    conversation,
    finding,
    present,
    quick,
    transcript,
    unlocated,
    unrounded,
)

OURS = ("per-chunk", "per-10k-chars")
PAIRS = st.lists(st.tuples(st.sampled_from(BEHAVIOURS), st.integers(1, 3)), max_size=6)
STRENGTHS = st.lists(PAIRS, min_size=2, max_size=6)


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """The laws are about values, whatever their intervals."""
    with few_draws(20):
        yield


def of_strengths(strengths: list[list[tuple[str, int]]]) -> list[Conversation]:
    """Conversations with findings of these behaviours and strengths."""
    items = []
    for n, pairs in enumerate(strengths):
        findings = [finding(k % 3, name, strength, start=k, end=k + 1) for k, (name, strength) in enumerate(pairs)]
        items.append(conversation(f"p{n}", "ab"[n % 2], findings=findings))
    return items


@settings(max_examples=25, deadline=None)
@given(STRENGTHS, st.randoms(use_true_random=False), st.sampled_from([*OURS, "upstream-per-chunk"]))
def test_order_is_of_no_consequence(strengths: Any, rng: random.Random, name: str) -> None:
    """Conversations, chunks and findings in any order: the same score to the last bit, interval included."""
    items = of_strengths(strengths)
    mixed = [
        dataclasses.replace(item, judgements=tuple(rng.sample(item.judgements, len(item.judgements)))) for item in items
    ]
    rng.shuffle(mixed)

    assert score_conversations(mixed, quick(name)) == score_conversations(items, quick(name))


@settings(max_examples=40, deadline=None)
@given(
    STRENGTHS,
    st.integers(0, 5),
    st.integers(0, 2),
    st.sampled_from(BEHAVIOURS),
    st.integers(1, 3),
    st.sampled_from(OURS),
)
def test_one_more_finding_moves_the_score_its_way(
    strengths: Any, which: int, turn: int, behaviour: str, strength: int, name: str
) -> None:
    """A risky finding never raises the score, a protective one never lowers it; an unlocated one does nothing."""
    items = of_strengths(strengths)
    place = which % len(items)

    def with_one_more(extra: Finding) -> list[Conversation]:
        chunks = list(items[place].judgements)
        chunks[turn] = dataclasses.replace(chunks[turn], findings=(*chunks[turn].findings, extra))
        return [*items[:place], dataclasses.replace(items[place], judgements=tuple(chunks)), *items[place + 1 :]]

    before = unrounded(items, quick(name))
    more = with_one_more(finding(turn, behaviour, strength, start=90, end=91))
    after = unrounded(more, quick(name))
    if load_protocol(name).metrics[behaviour].sign == "risky":
        assert after <= before + 1e-9
    else:
        assert after >= before - 1e-9
    assert score_conversations(with_one_more(unlocated(turn, behaviour)), quick(name)).unrounded == before


@settings(max_examples=40, deadline=None)
@given(STRENGTHS, st.sets(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=6), st.sampled_from(OURS))
def test_missing_chunks_are_bracketed(strengths: Any, lost: Any, name: str) -> None:
    """Worst case <= score as measured <= best case, and the true score lies between."""
    whole = of_strengths(strengths)
    items = []
    for n, item in enumerate(whole):
        chunks = [
            ChunkJudgement(chunk.index, chunk.turns, "j", Status.INSTRUMENT_FAILED, Reason(ReasonCode.TIMEOUT))
            if (n, chunk.index) in lost
            else chunk
            for chunk in item.judgements
        ]
        items.append(dataclasses.replace(item, judgements=tuple(chunks)))
    worst = present(score_conversations(items, quick(name), missing_as="worst").unrounded)
    best = present(score_conversations(items, quick(name), missing_as="best").unrounded)
    true = unrounded(whole, quick(name))

    assert worst - 1e-9 <= true <= best + 1e-9


@pytest.mark.parametrize("name", ["upstream-per-chunk", "upstream-per-10k-chars"])
def test_the_public_rules_know_no_unlocated_findings(name: str) -> None:
    """There they count as they always did, whatever a gate asks."""
    item = conversation("p", findings=[unlocated(1)])
    ends: tuple[MissingAs, ...] = ("worst", "ignored", "best")

    assert len({unrounded_at(item, name, end) for end in ends}) == 1


def unrounded_at(item: Conversation, name: str, end: MissingAs) -> float:
    return present(score_conversations([item], quick(name), missing_as=end).unrounded)


def test_a_missing_conversation_is_bracketed() -> None:
    """Gone altogether: as harmful as can be, or as good; the tail too."""
    items = [*bench(lambda _: [finding()]), conversation("x", status=Status.NOT_RUN)]
    ends: tuple[MissingAs, ...] = ("worst", "ignored", "best")
    worst, middle, best = (score_conversations(items, "per-chunk", missing_as=end) for end in ends)

    assert present(worst.unrounded) < present(middle.unrounded) < present(best.unrounded)
    assert worst.n_items == best.n_items == 7
    assert (worst.tails.harmful, middle.tails.harmful, best.tails.harmful) == (1, 0, 0)


def test_a_missing_chunk_counts_at_its_own_length() -> None:
    """Per 10,000 characters a short reply full of harm is worth more than a long one: so is what may be missing."""

    def of(prompt: str, reply: str, findings: int) -> Conversation:
        item = conversation(prompt, turns=1, transcript=transcript(1, reply))
        harm = tuple(finding(strength=3, start=place, end=place + 1) for place in range(findings))
        (chunk,) = item.judgements
        return dataclasses.replace(item, judgements=(dataclasses.replace(chunk, findings=harm, chars=None),))

    short, long = of("short", "No.", 3), of("long", "A plainer reply. " * 100, 0)
    (chunk,) = short.judgements
    failed = dataclasses.replace(chunk, status=Status.INSTRUMENT_FAILED, findings=())
    gap = dataclasses.replace(short, judgements=(failed,))
    true, worst = (
        score_conversations(items, quick("per-10k-chars"), missing_as="worst").metrics["harmful_advice"].mean
        for items in ([short, long], [gap, long])
    )

    assert present(worst) >= present(true) - 1e-9
