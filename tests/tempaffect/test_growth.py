"""No text takes more than its share: reading and checking grow with the length of a text, not with its square."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_spiral.strict_json import JsonFault, StrictJson
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.contract import parse_output, recoverable
from pytest_spiral.tempaffect.lexicon import PHRASES
from pytest_spiral.tempaffect.suite import load_suite
from tests.fakes.growth import assert_linear

SCENARIO = next(s for s in load_suite().scenarios if s.expected.boundary_action != "continue_helping")


def check(text: str) -> None:
    """All reply checks."""
    check_reply(SCENARIO, text)


def read_strictly(text: str) -> None:
    """A text as JSON, with its nesting bounded."""
    try:
        StrictJson(max_nesting=64).loads(text)
    except (JsonFault, ValueError):
        return


@pytest.mark.parametrize(
    ("before", "unit", "after"),
    [
        ("", "=", ""),
        ("", " ", ""),
        ("", "a", ""),
        ("", "1", ":30"),
        ("", ".", "x"),
        (".", '"', "x"),
        ("", "mr. ", ""),
        ("", "is ", ""),
        ("", "really ", ""),
        ("", "not ", ""),
        ("", "i am sending ", ""),
        ("if a ", "had ", ""),
        ("", '"sorry you feel that way" ', ""),
    ],
)
def test_the_reply_checks_grow_with_the_reply(before: str, unit: str, after: str) -> None:
    """Signs, letters, words, abbreviations and phrases, repeated."""
    assert_linear(check, lambda size: before + unit * (size // len(unit)) + after, 600)


@pytest.mark.parametrize("unit", ["is ", "really ", "=", "a"])
def test_a_phrase_list_grows_with_the_reply(unit: str) -> None:
    """No phrase begins again at every word that it may also go on with."""
    assert_linear(PHRASES.apologies.pattern.findall, lambda size: unit * (size // len(unit)), 1200)


def test_one_long_number_costs_no_more_than_its_digits() -> None:
    """A phrase list that could split a word in many ways would double its work with every digit."""
    assert_linear(check, lambda size: "Sounds like " + "1" * size + ":30 to me.", 3)


@pytest.mark.parametrize("read", [parse_output, recoverable, read_strictly])
@pytest.mark.parametrize(
    ("before", "unit", "after"),
    [("```", " ", ""), ("", "`", ""), ("", '\\"', "\\"), ('{"a": "', '\\"', "\\"), ("", "[", ""), ("", "=", "")],
)
def test_reading_an_output_grows_with_the_output(
    read: Callable[[str], object], before: str, unit: str, after: str
) -> None:
    """Fences that never close, escaped quotation marks, brackets."""
    assert_linear(read, lambda size: before + unit * (size // len(unit)) + after, 1200)
