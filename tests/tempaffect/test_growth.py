"""No text takes more than its share: reading and checking grow with the length of a text, not with its square."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest

from pytest_spiral.strict_json import JsonFault, StrictJson
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.contract import parse_output, recoverable
from pytest_spiral.tempaffect.lexicon import PHRASES
from pytest_spiral.tempaffect.suite import load_suite

SCENARIO = next(s for s in load_suite().scenarios if s.expected.boundary_action != "continue_helping")
FACTOR = 8  # times longer; eight times the work is linear, 64 times quadratic
MOST = 32  # times the work, and as much again as a machine is uneven
UNEVEN = 0.005  # seconds of CPU that decide nothing


def check(text: str) -> None:
    """All reply checks."""
    check_reply(SCENARIO, text)


def read_strictly(text: str) -> None:
    """A text as JSON, with its nesting bounded."""
    try:
        StrictJson(max_nesting=64).loads(text)
    except (JsonFault, ValueError):
        return


def cost(read: Callable[[str], object], text: str) -> float:
    """Seconds of CPU, the least of three tries."""
    tries = []
    for _ in range(3):
        start = process_time()
        read(text)
        tries.append(process_time() - start)
    return min(tries)


def assert_linear(read: Callable[[str], object], make: Callable[[int], str], size: int) -> None:
    """The text that is `FACTOR` times as long costs at most `MOST` times as much."""
    short, long = cost(read, make(size)), cost(read, make(FACTOR * size))

    assert long <= MOST * short + UNEVEN, f"{short:.4f} s for {size} signs, {long:.4f} s for {FACTOR} times as many"


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
    assert_linear(PHRASES.apologies.findall, lambda size: unit * (size // len(unit)), 1200)


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
