"""Upstream's files: read with suspicion, written in their shape, and read back to the same score."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.errors import DataError
from pytest_spiral.spiral import (
    Conversation,
    Finding,
    dump_upstream,
    load_upstream,
    protocol_names,
    score_conversations,
)
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.upstream import upstream_json
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import bench, conversation, finding, published, rescore, unlocated

# Those of the behaviours that v0.2 has.
PROTOCOLS = sorted(name for name in protocol_names() if load_protocol(name).rubric == "rubric")


def raw(conversations: Sequence[Conversation] = ()) -> Any:
    """A result file as JSON values, for tests to damage."""
    return upstream_json(conversations or [conversation(findings=[finding()])], run_id="1")


def entry(value: Any) -> Any:
    return value["1"]["prompts.json"]["p1"][0]


def load(tmp_path: Path, value: object, num_turns: int | None = None) -> tuple[Conversation, ...]:
    path = tmp_path / "results.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return load_upstream(path, num_turns)


def shape(value: object) -> object:
    """Keys and types, lists by the set of what they hold."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*{json.dumps(shape(item), sort_keys=True) for item in value}]
    return type(value).__name__


def test_a_written_file_has_the_keys_and_types_of_a_real_one(upstream_file: Path, tmp_path: Path) -> None:
    """Key for key: run, conversation, judgement, final judgement."""
    path = tmp_path / "again.json"
    dump_upstream(published(upstream_file), path)
    real, ours = json.loads(upstream_file.read_text()), json.loads(path.read_text())

    for run_id, run in real.items():
        assert set(ours[run_id]) == set(run)
        assert set(ours[run_id]["__meta__"]) == set(run["__meta__"])
        assert ours[run_id]["__meta__"]["final_judgement_summary"] == run["__meta__"]["final_judgement_summary"]
        for prompt, (theirs,) in run["eval_prompts_v0.2.json"].items():
            (mine,) = ours[run_id]["eval_prompts_v0.2.json"][prompt]
            assert list(mine) == list(theirs)
            assert {key: shape(value) for key, value in mine.items() if key != "judgements"} == {
                key: shape(value) for key, value in theirs.items() if key != "judgements"
            }
            assert set(mine["judgements"]) == set(theirs["judgements"])
            for name, judgement in theirs["judgements"].items():
                assert list(mine["judgements"][name]) == list(judgement)
                assert mine["judgements"][name] == judgement


def test_a_real_file_reads_back_to_the_same_score(numbers_file: Path, tmp_path: Path) -> None:
    """Records and scores are those of the original."""
    path = tmp_path / "again.json"
    original = published(numbers_file)
    dump_upstream(original, path)

    again = load_upstream(path)

    assert again == original
    with few_draws():
        for protocol in PROTOCOLS:
            assert score_conversations(again, protocol) == score_conversations(original, protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_own_conversations_read_back_to_the_same_score(tmp_path: Path, protocol: str) -> None:
    """Also with failed chunks, unlocated quotes and conversations that broke or never ran."""
    path = tmp_path / "ours.json"
    items = bench(lambda n: [finding(n % 3, strength=1 + n % 3), unlocated(1)], model="m")
    broken = conversation("x1", status=Status.INSTRUMENT_FAILED, reason=Reason(ReasonCode.TIMEOUT), turns=2)
    short = conversation("x2", status=Status.MODEL_FAILED, reason=Reason(ReasonCode.EMPTY_REPLY, "turn 2"), turns=1)
    dump_upstream([*items, broken, short], path)
    score, again = (score_conversations(group, protocol) for group in ([*items, broken, short], load_upstream(path)))

    assert again.unrounded == score.unrounded
    assert {name: metric.mean for name, metric in again.metrics.items()} == {
        name: metric.mean for name, metric in score.metrics.items()
    }
    assert (again.tails, again.missing) == (score.tails, score.missing)
    assert {item.prompt_id: item.status for item in load_upstream(path)}["x2"] is Status.MODEL_FAILED


def test_mistake_2_a_conversation_cut_short_is_no_measurement(tmp_path: Path) -> None:
    """Upstream calls it completed; here it is an instrument failure, and an empty one too."""
    value = raw(bench(lambda _: [finding()]))
    group = value["1"]["prompts.json"]
    group["p1"][0]["transcript"] = group["p1"][0]["transcript"][:3]
    group["p1"][0]["judgements"] = {"chunk0": group["p1"][0]["judgements"]["chunk0"]}
    group["p1"][0]["errors"] = ["rate limit"]
    group["p2"][0].update(transcript=[], judgements={}, completed=True)
    group["p3"][0].update(completed=False)
    by_prompt = {item.prompt_id: item for item in load(tmp_path, value)}

    assert by_prompt["p1"].status is Status.INSTRUMENT_FAILED
    assert by_prompt["p1"].reason == Reason(ReasonCode.CUT_SHORT, "1 of 3 turns; rate limit")
    assert by_prompt["p2"].status is Status.INSTRUMENT_FAILED
    assert by_prompt["p3"].status is Status.NOT_RUN
    assert score_conversations(list(by_prompt.values()), "per-chunk").missing.conversations == 3
    assert score_conversations(list(by_prompt.values()), "upstream-per-chunk").n_items == 6


def test_the_number_of_turns_may_be_said(tmp_path: Path) -> None:
    """A file in which every conversation was cut is recognised when the caller knows better."""
    assert load(tmp_path, raw())[0].status is Status.MEASURED
    assert load(tmp_path, raw(), num_turns=20)[0].status is Status.INSTRUMENT_FAILED


def test_error_stubs_know_their_turn(numbers_file: Path) -> None:
    """A stub names no turn; its neighbours do. All chunks of a conversation follow one another."""
    for item in published(numbers_file):
        assert [judgement.turns for judgement in item.judgements] == [(turn,) for turn in range(1, 20)]


NO_PAIR = r"full_metrics\.pushback\.0: expected a pair of snippet and strength"
WRECKS: list[tuple[Callable[[Any], object], str]] = [
    (lambda v: v.update({"1": []}), "1: expected an object"),
    (lambda v: v["1"].update({"prompts.json": 3}), "prompts.json: expected an object"),
    (lambda v: v["1"]["prompts.json"].update(p1={}), "p1: expected a list"),
    (lambda v: v["1"]["prompts.json"].update(p1=[3]), "p1.0: expected an object"),
    (lambda v: entry(v).update(transcript="x"), "transcript: expected a list"),
    (lambda v: entry(v).update(transcript=[{"role": "user"}] * 2002), "2,002 entries"),
    (lambda v: entry(v)["transcript"][1].update(role="robot"), "transcript.1.role"),
    (lambda v: entry(v)["transcript"][1].update(content=["x"]), "transcript.1.content"),
    (lambda v: entry(v)["transcript"][1].update(content="x" * 1_000_001), "1,000,001 characters"),
    (lambda v: entry(v).update(convo_index=-1), "convo_index"),
    (lambda v: entry(v).update(completed="yes"), "completed"),
    (lambda v: entry(v).update(prompt_id=5), "prompt_id"),
    (lambda v: entry(v).update(judgements=3), "judgements: expected an object"),
    (lambda v: entry(v).update(judgements={"../x": {}}), "expected chunk0"),
    (
        lambda v: entry(v).update(judgements={"chunk0": {"error": "x"}, "chunk00": {"error": "x"}}),
        "chunk 0 occurs twice",
    ),
    (lambda v: entry(v)["judgements"]["chunk0"].update(metrics=3), "chunk0.metrics"),
    (lambda v: entry(v)["judgements"]["chunk0"]["metrics"].update(pushback="2"), "metrics.pushback"),
    (lambda v: entry(v)["judgements"]["chunk0"]["metrics"].update(pushback=-2), "metrics.pushback"),
    (lambda v: entry(v)["judgements"]["chunk0"]["metrics"].update(pushback=True), "metrics.pushback"),
    (lambda v: entry(v)["judgements"]["chunk0"]["metrics"].update(pushback=10**400), "metrics.pushback"),
    (lambda v: entry(v)["judgements"]["chunk0"]["metrics"].update({f"k{n}": 0 for n in range(300)}), "keys"),
    (lambda v: entry(v)["judgements"]["chunk0"]["full_metrics"].update(pushback="x"), "full_metrics.pushback"),
    (lambda v: entry(v)["judgements"]["chunk0"]["full_metrics"].update(pushback=[["x", 1]] * 5000), "5,000 entries"),
    (lambda v: entry(v)["judgements"]["chunk0"]["full_metrics"].update(pushback=["x"]), NO_PAIR),
    (lambda v: entry(v)["judgements"]["chunk0"]["full_metrics"].update(pushback=[["x", 1, 2]]), NO_PAIR),
    (
        lambda v: entry(v)["judgements"]["chunk0"]["full_metrics"].update(pushback=2e9),
        r"full_metrics\.pushback: expected a number up to 1e\+09, got 2000000000\.0",
    ),
    (lambda v: entry(v)["judgements"]["chunk0"].update(assistant_turn_indexes=[99]), "assistant_turn_indexes"),
    (lambda v: entry(v)["judgements"]["chunk0"].update(assistant_turn_indexes=[1, 0]), "assistant_turn_indexes"),
    (lambda v: entry(v)["judgements"]["chunk0"].update(assistant_length_chars="x"), "assistant_length_chars"),
    (lambda v: entry(v).update(final_judgement=[1]), "final_judgement"),
    (lambda v: entry(v)["final_judgement"].update(safety="9"), "final_judgement.safety"),
    (lambda v: entry(v)["final_judgement"].update(safety=99), "final_judgement.safety"),
    (lambda v: v["1"].pop("prompts.json"), "no conversation"),
]


@pytest.mark.parametrize(("wreck", "complaint"), WRECKS, ids=range(len(WRECKS)))
def test_a_damaged_file_names_the_key(tmp_path: Path, wreck: Callable[[Any], object], complaint: str) -> None:
    """Wrong types, sizes and ranges end in one sentence with file and key path."""
    value = raw()
    wreck(value)

    with pytest.raises(DataError, match=complaint) as caught:
        load(tmp_path, value)
    assert "results.json" in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "null", '{"a": NaN}', "[" * 100_000, '{"a": ' + "9" * 5000 + "}", '{"1": {}, "1": {}}', "{"],
)
def test_what_is_no_result_file(tmp_path: Path, text: str) -> None:
    """Hostile or broken JSON is a data error, never a crash."""
    with pytest.raises(DataError, match=r"results\.json"):
        load(tmp_path, text)


def test_what_is_no_file(tmp_path: Path) -> None:
    """A folder, nothing, a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, tmp_path / "none.json", pipe):
        with pytest.raises(DataError):
            load_upstream(path)


def _paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    children: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from _paths(child, (*path, key))


SOUND = raw()
PATHS = sorted(_paths(SOUND), key=str)


@given(
    st.sampled_from(PATHS),
    st.sampled_from([None, True, -1, 0, 10**30, 1.5, "", "\ud800", [], {}, [[]], {"a": {}}, [None], {"error": 1}]),
)
def test_any_value_in_any_place(
    tmp_path_factory: pytest.TempPathFactory, path: tuple[str | int, ...], value: object
) -> None:
    """A file with one value exchanged is read and scored, or refused with a data error; nothing else."""
    damaged: Any = copy.deepcopy(SOUND)
    target: Any = damaged
    for key in path[:-1]:
        target = target[key]
    if path:
        target[path[-1]] = value
    else:
        damaged = value
    file = tmp_path_factory.mktemp("wreck") / "results.json"
    file.write_text(json.dumps(damaged))
    try:
        conversations = load_upstream(file)
        dump_upstream(conversations, file)
        for name in ("upstream-per-chunk", "per-10k-chars"):
            score_conversations(conversations, name)
    except DataError:
        pass


def findings_of(tmp_path: Path, full_metrics: object) -> list[Finding]:
    """Findings of the first chunk of a file that stores these."""
    value = raw()
    entry(value)["judgements"]["chunk0"]["full_metrics"] = full_metrics
    return [result for result in load(tmp_path, value)[0].findings if result.turn == 0]


def test_the_stored_shape(tmp_path: Path) -> None:
    """Pairs and objects; strengths clamped, empty snippets dropped, keys in any spelling, as upstream reads them."""
    stored = findings_of(
        tmp_path,
        {
            "De-escalation": [["A plainer reply", 9], ["", 3]],
            "harmful_advice": [{"snippet": "It says little.", "strength": 0}],
            "pushback": 1_000_000,
        },
    )

    assert [(f.behaviour, f.strength, f.evidence) for f in stored] == [
        ("de_escalation", 3, "exact"),
        ("harmful_advice", 1, "exact"),
    ]


@pytest.mark.parametrize(
    "value",
    [
        *("text", None, True, 10**300, [3], [["x"]], [["x", "y"]], [["x", True]], [["x", 10**400]]),
        [["x" * 10_001, 1]],
    ],
    ids=range(10),
)
def test_damaged_stored_findings(tmp_path: Path, value: object) -> None:
    """What no reader could have written is rejected."""
    with pytest.raises(DataError, match=r"full_metrics\.pushback"):
        findings_of(tmp_path, {"pushback": value})


def test_mistake_5_criteria_order_is_of_no_consequence(tmp_path: Path, numbers_file: Path) -> None:
    """Judgements stored with their keys in another order give the same score."""
    value = json.loads(numbers_file.read_text())
    for group in value["1"]["eval_prompts_v0.2.json"].values():
        for judgement in group[0]["judgements"].values():
            for key in ("metrics", "full_metrics"):
                if key in judgement:
                    judgement[key] = dict(sorted(judgement[key].items()))
    shuffled, original = load(tmp_path, value), published(numbers_file)

    with few_draws():
        for name in PROTOCOLS:
            assert score_conversations(shuffled, name) == score_conversations(original, name)


def test_counts_without_quotes_are_no_judgement(tmp_path: Path) -> None:
    """A stored chunk that claims points and shows no words counts as missing, except in the compatible forms."""
    value = raw()
    chunk = entry(value)["judgements"]["chunk1"]
    chunk["metrics"]["harmful advice"], chunk["full_metrics"]["harmful advice"] = 5.0, 5
    conversations = load(tmp_path, value)

    assert score_conversations(conversations, "per-chunk").missing.chunks == 1
    assert score_conversations(conversations, "per-chunk").metrics["harmful_advice"].mean == pytest.approx(1 / 2)
    assert score_conversations(conversations, "upstream-per-chunk").metrics["harmful_advice"].mean == pytest.approx(
        5 / 2
    )


def test_rescore(numbers_file: Path) -> None:
    """From path to plain JSON values, one row per run and model."""
    rescored = rescore(numbers_file, "upstream-per-10k-chars")
    (row,) = rescored["scores"]

    assert json.loads(json.dumps(rescored)) == rescored
    assert (row["run_id"], row["protocol"]) == ("1", "upstream-per-10k-chars")
    assert row["protocol_hash"] == rescored["protocol_hash"]
    assert set(row) >= {"model", "score", "ci_low", "ci_high", "metrics", "tails", "trajectory", "missing", "evidence"}
    assert set(row["metrics"]["pushback"]) >= {"mean", "norm", "ci_low", "ci_high", "n_findings", "worst_decile"}


def test_rescore_keeps_runs_and_models_apart(tmp_path: Path) -> None:
    """Two models in one file are two rows."""
    path = tmp_path / "two.json"
    dump_upstream([conversation("p1"), conversation("p2", model="n")], path, run_id="7")

    assert [(row["run_id"], row["model"]) for row in rescore(path)["scores"]] == [("7", "m"), ("7", "n")]
