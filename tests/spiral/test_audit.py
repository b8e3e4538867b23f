"""The records of the texts of suite 1.0: the second editor's marks, what was changed, simulated users as tested."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from pytest_spiral.chat import Message
from pytest_spiral.hashing import digest
from pytest_spiral.resources import data_root, read_json
from pytest_spiral.spiral.content import OpeningPrompt, load_openings, load_twins, openings_hash
from pytest_spiral.spiral.simulator import SimulatorMonitor, load_limits, simulator_health

FOLDER = data_root() / "spiral"
# The texts as they were: what was marked and tried, and what the records of runs were made with.
OLD = read_json(FOLDER / "audit" / "suite_1.0.json")
NUMBERED = re.compile(r"^(\d+)\. ")


def rows(name: str) -> list[dict[str, Any]]:
    """The records of one file."""
    return [json.loads(line) for line in (FOLDER / "audit" / name).read_text(encoding="utf-8").splitlines()]


def pieces() -> dict[str, str]:
    """Every marked piece by its name; an injection is numbered by its line in the file, below two lines of comment."""
    texts = {one["prompt_id"]: one["prompts"][0] for one in (*OLD["openings"], *OLD["benign_twins"])}
    for line in OLD["persona"].splitlines():
        if number := NUMBERED.match(line):
            texts[f"persona:{number[1]}"] = line
    return texts | {f"injection:{at}": line for at, line in enumerate(OLD["injections"], 3)}


PIECES = pieces()
TEXTS = {
    **PIECES,
    "persona:head": OLD["persona"].splitlines()[0],
    **{f"category:{name}": text for name, text in OLD["categories"].items()},
}
REWRITES = rows("rewrites.jsonl")


def mends(name: str, round_: int) -> list[dict[str, Any]]:
    """What one round changed in a piece."""
    return [row for row in REWRITES if row["piece"] == name and row["round"] == round_]


def test_the_old_texts_are_those_of_1_0() -> None:
    """Their hashes are those that reports of 1.0.0 carry: whoever has such a report can see what was asked."""
    openings, twins = (
        sorted((OpeningPrompt.model_validate_json(json.dumps(one)) for one in OLD[name]), key=lambda one: one.prompt_id)
        for name in ("openings", "benign_twins")
    )
    categories = sorted([name, text] for name, text in OLD["categories"].items())

    assert openings_hash(openings) == "0f6a1fdbdb91317b1bd569ccbc0df00cfa3c1231b2d578b3199ff24dc46d40b5"
    assert openings_hash(twins) == "d3ddd9cd900aba9dbfb602d990e52ee9035ea2a226a8d725b1b5edcbeea66c8d"
    persona = digest([OLD["persona"], categories, OLD["injections"]])
    assert persona == "b65b241b06d9dffa490466186d78212d50f24f69e4a85c13ee510d09f3b81ee2"


def test_no_id_has_two_texts() -> None:
    """What was replaced got a new id; a text that stayed kept its own."""
    old = {one["prompt_id"]: one["prompts"][0] for one in (*OLD["openings"], *OLD["benign_twins"])}
    present = {opening.prompt_id: opening.first for opening in (*load_openings(), *load_twins())}

    assert {name: present[name] for name in old.keys() & present} == {name: old[name] for name in old.keys() & present}
    assert not set(old.values()) & {text for name, text in present.items() if name not in old}


def test_every_piece_has_one_mark() -> None:
    """Openings, twins, rules and injections; what was done agrees with the text as the first round left it: adopted,
    adapted or left."""
    marks = rows("marks.jsonl")

    assert sorted(mark["piece"] for mark in marks) == sorted(PIECES)
    for mark in marks:
        name = mark["piece"]
        later = mends(name, 2)
        text = later[0]["before"] if later else PIECES[name]
        assert mark["why"], name
        assert (mark["mark"] == "reword") == bool(mark["suggestion"]), name
        changed = "adopted" if mark["suggestion"] == text else "adapted"
        assert mark["done"] == (changed if mends(name, 1) else "left"), name


def test_rewrites_end_at_the_text() -> None:
    """The record of mends leads from another text, round by round and at most once in each, to the present one."""
    assert {row["round"] for row in REWRITES} == {1, 2}
    for name in {row["piece"] for row in REWRITES}:
        chain = [*mends(name, 1), *mends(name, 2)]
        assert [row["round"] for row in chain] in ([1], [2], [1, 2]), name
        assert all(row["why"] and row["before"] != row["after"] for row in chain), name
        assert all(before["after"] == after["before"] for before, after in pairwise(chain)), name
        assert chain[-1]["after"] == TEXTS[name], name


PERSONA_RUNS = rows("persona_runs.jsonl")


@pytest.mark.parametrize(
    ("by", "messages", "flagged", "broken", "failed"),
    [("language model by hand", 138, 0, 0, 0), ("local/smollm2-135m", 28, 25, 10, 3)],
)
def test_the_tested_simulated_users(by: str, messages: int, flagged: int, broken: int, failed: int) -> None:
    """Twelve conversations each, as the datasheet and the page on judges count them; none collapses."""
    runs = [run for run in PERSONA_RUNS if run["seeker"] == by]
    transcripts = [[Message(**message) for message in run["transcript"]] for run in runs]
    healths = [simulator_health(messages, (messages[0].content,), "shipped_1_0") for messages in transcripts]
    counted = load_limits().publication.against

    assert len(runs) == 12
    assert all(messages[0].content in PIECES.values() for messages in transcripts)
    assert sum(health.messages for health in healths) == messages
    assert sum(health.flagged for health in healths) == flagged
    assert sum(health.breaking(counted) for health in healths) == broken
    assert not any(health.collapse for health in healths)
    assert sum(run.get("status") == "instrument_failed" for run in runs) == failed


def test_cues_on_lines_they_were_not_written_on() -> None:
    """Words are not understanding: two false alarms in forty, three misses in thirty, as the page on judges says."""
    cues = set(load_limits().searches)
    seen = {True: 0, False: 0}
    for row in rows("cue_lines.jsonl"):
        monitor = SimulatorMonitor("shipped")
        monitor.add_user_message(row["text"])
        seen[row["breaks"]] += any(flag.rule in cues for flag in monitor.flags)

    assert seen == {True: 27, False: 2}
