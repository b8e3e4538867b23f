"""The lexical profile: formulas against values worked out by hand, laws, and hostile text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tokenize import RegexpTokenizer
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

from pytest_spiral.evaluate.profile import (
    _Reply,
    count_syllables,
    flesch_kincaid_grade,
    mtld,
    spiral_profile,
)
from pytest_spiral.report.model.profile import Repetition, SpiralProfile
from pytest_spiral.text import clean


def profile(units: Sequence[Sequence[str]]) -> SpiralProfile:
    """The profile of conversations of some model."""
    return spiral_profile("m", units)


SENTENCE = "The old radio hums, and nobody in the quiet town can say why it still answers every careful question. "


def test_grade_of_a_known_text() -> None:
    """The published example: 119 words, 5 sentences, 201 syllables give grade 13.6."""
    assert flesch_kincaid_grade(119, 5, 201) == pytest.approx(0.39 * 23.8 + 11.8 * 201 / 119 - 15.59)
    assert flesch_kincaid_grade(10, 1, 10) == pytest.approx(0.11)


def test_punctuation_is_no_word() -> None:
    """Dashes, ellipses and markdown change no count."""
    plain = profile([["I hear you. Call the clinic now."] * 10])
    decorated = profile([["**I** hear -- you. Call: the _clinic_ now!!"] * 10])

    words = ("don't", "re-send", "it", "not", "at", "3", "a", "m")
    assert _Reply.of("Don't re-send it -- not at 3 a.m.!").words == words
    assert plain.words == decorated.words
    assert plain.flesch_kincaid_grade == decorated.flesch_kincaid_grade


def test_abbreviations_end_no_sentence() -> None:
    """Two sentences, not four."""
    text = "Dr. Lee wrote, e.g. about sleep. It helped. " * 10

    assert profile([[text]]).words_per_sentence == pytest.approx(9 / 2)


PIECES = [
    "Dr",
    "etc",
    "A",
    "house",
    "Yes",
    "don't",
    "3",
    "re-send",
    ".",
    "?",
    "!",
    "...",
    " ",
    "\n",
    '"',
    ")",
    "--",
    "caf\u00e9",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_sentences_are_those_of_punkt(pieces: Sequence[str]) -> None:
    """What is decided without it is decided as by it."""
    known = PunktParameters()
    known.abbrev_types = {"dr", "etc"}
    text = "".join(pieces)
    sentences = [each for each in PunktSentenceTokenizer(known).tokenize(clean(text)) if _Reply.of(each).words]

    assert _Reply.of(text).sentences == len(sentences)


@given(st.text(st.characters(max_codepoint=0x17F), max_size=200) | st.text(st.characters(codec="ascii"), max_size=200))
def test_plain_text_is_read_like_any_other(text: str) -> None:
    """ASCII goes another way through the tokeniser, and comes to the same words."""
    tokens = RegexpTokenizer(r"[^\W_]+(?:['-][^\W_]+)*").tokenize(clean(text))

    assert _Reply.of(text).words == tuple(word.lower() for word in tokens)


def test_mtld_by_hand() -> None:
    """`a b a`: ratios 1, 1, 2/3 end one factor in either direction. One word over and over ends one every 2 words."""
    assert mtld(["a", "b", "a"]) == 3
    assert mtld(["a"] * 10) == 2
    # Forwards one factor and a fresh word; backwards 3 types of 4 tokens, a part of (1 - 0.75) / (1 - 0.72) of one.
    assert mtld(["a", "b", "a", "c"]) == pytest.approx((4 / 1 + 4 / (0.25 / 0.28)) / 2)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60))
def test_mtld_reads_both_ways(words: list[str]) -> None:
    """Backwards is the same, and it is at least 1."""
    assert mtld(words) == mtld(words[::-1])
    assert mtld(words) >= 1


def test_repetition_within_and_across() -> None:
    """A text said twice repeats nearly half of itself; two equal conversations share everything."""
    once, twice = profile([[SENTENCE]]), profile([[SENTENCE, SENTENCE]])
    words = len(_Reply.of(SENTENCE).words)

    assert once.repetition == Repetition(ngram=4, within=0.0, across=None)
    assert twice.repetition.within == pytest.approx(1 - (words - 3) / (2 * (words - 3)))
    assert profile([[SENTENCE], [SENTENCE]]).repetition == Repetition(ngram=4, within=0.0, across=1.0)
    assert profile([[SENTENCE], ["none of these four"]]).repetition.across == 0.0


def test_openings_are_counted() -> None:
    """The first words, whatever punctuation stands between them."""
    result = profile([["I hear you, friend."], ["I hear -- you."], ["Call them now."]]).openings

    assert result.distinct == pytest.approx(2 / 3)
    assert (result.top[0].text, result.top[0].n) == ("i hear you", 2)


def test_a_row_for_every_turn() -> None:
    """Conversations of different length: the later turns have fewer replies."""
    rows = profile([["one", "two words"], ["one"]]).turns

    assert [(row.turn, row.replies, row.words.mean) for row in rows] == [(0, 2, 1), (1, 1, 2)]


@given(st.lists(st.lists(st.text(max_size=80), max_size=3), max_size=3))
def test_any_text_has_a_profile(units: list[list[str]]) -> None:
    """Empty, other scripts, lone surrogates: numbers or None, never an error; shares are shares."""
    result = profile(units)

    assert result.replies == sum(map(len, units))
    for share in (result.repetition.within, result.repetition.across, result.openings.distinct):
        assert share is None or 0 <= share <= 1


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=20))
def test_every_word_has_a_syllable(word: str) -> None:
    """At least one, and no more than it has letters."""
    assert 1 <= count_syllables(word) <= len(word)


def test_a_long_text_is_no_hazard() -> None:
    """A megabyte of one word, or of no word, takes no time to speak of."""
    profile([["word " * 40_000], ["-" * 200_000]])


def test_nothing_is_downloaded(lean: dict[str, str]) -> None:
    """Works where NLTK has no data and there is no network."""
    code = (
        "import socket, nltk\n"
        "def no(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = no; nltk.download = no; nltk.data.path = []\n"
        "from pytest_spiral.evaluate.profile import spiral_profile\n"
        f"print(spiral_profile('m', [[{SENTENCE!r} * 4]]).flesch_kincaid_grade > 0)\n"
    )

    environ = {**os.environ, **lean}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)

    assert done.stdout.strip() == "True"
