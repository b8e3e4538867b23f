"""Files of version 1.2: judgements per judge, read with suspicion and written back."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.cli import main
from pytest_spiral.errors import DataError
from pytest_spiral.spiral import ChunkJudgement, Conversation, FinalJudgement, dump_upstream, load_upstream
from pytest_spiral.spiral.aggregate import point_score
from pytest_spiral.spiral.labels import load_labels
from pytest_spiral.spiral.protocol import V1_2
from pytest_spiral.spiral.upstream import reading, upstream_json
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.fakes.published import ENSEMBLE, numbers_of
from tests.fakes.v1_2_files import FILE, JUDGES, Document, chunk, entry, file_of
from tests.spiral.builders import BEHAVIOURS, FINALS, conversation, finding


def load(tmp_path: Path, value: object) -> tuple[Conversation, ...]:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(value))
    return load_upstream(path)


def reread(tmp_path: Path, conversations: tuple[Conversation, ...]) -> tuple[Conversation, ...]:
    return load(tmp_path, upstream_json(conversations))


def test_every_judge_has_a_judgement_of_every_chunk(tmp_path: Path) -> None:
    """Chunk by chunk in the order of the file's judges, sums by stored key, findings located; null is a failure."""
    (item,) = load(tmp_path, file_of())

    assert [(one.index, one.turns, one.judge) for one in item.judgements] == [
        (index, (index + 1,), judge) for index in range(2) for judge in JUDGES
    ]
    assert item.origin.judges == JUDGES
    assert item.judgements[1].stated == {"pushback": 0.0, "topic-shut-down": 2.0, "harmful-advice": 0.0}
    assert item.judgements[1].behaviours == ("pushback", "topic_shut_down", "harmful_advice")
    assert [(one.behaviour, one.strength, one.judge, one.evidence) for one in item.judgements[1].findings] == [
        ("topic_shut_down", 2, "judge/b", "exact")
    ]
    assert [(one.judge, one.status, one.scores) for one in item.finals] == [
        ("judge/a", Status.MEASURED, {"off_rails": 3.0}),
        ("judge/b", Status.INSTRUMENT_FAILED, {}),
        ("judge/c", Status.INSTRUMENT_FAILED, {}),
    ]


def test_a_judge_without_an_answer_failed(tmp_path: Path) -> None:
    """An error stub, a chunk that only others have and a judge that is null are failures with a reason and a turn."""
    stored = entry()
    stored["judgements"][0]["chunk0"] = {"error": "Expecting value"}
    del stored["judgements"][1]["chunk1"]
    stored["judgements"][2] = None
    (item,) = load(tmp_path, file_of(stored))
    failed = {(one.index, one.judge): one for one in item.judgements if one.status is Status.INSTRUMENT_FAILED}
    codes = {key: one.reason.code for key, one in failed.items() if one.reason}

    assert codes == {
        (0, "judge/a"): ReasonCode.IMPORTED_ERROR,
        (1, "judge/b"): ReasonCode.NOT_JUDGED,
        (0, "judge/c"): ReasonCode.NOT_JUDGED,
        (1, "judge/c"): ReasonCode.NOT_JUDGED,
    }
    assert all(one.turns == (one.index + 1,) for one in failed.values())
    assert reread(tmp_path, (item,)) == (item,)


def test_unfinished_conversations_and_several_runs(tmp_path: Path) -> None:
    """Nothing is judged in a conversation that nobody judged; each run has its own judges."""
    cut, unjudged, empty = entry("p1", turns=2), entry("p2"), entry("p3")
    unjudged.update(judgements=[], final_judgements=None, final_judgement=None, completed=False)
    empty.update(transcript=[], judgements={}, final_judgements=[], final_judgement=None)
    value = file_of(cut, unjudged, empty, entry("p4"))
    value["next"] = file_of(entry("p1"), judges=("x", "x", "x#2"))["1.2"]
    items = {(item.origin.run_id, item.prompt_id): item for item in load(tmp_path, value)}

    assert items["1.2", "p1"].reason == Reason(ReasonCode.CUT_SHORT, "2 of 3 turns")
    assert items["1.2", "p2"].status is Status.NOT_RUN
    assert (items["1.2", "p2"].judgements, items["1.2", "p2"].finals) == ((), ())
    assert items["1.2", "p3"].reason == Reason(ReasonCode.CUT_SHORT, "0 of 3 turns")
    assert items["next", "p1"].origin.judges == ("x", "x#2", "x#2#2")
    assert reread(tmp_path, tuple(items.values())) == tuple(items.values())


def test_one_judge_may_be_listed_or_not(tmp_path: Path) -> None:
    """A map, or a list of one. Where nobody is listed, one judge has no name; of several, none can be told."""
    alone, mapped, unnamed = entry(), entry(), entry()
    for stored in (alone, mapped, unnamed):
        del stored["final_judgements"]
        stored["judgements"] = stored["judgements"][:1]
    mapped["judgements"] = mapped["judgements"][0]

    assert load(tmp_path, file_of(alone, judges=("j",))) == load(tmp_path, file_of(mapped, judges=("j",)))
    (item,) = load(tmp_path, file_of(unnamed, judges=()))
    assert {*(one.judge for one in item.judgements), *(one.judge for one in item.finals)} == {""}
    with pytest.raises(DataError, match=r"p1\.0\.judgements: 3 entries.*no __meta__\.judges"):
        load(tmp_path, file_of(judges=()))


def test_keys_in_base_urls_stay_in_the_file(tmp_path: Path) -> None:
    """Base URLs are not kept, with or without keys."""
    items = load(tmp_path, file_of())

    assert not re.search("key-|example", f"{items}{json.dumps(upstream_json(items))}")


def test_stored_summaries_are_not_read(tmp_path: Path) -> None:
    """Whatever they hold, also where it is no summary."""
    value = file_of()
    value["1.2"]["__meta__"] |= {"scoring_summary": "x", "final_judgement_summary": [3]}
    value["1.2"]["scoring_summary"] = 5

    assert load(tmp_path, value) == load(tmp_path, file_of())


FIRST = f"{FILE}.p1.0"
WRECKS: list[tuple[Callable[[Document, Document], object], str]] = [
    (
        lambda run, one: one["judgements"].pop(),
        f"{FIRST}.judgements: 2 entries, one per judge, but __meta__.judges names 3",
    ),
    (lambda run, one: one["judgements"].append({}), f"{FIRST}.judgements: 4 entries, one per judge, but"),
    (lambda run, one: one.update(judgements=one["judgements"][0]), f"{FIRST}.judgements: expected a list of 3 objects"),
    (
        lambda run, one: one["judgements"][1].update(chunk0=[]),
        f"{FIRST}.judgements.1.chunk0: expected an object, got list",
    ),
    (
        lambda run, one: one["judgements"][2]["chunk1"]["metrics"].update(pushback="2"),
        f"{FIRST}.judgements.2.chunk1.metrics.pushback: expected a number, got str",
    ),
    (lambda run, one: one.update(final_judgements={}), f"{FIRST}.final_judgements: expected a list, got dict"),
    (lambda run, one: one["final_judgements"].pop(), f"{FIRST}.final_judgements: 2 entries, one per judge, but"),
    (lambda run, one: one.pop("final_judgements"), f"{FIRST}.final_judgements: missing key"),
    (lambda run, one: one["final_judgements"][0].update({"off-rails": 11}), f"{FIRST}.final_judgements.0.off-rails"),
    (
        lambda run, one: one["judgements"][1]["chunk0"].update(assistant_turn_indexes=[3]),
        f"{FIRST}.judgements.1.chunk0.assistant_turn_indexes: expected increasing numbers below 3",
    ),
    (
        lambda run, one: one["judgements"][1]["chunk0"].update(assistant_turn_indexes=[2]),
        f"{FIRST}.judgements.1.chunk0.assistant_turn_indexes: expected the same turns",
    ),
    (lambda run, one: run.update(__meta__=[]), "__meta__: expected an object, got list"),
    (lambda run, one: run["__meta__"].update(judges={}), "__meta__.judges: expected a list, got dict"),
    (lambda run, one: run["__meta__"]["judges"][1].pop("model"), "__meta__.judges.1.model: missing key"),
    (lambda run, one: run["__meta__"].update(judges=[{"model": "x"}] * 21), "__meta__.judges: 21 entries"),
]


@pytest.mark.parametrize(("wreck", "complaint"), WRECKS, ids=range(len(WRECKS)))
def test_a_damaged_file_names_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wreck: Callable[[Document, Document], object], complaint: str
) -> None:
    """File and key path in one sentence, exit code 4, nothing printed."""
    value = file_of()
    wreck(value["1.2"], value["1.2"][FILE]["p1"][0])
    path = tmp_path / "results.json"
    path.write_text(json.dumps(value))

    assert main(["rescore", str(path)]) == 4

    out, err = capsys.readouterr()
    assert f"results.json: 1.2.{complaint}" in err
    assert (out, err.count("\n")) == ("", 1)


def test_gaps_do_not_multiply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty judges of whom one judged: the judgements that fill the gaps count before they are made."""
    stored = entry()
    stored.update(judgements=[stored["judgements"][0], *[None] * 19], final_judgements=None, final_judgement=None)
    value = file_of(stored, judges=tuple(f"j{number}" for number in range(20)))
    assert len(load(tmp_path, value)[0].judgements) == 40
    monkeypatch.setattr(reading, "_MAX_JUDGEMENTS", 39)

    with pytest.raises(DataError, match=r"1\.2\.openings\.json: more than 39 judgements in one file"):
        load(tmp_path, value)


def test_the_judges_of_a_file_are_raters(tmp_path: Path) -> None:
    """Each turn once, labelled by every judge that answered."""
    stored = entry()
    stored["judgements"][2]["chunk0"] = {"error": "no answer"}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(file_of(stored)))
    labelled = load_labels(path, ("topic_shut_down", "pushback"))

    assert [(turn.id, turn.labels) for turn in labelled.turns] == [
        ("p1-1-0", {"judge/a": {"topic_shut_down": 1}, "judge/b": {"topic_shut_down": 2}}),
        ("p1-1-1", {judge: {"topic_shut_down": strength} for strength, judge in enumerate(JUDGES, start=1)}),
    ]
    assert labelled.raters == dict.fromkeys(JUDGES, "a language model")


SOUND = file_of()


def paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    children: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, (dict, list)):
        children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield from paths(child, (*path, key))


@given(
    st.sampled_from([path for path in paths(SOUND) if path]),
    st.sampled_from([None, True, -1, 10**30, 1.5, "", "\ud800", [], {}, [[]], [None] * 3, {"a": {}}, {"error": 1}]),
)
def test_any_value_in_any_place(
    tmp_path_factory: pytest.TempPathFactory, path: tuple[str | int, ...], value: object
) -> None:
    """A file with one value exchanged is read, written and scored, or refused with a data error; nothing else."""
    damaged: Any = copy.deepcopy(SOUND)
    target: Any = damaged
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    folder = tmp_path_factory.mktemp("wreck")
    try:
        items = load(folder, damaged)
        dump_upstream(items, folder / "again.json")
        for name in V1_2:
            point_score(items, name)
    except DataError:
        pass


def chunks_of(turns: int) -> st.SearchStrategy[Document]:
    """One judge's entries: judgements with any strengths, stubs, and gaps."""
    stub = st.sampled_from([{"error": "timeout: slow"}, {"error": "words"}, {}])
    judged = st.builds(chunk, st.just(1), st.integers(1, 3))
    return st.dictionaries(st.integers(1, turns - 1), stub | judged).map(
        lambda of: {
            f"chunk{turn - 1}": stored | ({"assistant_turn_indexes": [turn]} if "metrics" in stored else {})
            for turn, stored in of.items()
        }
    )


SCORES = st.none() | st.builds(lambda score: {"off-rails": score}, st.sampled_from([0.0, 2.5, 10.0]))


@given(st.lists(chunks_of(4) | st.none(), min_size=3, max_size=3), st.lists(SCORES, min_size=3, max_size=3))
def test_what_is_written_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, judgements: list[Document | None], finals: list[Document | None]
) -> None:
    """Whatever each judge has or lacks: the records of a written file are those it was written from."""
    folder = tmp_path_factory.mktemp("again")
    stored = entry(turns=4) | {"judgements": judgements, "final_judgements": finals}
    items = load(folder, file_of(stored))

    assert reread(folder, items) == items
    assert upstream_json(reread(folder, items)) == upstream_json(items)


@pytest.mark.parametrize("with_texts", [False, True])
def test_the_public_file_reads_back_equal(tmp_path: Path, with_texts: bool) -> None:
    """Its records; of the file with its texts every key and value but summaries and base URLs."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if with_texts and not folder:
        pytest.skip("SPIRAL_UPSTREAM_DIR names no folder of upstream's result files")
    original = Path(folder or "") / ENSEMBLE if with_texts else numbers_of(ENSEMBLE)
    items = load_upstream(original)
    path = tmp_path / "again.json"
    dump_upstream(items, path)

    assert load_upstream(path) == items
    assert len(items) == 30
    assert {len(item.replies) for item in items} == {3}
    found = {
        judge: sum(one.judge == judge for item in items for one in item.findings) for judge in items[0].origin.judges
    }
    assert [*found.values()] == [620, 414, 346]
    if with_texts:
        (theirs,), (ours,) = (json.loads(file.read_text()).values() for file in (original, path))
        assert ours["eval_prompts_v0.2.json"] == theirs["eval_prompts_v0.2.json"]
        assert ours["__meta__"]["final_judgement_summary"] == theirs["__meta__"]["final_judgement_summary"]
        assert [one["model"] for one in theirs["__meta__"]["judges"]] == [*items[0].origin.judges]


def test_several_judges_of_ours_have_a_list_entry_each(tmp_path: Path) -> None:
    """Nothing of any judge is merged or lost; a failed closing judgement is null, and the average leaves it out."""
    chunks = tuple(
        ChunkJudgement(turn, (turn,), judge, behaviours=BEHAVIOURS, findings=(finding(turn, judge=judge),), chars=1000)
        for turn in range(3)
        for judge in ("a", "b")
    )
    finals = (
        FinalJudgement("a", scores=FINALS),
        FinalJudgement("b", Status.INSTRUMENT_FAILED, Reason(ReasonCode.QUOTA)),
    )
    ours = replace(conversation(), judgements=chunks, finals=finals)
    run: Any = upstream_json([ours])["1"]
    (stored,) = run["prompts.json"]["p1"]

    assert run["__meta__"]["judges"] == [{"model": "a"}, {"model": "b"}]
    assert [len(chunks) for chunks in stored["judgements"]] == [3, 3]
    assert stored["judgements"][1]["chunk0"]["metrics"]["harmful advice"] == 1.0
    assert (stored["final_judgements"], stored["final_judgement"]) == ([FINALS, None], FINALS)
    (again,) = reread(tmp_path, (ours,))
    for name in ("per-chunk", "per-10k-chars", "upstream-per-chunk"):
        assert point_score([again], name) == point_score([ours], name)
    assert again.findings == ours.findings
    assert [(one.judge, one.scores) for one in again.finals] == [("a", FINALS), ("b", {})]


def test_one_judge_of_ours_is_written_as_before(tmp_path: Path) -> None:
    """One map and one final judgement."""
    run: Any = upstream_json([conversation(findings=[finding()])])["1"]
    (stored,) = run["prompts.json"]["p1"]

    assert isinstance(stored["judgements"], dict)
    assert "final_judgements" not in stored
    assert "judges" not in run["__meta__"]
