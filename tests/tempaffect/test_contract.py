"""Strict parsing: one JSON object, exactly as asked, or a reason code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pytest_spiral.status import Reason, ReasonCode
from pytest_spiral.tempaffect.contract import output_schema, parse_output, recoverable
from pytest_spiral.tempaffect.records import Answer
from pytest_spiral.tempaffect.scenario import BoundaryAction, Emotion, ResponseStrategy, SupportStage, UserNeed
from pytest_spiral.tempaffect.stand_ins import MALFORMATIONS

FIELDS: dict[str, Any] = {
    "detected_emotion": "anger",
    "intensity": 3,
    "user_need": "specific_action",
    "support_stage": "act",
    "response_strategy": "validate_then_plan",
    "boundary_action": "continue_helping",
    "should_escalate": False,
    "reply": "The form is with Dana now.",
}
VALID = json.dumps(FIELDS)


def code(text: str, finish: str = "stop") -> ReasonCode:
    """Why an output is invalid."""
    result = parse_output(text, finish)
    assert isinstance(result, Reason), result
    return result.code


def test_a_valid_answer_is_read() -> None:
    """All eight fields arrive, white space of JSON around them allowed."""
    assert parse_output(f" \n\t{VALID}\r\n") == Answer(**FIELDS)


def test_schema_and_scenario_share_their_values() -> None:
    """The enums shown to the model are those of the key."""
    schema: dict[str, Any] = dict(output_schema())
    properties = schema["properties"]

    assert tuple(properties["detected_emotion"]["enum"]) == get_args(Emotion)
    assert tuple(properties["user_need"]["enum"]) == get_args(UserNeed)
    assert tuple(properties["support_stage"]["enum"]) == get_args(SupportStage)
    assert tuple(properties["response_strategy"]["enum"]) == get_args(ResponseStrategy)
    assert tuple(properties["boundary_action"]["enum"]) == get_args(BoundaryAction)
    assert list(schema["required"]) == list(FIELDS)


@pytest.mark.parametrize(("expected", "damage"), MALFORMATIONS.items())
def test_every_malformation_has_its_reason(expected: str, damage: Callable[[str], str]) -> None:
    """Each kind of damage is rejected under its own code."""
    assert code(damage(VALID)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VALID.replace("false", "0"), "wrong_type"),
        (VALID.replace(": 3", ": true"), "wrong_type"),
        (VALID.replace(": 3", ': "3"'), "wrong_type"),
        (VALID.replace(": 3", ": 3e0"), "float_number"),
        (VALID.replace(": 3", ": -3"), "out_of_range"),
        (VALID.replace(": 3", ": " + "9" * 5000), "wrong_type"),
        (VALID.replace("anger", "Anger"), "enum_spelling"),
        (VALID.replace("anger", "anger "), "enum_spelling"),
        (VALID.replace("specific_action", "specific action"), "enum_spelling"),
        ("[" * 100_000, "output_too_long"),
        ('{"a":' * 3000, "too_deep"),
        ("[" * 65 + "]" * 65, "too_deep"),
        ("[" * 64 + "]" * 64, "root_not_object"),
        (VALID.replace("anger", "[{" * 200), "bad_enum"),
        ("null", "root_not_object"),
        ("\ufeff" + VALID, "leading_text"),
        ("\u00a0" + VALID, "leading_text"),
        ("{'detected_emotion': 'anger'}", "single_quotes"),
        ("{}", "missing_key"),
        ("   ", "empty_output"),
    ],
)
def test_the_traps_of_json_libraries(text: str, expected: str) -> None:
    """What JSON libraries let through by themselves is caught."""
    assert code(text) == expected


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("length", "truncated"),
        ("refusal", "refusal"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_call"),
    ],
)
def test_cut_and_refused_outputs_are_invalid(finish: str, expected: str) -> None:
    """How generation ended counts, even where the text looks whole."""
    assert code(VALID, finish) == expected


def test_a_reasoning_block_is_not_an_answer_even_inside_the_reply() -> None:
    """Reasoning markup in the content is a broken contract wherever it stands."""
    assert code(VALID.replace("The form", "<think>hm</think> The form")) == "think_block"


@pytest.mark.parametrize("kind", ["code_fence", "leading_text", "trailing_text"])
def test_a_lenient_reader_would_have_recovered(kind: str) -> None:
    """Wrapping is recoverable, and reported as such only."""
    assert recoverable(MALFORMATIONS[ReasonCode(kind)](VALID))


@pytest.mark.parametrize("kind", ["missing_key", "bad_enum", "float_number", "truncated", "single_quotes"])
def test_wrong_content_is_not_recoverable(kind: str) -> None:
    """No lenient reading makes a wrong answer right."""
    assert not recoverable(MALFORMATIONS[ReasonCode(kind)](VALID))


@given(st.text(max_size=300))
def test_any_text_gets_an_answer_or_a_reason(text: str) -> None:
    """The parser never raises."""
    assert isinstance(parse_output(text), Answer | Reason)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "extra"]), JSON, max_size=9))
def test_strict_is_never_laxer_than_the_schema(document: dict[str, object]) -> None:
    """What the strict reader accepts, the published schema accepts."""
    if isinstance(parse_output(json.dumps({**FIELDS, **document})), Answer):
        assert Draft202012Validator(dict(output_schema())).is_valid({**FIELDS, **document})
