"""Whatever reads text of a model grows with its length: 60,000 equal signs or megabytes stop nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_spiral.chat import Message
from pytest_spiral.evaluate.profile import READ_CHARS, spiral_profile
from pytest_spiral.models.completion import read_error
from pytest_spiral.models.endpoint import Secret
from pytest_spiral.report.lines import plain
from pytest_spiral.spiral import lexical
from pytest_spiral.spiral.content import load_persona
from pytest_spiral.spiral.evidence import SourceText, located_finding
from pytest_spiral.spiral.judging import parse_judge_reply
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.simulator import rules_for, simulator_health
from pytest_spiral.tempaffect.detectors import detect
from pytest_spiral.tempaffect.suite import load_suite
from pytest_spiral.text import clean, count_words, sentences, tokenize
from tests.fakes.growth import assert_linear
from tests.spiral.builders import attempted
from tests.tempaffect.cards import item

SCENARIO = load_suite().scenarios[0]


def find_cues(text: str) -> None:
    """The built-in judge, all behaviours, without what it remembers of earlier replies."""
    lexical._marked.cache_clear()
    lexical.lexical_final([Message("assistant", text)], load_protocol("per-chunk").finals)


def play(text: str) -> None:
    """All rules of the simulated user."""
    said = [Message("user", "hello"), Message("assistant", text), Message("user", text)]
    simulator_health(said, (None, None), rules_for(load_persona().text))


def locate(text: str) -> None:
    """A judge's quote, exact, folded and elided."""
    source = SourceText(0, text)
    located_finding("sycophancy", f"missing ... {text[:40]}", 1, "j", [source], [source])


def judge(text: str) -> None:
    """A judge's reply."""
    attempted(lambda: parse_judge_reply(text, ["pushback"], [SourceText(0, "x")]))


def read_text(text: str) -> None:
    """What both suites do to a text first."""
    tokenize(text)
    sentences(clean(text))
    count_words(text)


def page_of_error(text: str) -> None:
    """An error body that may be a page."""
    read_error(f"<html>{text}".encode("utf-8", "replace"))


READERS = [read_text, find_cues, play, locate, judge, plain, Secret("a-key-of-some-length").redact, page_of_error]
UNITS = [
    *(
        "=",
        " ",
        "\n",
        '"',
        "'",
        "`",
        "a",
        "1",
        "(",
        "[",
        "{",
        "<",
        "\u0301",
        "\U0001f600",
        ".",
        "!",
        "-",
        "*",
        "#",
        "_",
    ),
    *("as an ai ", "**a", "](", "- ", "\n- ", '{"', "1:", "1,", "sk-", "Bearer ", "<title", "twenty ", "3 am "),
]


@pytest.mark.parametrize("read", READERS)
def test_what_reads_a_reply_grows_with_it(read: Callable[[str], object]) -> None:
    """Signs, letters, brackets and the beginnings of what each expression looks for, repeated, and never ended."""
    for unit in UNITS:
        for before, after in (("", ""), ("x ", "x")):
            # Bound at once: both lengths are made from the same unit.
            assert_linear(read, lambda n, u=unit, b=before, a=after: b + u * (n // len(u)) + a, 1000)  # type: ignore[misc]


@pytest.mark.parametrize("unit", ["=", "? ", "a. ", "word "])
def test_a_profile_describes_the_beginning_of_a_long_reply(unit: str) -> None:
    """Three million characters are described as their first ones."""
    first, whole = ((unit * (size // len(unit) + 1))[:size] for size in (READ_CHARS, 3_000_000))

    assert spiral_profile("m", [[whole]]) == spiral_profile("m", [[first]])


@pytest.mark.parametrize("unit", ["=", "a ", "\n", '"', '{"a":', "```"])
def test_an_output_of_three_million_characters_is_an_invalid_one(unit: str) -> None:
    """It is scored and reported at once, by its length."""
    found = item(SCENARIO, "x" + unit * (3_000_000 // len(unit)) + "x")

    assert found.reason is not None
    assert found.reason.code == "output_too_long"
    score = found.scored({SCENARIO.id: SCENARIO})
    assert score is not None
    assert detect([score]).templated == (False,)
