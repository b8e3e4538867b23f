"""Anchors: fixed turns by which a judge who has changed between two runs is noticed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.anchors import blind, fewer, judgement, labels_of
from pytest_spiral.compare import runs as comparing
from pytest_spiral.compare.recording import Recording
from pytest_spiral.compare.runs import compare_paths
from pytest_spiral.evaluate.inputs import SpiralContext
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.report.html.leaderboard import BoardEntry, leaderboard
from pytest_spiral.report.model import Report
from pytest_spiral.report.model.anchors import Anchors, JudgeAnchors, Vector
from pytest_spiral.report.model.gate import GateRow
from pytest_spiral.spiral.anchors import ALPHA, ENOUGH, judge_anchors, load_anchors, movements, not_the_same, shift_of
from pytest_spiral.spiral.labels import load_labels
from pytest_spiral.spiral.protocol import load_protocol, protocol_names
from pytest_spiral.spiral.records import ChunkJudgement
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.evaluate.test_evaluate import PROTOCOL, conversations, results
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import finding, present

IDS = [f"t{number}" for number in range(24)]


def run_of(*vectors: Sequence[Vector], judge: str = "j") -> Anchors:
    """What a judge said in the two passes of a run."""
    first, second = (dict(zip(IDS, one, strict=True)) for one in vectors)
    said = JudgeAnchors(judged_at="", passes=(first, second), answered=24, failures={}, noise=0.0)
    return Anchors(rubric="rubric", hash="0" * 64, of=24, judges={judge: said})


CALM = run_of([{"pushback": 2}] * 24, [{"pushback": 2}] * 24)
MOVED = run_of([{"pushback": 2}] * 12 + [{}] * 12, [{"pushback": 2}] * 12 + [{}] * 12)


@pytest.mark.parametrize("name", ["per-chunk", "per-10k-chars", "per-turn"])
def test_the_anchors_cover_what_carries_weight(name: str) -> None:
    """24 turns: every weighted behaviour three times and in two strengths, several in one turn, and turns with none."""
    protocol = load_protocol(name)
    labels, behaviours = labels_of(name)
    weighted = [name for name in behaviours if protocol.metrics[name].weight]

    assert len(labels) == len(present(load_anchors(protocol)).turns) == 24
    assert [b for b in weighted if sum(b in row for row in labels) < 3] == []
    assert [b for b in weighted if len({row[b] for row in labels if b in row}) < 2] == []
    assert sum(len(row) > 1 for row in labels) >= 10
    assert sum(not row for row in labels) >= 4


def test_the_public_protocols_have_none() -> None:
    """Their judges are asked as the public implementation asks."""
    without = {name for name in protocol_names() if load_anchors(load_protocol(name)) is None}

    assert without >= {"upstream-per-10k-chars", "upstream-per-chunk", "upstream-v1.2", "v1.2-corrected"}


def test_the_shift_by_hand() -> None:
    """Noise within a run is no shift, what differs between runs is; p counts the ways to pair the four judgements."""
    noisy: Sequence[Vector] = ({"a": 1}, {}, {"a": 1}, {})
    other: Sequence[Vector] = ({"a": 3}, {"a": 2}, {"b": 1}, {})
    # Of other: within (1 + 1) / 2, between (4 + 3 + 3 + 2) / 4.
    assert shift_of([(noisy[0], noisy[1], noisy[2], noisy[3])]) == (-0.5, 1.0)
    assert shift_of([(other[0], other[1], other[2], other[3])]) == pytest.approx((2.0, 1 / 3))
    assert shift_of([]) == (0.0, 1.0)


@pytest.mark.parametrize("name", ["per-chunk", "per-turn"])
def test_false_alarms_and_power(name: str) -> None:
    """With one finding in ten otherwise, an unchanged judge is called changed in at most 5 % of pairs of runs; one that
    misses three in ten is mostly noticed."""
    labels, behaviours = labels_of(name)
    rng = random.Random(7)

    def alarm(changed: bool) -> bool:
        after = fewer(0.3)(rng, labels) if changed else labels
        passes = [judgement(rng, side, behaviours, 0.1) for side in (labels, labels, after, after)]
        return shift_of([(a, b, c, d) for a, b, c, d in zip(*passes, strict=True)])[1] <= ALPHA

    # 400 runs at a true rate of 5 % stay below 8 % all but certainly.
    assert sum(alarm(changed=False) for _ in range(400)) <= 0.08 * 400
    assert sum(alarm(changed=True) for _ in range(40)) >= 0.7 * 40


def test_a_judge_is_compared_with_itself_only() -> None:
    """By name, on the same anchors; several judges share the false alarms, and so do several pairs of runs."""
    (found,) = movements(CALM, MOVED)

    change = f"1.00 points of strength a turn beyond its retest noise (p = {3.0**-12:.2g})"
    assert found == (True, f"j has changed on the anchors: {change}")
    assert movements(CALM, CALM)[0].moved is False
    assert movements(CALM, run_of([{}] * 24, [{}] * 24, judge="other")) == ()
    assert movements(CALM, MOVED.model_copy(update={"hash": "1" * 64})) == movements(CALM, None) == ()
    few = run_of([{"pushback": 2}] * 21 + [{}] * 3, [{"pushback": 2}] * 21 + [{}] * 3)
    assert (movements(CALM, few)[0].moved, movements(CALM, few, checks=2)[0].moved) == (True, False)
    assert "j has changed on the anchors: 1.00 points of strength a turn" in not_the_same(CALM, MOVED)
    assert not_the_same(CALM, CALM) == ""


def test_a_judge_who_did_not_answer_may_have_changed() -> None:
    """Failures are counted and no vectors; with fewer than three quarters of the anchors nothing is compared."""
    lost = ChunkJudgement(0, (0,), "j", Status.INSTRUMENT_FAILED, Reason(ReasonCode.REFUSAL))
    said = ChunkJudgement(0, (0,), "j", findings=(finding(0, "pushback", 2),), called_for={"ground": 1, "care": 0})
    most = round(ENOUGH * 24) - 1
    judged = {name: [said if number < most else lost] for number, name in enumerate(IDS)}
    own = judge_anchors((judged, judged), 0, "2026-11-22T00:00:00+00:00")

    assert (own.answered, own.failures, own.noise) == (most, {ReasonCode.REFUSAL: 2 * (24 - most)}, 0.0)
    assert own.passes[0]["t0"] == {"ground": 1, "pushback": 2}
    quiet = CALM.model_copy(update={"judges": {"j": own}})
    assert movements(CALM, quiet)[0].moved is None
    assert f"only {most} of 24 anchors" in not_the_same(CALM, quiet)


def gated(before: Anchors | None, now: Anchors | None) -> GateRow:
    """A gate on the score against a baseline with the same conversations."""
    with few_draws():
        report = evaluate(replace(results(conversations()), spiral=SpiralContext(PROTOCOL, 1, anchors=before)))
        recording = Recording("reports/old", Path("old"), "", tuple(report.spiral.recorded()), report)
        run = replace(results(conversations(), "spiral.score >= baseline - 50"), baseline=recording)
        (row,) = evaluate(replace(run, spiral=SpiralContext(PROTOCOL, 1, anchors=now))).gates
    return row


def test_a_gate_against_a_baseline_needs_the_same_judges() -> None:
    """Undecided after a change, with what to do; decided without anchors, which is said."""
    same, moved, older = gated(CALM, CALM), gated(CALM, MOVED), gated(None, MOVED)

    assert (same.outcome, same.reason.code) == ("pass", "bound_met")
    assert (moved.outcome, moved.reason.code) == ("inconclusive", "judge_moved")
    assert "pytest --replay=reports/old --redo-judging" in moved.reason.detail
    assert (older.outcome, older.reason.code) == ("pass", "bound_met")
    assert "was not checked: no anchors in common" in older.reason.detail
    assert "not checked" not in same.reason.detail


def test_comparisons_need_the_same_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """`compare` shows the sides of runs with a changed judge without a difference, and says what it checked."""

    def reported(anchors: Anchors | None) -> Recording:
        report = evaluate(replace(results(conversations()), spiral=SpiralContext(PROTOCOL, 1, anchors=anchors)))
        return Recording("reports/r", Path("r"), "", tuple(report.spiral.recorded()), report)

    with few_draws():
        runs = {"calm": reported(CALM), "moved": reported(MOVED), "older": reported(None)}
        monkeypatch.setattr(comparing, "load_run", lambda path: runs[path.name])
        same, moved, older = (
            compare_paths(Path("calm"), Path(name), "per-chunk") for name in ("calm", "moved", "older")
        )

    assert (len(same.comparisons), len(moved.comparisons), len(older.comparisons)) == (1, 0, 1)
    assert any("j shows no change on the anchors" in note for note in same.notes)
    assert any("their judges (j has changed" in note and "--redo-judging" in note for note in moved.notes)
    assert {row.side for row in moved.side_by_side} == {"baseline", "candidate"}
    assert any("was not checked" in note for note in older.notes)


def test_changed_judges_have_a_table_of_their_own() -> None:
    """Also where everything else is the same; runs without anchors stay where they are."""

    def reported(anchors: Anchors | None, run: str) -> BoardEntry:
        report: Report = evaluate(replace(results(conversations()), spiral=SpiralContext(PROTOCOL, 1, anchors=anchors)))
        return BoardEntry(report.model_copy(update={"run": report.run.model_copy(update={"id": run})}), run)

    with few_draws():
        entries = [reported(CALM, "a"), reported(MOVED, "b"), reported(CALM, "c"), reported(None, "d")]
    groups = [{row.run for row in group.rows} for group in leaderboard(entries)]

    assert sorted(map(sorted, groups)) == [["a", "c", "d"], ["b"]]


def test_a_change_between_shards_leaves_no_verdict() -> None:
    """The score of two judges who are called the same is none."""
    context = SpiralContext(PROTOCOL, 1, anchors=CALM, moved=(not_the_same(CALM, MOVED),))
    with few_draws():
        (score,) = evaluate(replace(results(conversations()), spiral=context)).spiral.scores

    assert score.score is None
    assert any(blocker.startswith("J08 between shards, j has changed") for blocker in score.blockers)


def test_blindness_to_one_behaviour_is_seen_where_it_is_frequent() -> None:
    """Without noise, five turns are enough."""
    labels, behaviours = labels_of("per-turn")
    after = blind("delusion_reinforcement")(random.Random(1), labels)
    sides = [judgement(random.Random(1), side, behaviours, 0.0) for side in (labels, labels, after, after)]

    assert shift_of([(a, b, c, d) for a, b, c, d in zip(*sides, strict=True)])[1] < 0.001


@pytest.mark.parametrize(
    ("sees", "published", "verdict"), [("all", True, True), ("some", False, True), ("none", False, False)]
)
def test_a_judge_who_sees_no_risk_in_the_anchors_is_none(sees: str, published: bool, verdict: bool) -> None:
    """What raters found there, a judge has to see: in half of it for publication, somewhere for a verdict."""
    shown = present(load_anchors(PROTOCOL))
    labels = {turn.id: turn for turn in load_labels(None, PROTOCOL.behaviours).turns}
    risky = [name for name, metric in PROTOCOL.metrics.items() if metric.sign == "risky" and metric.weight]
    said: dict[str, Vector] = {}
    for number, turn in enumerate(shown.turns):
        found = {name: strength for name in risky if (strength := labels[turn.id].reference(name))}
        said[turn.id] = {} if sees == "none" or (sees == "some" and number % 4) else found
    judge = JudgeAnchors(judged_at="", passes=(said, said), answered=24, failures={}, noise=0.0)
    anchors = Anchors(rubric="rubric", hash=shown.hash, of=24, judges={"j": judge})
    with few_draws():
        (score,) = evaluate(
            replace(results(conversations()), spiral=SpiralContext(PROTOCOL, 1, anchors=anchors))
        ).spiral.scores

    assert any(blocker.startswith("J09 the judge j sees no risk in") for blocker in score.blockers) != published
    assert (score.score is not None) == verdict
