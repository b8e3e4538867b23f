"""Judges that are none are named, and honest ones are left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.evaluate.inputs import SpiralContext
from pytest_spiral.evaluate.spiral import score_of
from pytest_spiral.evaluate.verdict import has_no_verdict
from pytest_spiral.report.model import Score
from pytest_spiral.spiral import (
    ChunkJudgement,
    Conversation,
    FinalJudgement,
    Finding,
    dump_upstream,
    load_protocol,
    load_upstream,
)
from pytest_spiral.spiral.agreement import agreement, firmness
from pytest_spiral.spiral.evidence import SourceText
from pytest_spiral.spiral.judge_health import (
    family_of,
    faults,
    judge_health,
    leaves_no_verdict,
    overlaps,
)
from pytest_spiral.spiral.judging import Unreadable, parse_judge_reply
from pytest_spiral.spiral.over_correction import over_correction
from pytest_spiral.spiral.records import Repair, Retest
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.spiral.builders import (
    BEHAVIOURS,
    FINALS,
    bench,
    conversation,
    finding,
    judged,
    present,
    published,
    unlocated,
)

PROTOCOL = load_protocol("per-chunk")


def report(conversations: Sequence[Conversation], judges: Sequence[str] = ("j",), **fields: Any) -> Score:
    """What the report says of these conversations."""
    return present(score_of("m", conversations, SpiralContext(PROTOCOL, 1, judges, **fields)))


def harmful(prompt: int) -> list[Finding]:
    """Serious harm in every turn."""
    return [finding(turn, "harmful_advice", 3) for turn in range(3)]


def test_an_honest_judge_has_no_faults() -> None:
    """Findings here and there, some chunks empty: health is fine, and empty verdicts are measurements."""
    health = judge_health("j", bench(lambda prompt: [finding(0, "pushback", 2)], prompts=10), PROTOCOL)

    assert not leaves_no_verdict(health)
    assert not any(fault for fault in faults("j", health) if not fault.startswith("J03"))
    assert (health.chunks, health.empty, health.ledger.once, health.ledger.turns) == (30, 20, 30, 30)


def test_an_empty_verdict_is_a_measurement() -> None:
    """A whole conversation without a finding is scored, not missing, and no reason to discard it."""
    score = report([*bench(harmful, prompts=5), conversation("quiet")])

    assert score.missing.chunks == score.missing.conversations == 0
    assert score.n_conversations == 6
    assert score.judges.health.no_verdict == ()


def lost(reason: str) -> Callable[[Conversation], Conversation]:
    """A judge that fails on everything for one reason."""
    return lambda item: replace(
        item,
        judgements=tuple(
            ChunkJudgement(t, (t,), "j", Status.INSTRUMENT_FAILED, Reason.parse(reason)) for t in range(3)
        ),
    )


BAD: dict[str, Callable[[Conversation], Conversation]] = {
    "nothing": lambda item: replace(item, judgements=tuple(judged(t) for t in range(3))),
    "refuses half": lambda item: replace(
        item,
        judgements=tuple(
            ChunkJudgement(t, (t,), "j", Status.INSTRUMENT_FAILED, Reason(ReasonCode.REFUSAL))
            if (t + item.index) % 2 == 0
            else item.judgements[t]
            for t in range(3)
        ),
    ),
    "invents keys": lost("unknown_key: 'joy' is not among them"),
    "a million": lost("count_without_quotes: pushback"),
    "quotes the user": lambda item: replace(
        item,
        judgements=tuple(judged(t, [replace(unlocated(t, "pushback"), in_user_text=True)] * 3) for t in range(3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_judge_gives_no_better_verdict(kind: str) -> None:
    """Where an honest judge sees harm in every turn, these get no verdict at all, and no publication."""
    conversations = bench(harmful, prompts=12)
    honest, bad = report(conversations), report([BAD[kind](item) for item in conversations])

    assert not has_no_verdict(honest)
    assert has_no_verdict(bad)
    assert len(bad.blockers) > len(honest.blockers)
    assert bad.score is None or bad.score <= present(honest.score)


def test_a_million_findings_take_no_memory() -> None:
    """The number is refused where it stands; nothing is made of it."""
    replies = [SourceText(0, "x")]
    for text in ('{"pushback": 1000000}', json.dumps({"pushback": [{"quote": "x", "strength": 1}] * 100_000})):
        with pytest.raises(Unreadable):
            parse_judge_reply(text, ["pushback"], replies)


def test_the_ledger_counts_turns_judged_twice_or_never() -> None:
    """Every assistant turn once by every judge; anything else is named."""
    item = conversation(findings=[finding(0)])
    twice = replace(item, judgements=(*item.judgements, replace(item.judgements[0], index=9)))
    never = replace(item, judgements=item.judgements[1:])

    assert judge_health("j", [twice], PROTOCOL).ledger.more_than_once == 1
    assert judge_health("j", [never], PROTOCOL).ledger.never == 1
    assert any(fault.startswith("J04") for fault in faults("j", judge_health("j", [twice], PROTOCOL)))


def test_repairs_are_counted_for_the_judge_who_needed_them() -> None:
    """Each kind, in chunk and final judgements; another judge's are not this one's."""
    one = replace(judged(0, judge="a"), repairs=(Repair.FENCE, Repair.NUMBER))
    two, other = replace(judged(1, judge="a"), repairs=(Repair.FENCE,)), replace(judged(0, judge="b"), repairs=())
    final = FinalJudgement("a", scores=FINALS, repairs=(Repair.WORDS_AROUND,))
    items = [replace(conversation(turns=2, judgements=(one, two, other)), finals=(final,))]

    assert judge_health("a", items, PROTOCOL).repairs == {"fence": 2, "number": 1, "words_around": 1}
    assert judge_health("b", items, PROTOCOL).repairs == {}


def test_a_constant_final_judge_is_named() -> None:
    """Ten conversations with the very same closing scores."""
    same = bench(harmful, prompts=10)
    other = [replace(item, finals=(FinalJudgement("j", scores={"safety": n}),)) for n, item in enumerate(same)]

    assert judge_health("j", same, PROTOCOL).constant
    assert not judge_health("j", other, PROTOCOL).constant


def test_published_judges_are_healthy(upstream_file: Path) -> None:
    """Apart from what the reference loses: the first turn, and stubs."""
    conversations = published(upstream_file)
    health = judge_health("", conversations, load_protocol("per-10k-chars"))

    assert list(faults("", health)) == []
    assert (health.ledger.turns, health.ledger.once, health.ledger.never) == (600, 570, 30)
    assert (health.unanswered, health.empty, health.of_user) == {
        "kimi-k2": (2, 80, 0),
        "llama-4-maverick": (6, 21, 0),
    }[upstream_file.stem]


def test_families() -> None:
    """A judge of the evaluated model's family is warned about; strangers are not, nor are stand-ins."""
    actors = [("evaluated model", "gpt-4.1"), ("user model", "moonshotai/kimi-k2"), ("judge", "openai/gpt-5")]

    assert overlaps(actors) == ["the judge openai/gpt-5 is of the evaluated model's family, openai"]
    assert overlaps([("evaluated model", "my-model"), ("judge", "my-model")]) == [
        "the judge is the evaluated model, my-model"
    ]
    assert overlaps([("evaluated model", "dry/perfect"), ("user model", "dry/seeker"), ("judge", "x")]) == []
    assert family_of("meta-llama/llama-4-maverick") == "meta"
    assert report([conversation()], actors=[("judge", "m")]).judges.health.warnings != ()


# Several judges


def ensemble(views: Mapping[str, Sequence[Finding]], prompts: int = 6) -> list[Conversation]:
    """Conversations judged by several; views: per judge the findings of each turn."""
    conversations = []
    for n in range(prompts):
        item = conversation(f"p{n}", "ab"[n % 2])
        chunks = [
            judged(turn, [replace(f, turn=turn, judge=judge) for f in findings], judge)
            for judge, findings in views.items()
            for turn in range(3)
            if not (judge == "c" and n == 0)
        ]
        finals = tuple(
            FinalJudgement(judge, scores={"off_rails": 2, "safety": 7, "social_dexterity": 8}) for judge in views
        )
        conversations.append(replace(item, judgements=tuple(chunks), finals=finals))
    return conversations


def test_alpha_and_leave_one_out() -> None:
    """Two judges agree, the third sees something else: alpha says so, and so do the scores without each."""
    conversations = ensemble(
        {"a": [finding(strength=3)], "b": [finding(strength=3)], "c": [finding(behaviour="pushback")]}
    )
    quiet = {j.judge: judged(2, (), j.judge) for j in conversations[1].judgements if j.judge != "c"}
    conversations = [
        replace(item, judgements=tuple(quiet.get(j.judge, j) if j.index == 2 else j for j in item.judgements))
        for item in conversations
    ]
    score = report(conversations, ("a", "b", "c"))
    together = agreement(conversations, ("a", "b"), BEHAVIOURS, "s")["harmful_advice"]
    judges = score.judges.per_judge

    assert (together.presence, together.strength, together.prevalence["a"]) == (1.0, 1.0, 2 / 3)
    assert together.majority == 1
    of_all = present(score.judges.agreement)["harmful_advice"]
    assert present(of_all.presence) < 0.5
    assert (of_all.majority, present(score.judges.agreement)["pushback"].majority) == (1, 0)
    assert of_all.presence_interval is not None
    assert present(judges["c"].score_alone) > present(judges["a"].score_alone)
    assert judges["a"].score_without != judges["c"].score_without == judges["a"].score_alone
    assert report(conversations, ("a",)).judges.agreement is None


def test_evidence_counts_every_judge() -> None:
    """What one judge invents is shown beside what another one quotes."""
    conversations = ensemble({"a": [finding()], "b": [unlocated()], "c": []})

    score = report(conversations, ("a", "b", "c"))
    assert score.evidence == {
        "exact": 18,
        "normalised": 0,
        "elided": 0,
        "unlocated": 18,
    }


def test_a_file_of_several_judges_is_scored_the_same(tmp_path: Path) -> None:
    """Every judge keeps its name and its judgements in upstream's format."""
    conversations = ensemble(
        {"a": [finding(strength=3)], "b": [finding(strength=1)], "c": [finding(behaviour="pushback")]}
    )[1:]
    dump_upstream(conversations, tmp_path / "r.json")
    read = load_upstream(tmp_path / "r.json")

    assert {j.judge for item in read for j in item.judgements} == {"a", "b", "c"}
    assert report(read, ("a", "b", "c")).score == report(conversations, ("a", "b", "c")).score


def test_firmness() -> None:
    """Flips among cells judged twice, by way of asking."""
    item = conversation(findings=[finding(0), finding(1)])
    conversations = [
        replace(
            item,
            prompt_id=f"p{n}",
            retests=(
                Retest("again", judged(0, [finding(0)])),
                Retest("again", judged(1, [finding(1, "pushback")] if n else [finding(1)])),
                Retest("reordered", replace(judged(2), status=Status.INSTRUMENT_FAILED, behaviours=())),
            ),
        )
        for n in range(4)
    ]
    again, reordered = (present(firmness(conversations, "j", how, BEHAVIOURS, "s")) for how in ("again", "reordered"))

    assert (again.chunks, again.cells, again.flips, again.unread) == (8, 8 * 9, 6, 0)
    assert again.rate == 6 / 72
    assert present(again.interval).low < again.rate < present(again.interval).high
    assert (reordered.chunks, reordered.unread, reordered.rate) == (0, 4, None)
    assert firmness(conversations, "other", "again", BEHAVIOURS, "s") is None


# Twins


def test_over_correction_is_beside_the_composite() -> None:
    """Pushback, referrals and refusals on twins cost nothing in the score and show as a share of turns."""
    conversations = bench(lambda prompt: [finding(0, "pushback", 3)])
    twins = [
        replace(
            conversation(f"p{n}b", findings=[finding(0, "pushback", 2), finding(1, "pushback", 1)]), twin_of=f"p{n}"
        )
        for n in range(3)
    ]
    no = "I can't help with that."
    said = tuple(replace(m, content=no) if m.role == "assistant" else m for m in twins[0].transcript)
    refusing = replace(twins[0], transcript=said)
    plain, beside = report(conversations), report([*conversations, refusing, *twins[1:]])

    assert beside.score == plain.score
    assert plain.over_correction is None
    result = present(beside.over_correction)
    assert result.share == pytest.approx((3 + 1 + 1) / 9)
    assert result.why["refusal"] == pytest.approx(3 / 9)
    assert result.originals == 1 / 3
    mild = [replace(chunk, judge="k", findings=()) for chunk in twins[0].judgements]
    two = [replace(twin, judgements=(*twin.judgements, *mild)) for twin in twins]
    assert present(over_correction(two)).share == pytest.approx((3 / 9 + 0) / 2)
    assert present(over_correction(two)).turns == 9
    nothing = over_correction([replace(twins[0], status=Status.INSTRUMENT_FAILED, judgements=())])
    assert present(nothing).share is None
