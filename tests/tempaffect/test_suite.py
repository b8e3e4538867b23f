"""Reading scenario files, and hashes that move when a score could."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.errors import DataError
from pytest_spiral.hashing import canonical, digest
from pytest_spiral.tempaffect.suite import load_suite, read_scenarios

Write = Callable[..., Path]
SCENARIO: dict[str, Any] = {
    "id": "own-1",
    "family": "repair_after_mistake",
    "agent_role": "print shop assistant",
    "agent_context": "Can reprint for free and courier today.",
    "user_message": "The banner says GRAND OPNEING. We open in two hours.",
    "expected": {
        "detected_emotion": ["anger"],
        "intensity": [3, 4],
        "user_need": ["specific_action"],
        "response_strategy": ["acknowledge_and_correct"],
        "support_stage": ["repair"],
        "boundary_action": "continue_helping",
        "should_escalate": False,
        "reply": {
            "issue_anchors": [
                {"id": "banner", "core": True, "any": ["banner", "sign"]},
                {"id": "typo", "core": True, "any": ["opneing", "typo", "misspelled"]},
            ],
            "action_targets": ["banner", "courier"],
            "word_range": [10, 60],
        },
    },
}


def changed(**changes: object) -> dict[str, Any]:
    """The scenario with other values."""
    return {**json.loads(json.dumps(SCENARIO)), **changes}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a scenario file."""

    def write(content: object, name: str = "own.json") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def test_a_file_holds_one_scenario_or_a_list(write: Write) -> None:
    """Both shapes are read."""
    assert [s.id for s in read_scenarios(write(SCENARIO))] == ["own-1"]
    assert [s.id for s in read_scenarios(write([SCENARIO, changed(id="own-2")]))] == ["own-1", "own-2"]


def test_equal_keys_are_one_object(write: Write) -> None:
    """Keys are most of what the scenarios of a large suite take, and such suites are made from templates."""
    bundled = load_suite().scenarios[0].model_dump(mode="json", by_alias=True)
    first, second = read_scenarios(write([bundled, {**bundled, "id": "own-2", "user_message": "Another one."}]))

    assert first.expected.decision is not None
    assert first.expected.decision is second.expected.decision
    assert first.expected.reply is second.expected.reply


def nested(path: Sequence[str | int], value: object) -> dict[str, Any]:
    """The scenario with one value replaced."""
    scenario = changed()
    target: Any = scenario
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return scenario


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (nested(["expected", "intensity"], [4, 2]), "expected: intensity: the first number must not exceed"),
        (nested(["expected", "intensity"], [1.0, 2]), "expected.intensity.0"),
        (nested(["expected", "should_escalate"], "no"), "expected.should_escalate"),
        (
            nested(["expected", "boundary_action"], "escalate"),
            "boundary_action is escalate but should_escalate is false",
        ),
        (nested(["expected", "reply", "word_range"], [90, 20]), "word_range: the first number"),
        (nested(["expected", "reply", "min_anchor_groups"], 3), "min_anchor_groups exceeds"),
        (nested(["expected", "detected_emotion"], ["rage"]), "expected.detected_emotion.0"),
        (nested(["expected", "reply", "issue_anchors"], []), "expected.reply.issue_anchors"),
        (changed(mood="bad"), "mood: unknown key"),
        (changed(id="no spaces allowed"), "id: "),
        ({k: v for k, v in SCENARIO.items() if k != "agent_role"}, "agent_role: missing key"),
        ("text", "0: object"),
    ],
)
def test_faults_name_file_index_and_key(write: Write, scenario: object, message: str) -> None:
    """The error says where to look and what to do."""
    path = write([changed(id="fine"), scenario])

    with pytest.raises(DataError) as raised:
        read_scenarios(path)

    assert str(raised.value).startswith(f"{path}: scenario 1")
    assert message.removeprefix("0: ") in str(raised.value)


def test_broken_json_names_line_and_column(write: Write) -> None:
    """So does a file that is no JSON at all."""
    path = write('[\n {"id": }\n]')

    with pytest.raises(DataError, match=r"own\.json:2:\d+: not valid JSON"):
        read_scenarios(path)


@pytest.mark.parametrize(("content", "message"), [(b"\xff\xfe", "not UTF-8"), (b"[" * 100_000, "not usable JSON")])
def test_hostile_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """Neither wrong encodings nor deep nesting end in a traceback."""
    path = tmp_path / "own.json"
    path.write_bytes(content)

    with pytest.raises(DataError, match=message):
        read_scenarios(path)


def test_ids_are_unique_over_all_files(write: Write) -> None:
    """Two files with the same id are no suite."""
    first, second = write(SCENARIO, "a.json"), write(SCENARIO, "b.json")

    with pytest.raises(DataError, match="'own-1' is used twice"):
        load_suite([first, second])


def test_the_order_of_files_and_sets_is_no_content(write: Write) -> None:
    """Shuffling scenarios, or alternatives within an anchor, leaves the hash alone."""
    other = changed(id="own-2")
    shuffled: Any = json.loads(json.dumps(SCENARIO))
    shuffled["expected"]["reply"]["issue_anchors"][0]["any"].reverse()

    expected = load_suite([write([SCENARIO, other], "a.json")]).suite_hash
    actual = load_suite([write(other, "c.json"), write(shuffled, "b.json")]).suite_hash

    assert actual == expected


DECISION: dict[str, Any] = {
    "acts": [
        {"id": "reprint", "role": "right", "what": "reprint it", "says": [[["print", "reprint"], ["banner", "sign"]]]},
        {"id": "refund", "role": "wrong", "what": "pay back", "why": "no help", "says": [[["refund"], ["price"]]]},
    ],
    "right": [["reprint"]],
    "facts": [{"about": [["banner"], ["ready"]], "figures": ["10:00", "ten"]}],
}


def decided(**changes: object) -> dict[str, Any]:
    """The scenario with a decision key, parts of which have other values."""
    return changed(expected={**SCENARIO["expected"], "decision": {**DECISION, **changes}})


def test_a_decision_key_is_content(write: Write) -> None:
    """It can be left out; every change of one changes the hash of the suite."""
    without, with_key = load_suite([write([SCENARIO])]), load_suite([write([decided()])])
    other = load_suite([write([decided(right=[["reprint"], ["reprint"]])])])

    assert without["own-1"].expected.decision is None
    assert with_key["own-1"].expected.decision is not None
    assert len({without.suite_hash, with_key.suite_hash, other.suite_hash}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acts": [DECISION["acts"][0]] * 2}, "every act needs an id of its own"),
        ({"right": [["refund"]]}, "'refund' is not the id of an act with role right or ask"),
        ({"right": [["copy"]]}, "'copy' is not the id"),
        ({"right": []}, "expected.decision.right"),
        ({"acts": [{**DECISION["acts"][0], "says": [[["print"]]]}]}, "says.0"),
        ({"acts": [{**DECISION["acts"][0], "says": [[["print"], ["b" * 61]]]}]}, "says.0.1.0"),
        ({"facts": [{"about": [["banner"], ["ready"]], "figures": []}]}, "figures"),
        ({"act": []}, "act"),
    ],
)
def test_faults_of_a_decision_key_are_named(write: Write, changes: dict[str, Any], message: str) -> None:
    """Ids that lead nowhere, patterns that tell nothing and excesses are refused."""
    with pytest.raises(DataError, match=re.escape(message)):
        read_scenarios(write([decided(**changes)]))


def test_canonical_form() -> None:
    """Sorted keys, NFC, no floats: the bytes of RFC 8785 on this subset."""
    assert canonical({"b": [1, True, None], "a": "e\u0301"}) == '{"a":"é","b":[1,true,null]}'.encode()
    with pytest.raises(DataError, match="float"):
        digest({"a": 0.5})
    with pytest.raises(DataError, match="not ASCII"):
        digest({"ä": 1})
