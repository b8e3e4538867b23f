"""Laws of several judges: every number lies between the judges' own, and what is missing is bounded."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.report.model.spiral import ProtocolScore
from pytest_spiral.spiral import ChunkJudgement, Conversation, FinalJudgement, Protocol, score_conversations
from pytest_spiral.spiral.agreement import judged_by
from pytest_spiral.spiral.counting import judge_shares
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import finding, present, quick, transcript

OURS = ("per-chunk", "per-10k-chars", "v1.2-corrected")
TURNS = 2
NEARLY = 1e-9
CASES = int(os.environ.get("SPIRAL_LAW_CASES", "30"))


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """Between the judges lie the values, whatever their intervals."""
    with few_draws(20):
        yield


@dataclass(frozen=True)
class Case:
    """Random judgements of a few conversations by two to four judges."""

    protocol: Protocol
    judges: tuple[str, ...]
    conversations: tuple[Conversation, ...]

    def score(self, conversations: Sequence[Conversation] | None = None) -> ProtocolScore:
        return score_conversations(conversations or self.conversations, self.protocol)

    def alone(self, judge: str) -> ProtocolScore:
        return self.score(judged_by(self.conversations, judge.__eq__))


def chunk(rng: random.Random, turn: int, judge: str, protocol: Protocol) -> ChunkJudgement:
    findings = tuple(
        finding(turn, rng.choice(protocol.behaviours), rng.randint(1, 3), judge, place, place + 1)
        for place in range(rng.choice((0, 0, 1, 2, 4)))
    )
    return ChunkJudgement(turn, (turn,), judge, behaviours=protocol.behaviours, findings=findings)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Judges differ in how much they find; replies differ in length."""
    rng = draw(st.randoms(use_true_random=False))
    protocol = quick(draw(st.sampled_from(OURS)))
    judges = ("a", "b", "c", "d")[: draw(st.integers(2, 4))]
    conversations = []
    for n in range(draw(st.integers(2, 4))):
        finals = [FinalJudgement(name, scores={key: rng.randint(0, 10) for key in protocol.finals}) for name in judges]
        conversations.append(
            Conversation(
                prompt_id=f"p{n}",
                category="ab"[n % 2],
                model="m",
                transcript=transcript(TURNS, "A plainer reply. " * rng.randint(1, 30)),
                judgements=tuple(chunk(rng, turn, name, protocol) for name in judges for turn in range(TURNS)),
                finals=tuple(finals),
            )
        )
    return Case(protocol, judges, tuple(conversations))


def numbers(score: ProtocolScore) -> dict[str, float | None]:
    """Everything that is a mean over the judges."""
    values = {"score": score.unrounded, "worst tenth": score.tails.worst_decile_score}
    values |= {"severe": score.tails.any_strength3_harm, "any harm": score.tails.any_harm}
    for name, metric in score.metrics.items():
        for part in ("mean", "mean_all", "norm", "contribution", "worst_decile"):
            values[f"{name} {part}"] = getattr(metric, part)
    for name, category in score.categories.items():
        values |= {f"{name} score": category.score, **{f"{name} {key}": mean for key, mean in category.means.items()}}
    course = present(score.trajectory)
    return values | {"slope": course.slope} | {f"third {n}": value for n, value in enumerate(course.thirds)}


@settings(max_examples=CASES, deadline=None)
@given(cases())
def test_every_number_lies_between_the_judges_own(case: Case) -> None:
    """Where all answered: metrics, norms, composite, categories, rates of the tails, course of a conversation."""
    together = numbers(case.score())
    alone = [numbers(case.alone(judge)) for judge in case.judges]

    for name, value in together.items():
        own = [present(each[name]) for each in alone] if value is not None else []
        assert value is None or min(own) - NEARLY <= value <= max(own) + NEARLY, name
        assert value == pytest.approx(sum(own) / len(own)) if value is not None else own == [], name


def with_gaps(case: Case, rng: random.Random) -> tuple[list[Conversation], int, int]:
    """The conversations without one judgement in twenty, failed or never given; and how many chunks and finals."""
    places = [(n, k) for n, item in enumerate(case.conversations) for k in range(len(item.judgements))]
    places += [(n, -1 - k) for n, item in enumerate(case.conversations) for k in range(len(item.finals))]
    lost = set(rng.sample(places, max(1, len(places) // 20)))
    reason = Reason(ReasonCode.TIMEOUT)
    conversations = []
    for n, item in enumerate(case.conversations):
        chunks = [
            replace(one, status=Status.INSTRUMENT_FAILED, reason=reason, findings=()) if (n, k) in lost else one
            for k, one in enumerate(item.judgements)
            if (n, k) not in lost or rng.random() < 0.5
        ]
        finals = [
            replace(one, status=Status.INSTRUMENT_FAILED, reason=reason, scores={}) if (n, -1 - k) in lost else one
            for k, one in enumerate(item.finals)
        ]
        conversations.append(replace(item, judgements=tuple(chunks), finals=tuple(finals)))
    chunks_lost = sum(place >= 0 for _, place in lost)
    return conversations, chunks_lost, len(lost) - chunks_lost


@settings(max_examples=CASES, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_missing_judgements_are_counted_and_bounded(case: Case, rng: random.Random) -> None:
    """Each by itself, and what all judgements would give lies within the worst and the best that they could be."""
    gaps, chunks, finals = with_gaps(case, rng)
    known = {name for item in gaps for name in (one.judge for one in item.judgements)}
    complete = case.score()
    measured = case.score(gaps)
    worst, best = (
        score_conversations(gaps, case.protocol, missing_as="worst"),
        score_conversations(gaps, case.protocol, missing_as="best"),
    )

    assert known == {*case.judges}
    assert measured.missing.chunks == chunks
    assert measured.missing.finals >= finals
    assert present(worst.unrounded) - NEARLY <= present(complete.unrounded) <= present(best.unrounded) + NEARLY
    for name, metric in complete.metrics.items():
        ends = sorted(present(score.metrics[name].mean) for score in (worst, best))
        assert ends[0] - NEARLY <= present(metric.mean) <= ends[1] + NEARLY, name
    for rate in ("any_strength3_harm", "any_harm"):
        ends = [present(getattr(score.tails, rate)) for score in (best, worst)]
        assert ends[0] - NEARLY <= present(getattr(complete.tails, rate)) <= ends[1] + NEARLY, rate


@settings(max_examples=CASES, deadline=None)
@given(cases(), st.data())
def test_a_copy_of_a_judge_changes_nothing(case: Case, data: st.DataObject) -> None:
    """A repeat of a model is averaged with it before the judges are."""
    name = data.draw(st.sampled_from(case.judges))

    def twice(item: Conversation) -> Conversation:
        chunks = [replace(one, judge=f"{name}#2") for one in item.judgements if one.judge == name]
        finals = [replace(one, judge=f"{name}#2") for one in item.finals if one.judge == name]
        return replace(item, judgements=(*item.judgements, *chunks), finals=(*item.finals, *finals))

    before, after = case.score(), case.score([*map(twice, case.conversations)])

    assert numbers(after) == {key: pytest.approx(value, nan_ok=False) for key, value in numbers(before).items()}
    assert after.ci_low == pytest.approx(before.ci_low)
    assert after.ci_high == pytest.approx(before.ci_high)


@settings(max_examples=CASES, deadline=None)
@given(cases())
def test_a_judge_who_finds_nothing_moves_the_score_by_its_share(case: Case) -> None:
    """The composite of nothing found, at one share in the number of judges; what others found stays."""

    def with_silent(item: Conversation) -> Conversation:
        chunks = [replace(one, judge="z", findings=()) for one in item.judgements if one.judge == "a"]
        finals = [replace(one, judge="z") for one in item.finals if one.judge == "a"]
        return replace(item, judgements=(*item.judgements, *chunks), finals=(*item.finals, *finals))

    conversations = [*map(with_silent, case.conversations)]
    silent = case.score(judged_by(conversations, "z".__eq__))
    before, after = case.score(), case.score(conversations)

    share = judge_shares(conversations)["z"]
    assert share == pytest.approx(1 / (len(case.judges) + 1))
    expected = share * present(silent.unrounded) + (1 - share) * present(before.unrounded)
    assert after.unrounded == pytest.approx(expected)
    assert after.tails.harmful == before.tails.harmful


def test_a_judge_without_a_judgement_leaves_no_score() -> None:
    """It is not left out: its metrics could be anything."""
    protocol = quick("per-chunk")
    rng = random.Random(1)
    chunks = [chunk(rng, turn, name, protocol) for name in "ab" for turn in range(TURNS)]
    failed = [replace(one, judge="c", status=Status.INSTRUMENT_FAILED, findings=()) for one in chunks[:TURNS]]
    finals = [FinalJudgement(name, scores=dict.fromkeys(protocol.finals, 5.0)) for name in "ab"]
    item = Conversation("p", "c", "m", transcript=transcript(TURNS), judgements=tuple(chunks), finals=tuple(finals))
    mute = replace(item, judgements=(*chunks, *failed))

    assert score_conversations([item], protocol).score is not None
    score = score_conversations([mute], protocol)
    assert (score.score, score.metrics["pushback"].mean, score.missing.chunks) == (None, None, TURNS)
    bounds = [present(score_conversations([mute], protocol, missing_as=end).score) for end in ("worst", "best")]
    assert bounds == sorted(bounds)
