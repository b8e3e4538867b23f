"""Normalising and tokenising: the same words whatever the spelling, spacing or alphabet trick."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.text import clean, count_words, sentences, stem, tokenize, words

HOSTILE = st.text(
    alphabet=st.one_of(
        st.characters(),
        st.sampled_from(
            "\u200b\u202e\u00ad\u2060\ufeff\u0301\u0130\u0149\uff41\u0430\u03bf\u2026\u2019\u201c'\"-.,:;0123456789 \n"
        ),
    ),
    max_size=200,
)


@given(HOSTILE)
def test_tokens_are_the_words_of_a_text(text: str) -> None:
    """`tokenize` takes a shorter way to the normal forms that `words` gives."""
    assert tokenize(text) == words(text).norms


@given(st.text(max_size=200))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    """Cleaning is idempotent and leaves no invisible character."""
    once = clean(text)

    assert clean(once) == once
    assert "\u200b" not in once


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("re\u200bfund", ["refund"]),
        ("\uff46\uff55\uff4c\uff4c width", ["full", "width"]),
        ("r\u0435fund", ["refund"]),  # Cyrillic e
        ("\u0440\u043e\u0441", ["\u0440\u043e\u0441"]),  # a word all in Cyrillic stays one
        ("don\u2019t dont", ["do", "not", "do", "not"]),
        ("I'll we've can't cannot", ["i", "will", "we", "have", "can", "not", "can", "not"]),
        ("it's Karen's", ["it", "is", "karen"]),
        ("twenty-two, two hundred and six, eighteen thousand", ["22", "206", "18000"]),
        ("one two", ["1", "2"]),
        ("41,800 and 07:30 and 3 am", ["41800", "and", "7:30", "and", "3am"]),
        ("apologise colour cheque", ["apologize", "color", "check"]),
        ("u r late", ["you", "are", "late"]),
    ],
)
def test_spellings_meet(written: str, expected: list[str]) -> None:
    """Variants of one wording give the same tokens."""
    assert tokenize(written) == expected


def test_british_and_american_words_share_a_stem() -> None:
    """The spelling map runs before the stemmer, which alone would keep the two apart."""
    british = [stem(token) for token in tokenize("apologising cancelled organisation")]
    american = [stem(token) for token in tokenize("apologizing canceled organization")]

    assert british == american


def test_words_keep_what_was_written() -> None:
    """Each token knows its written form and what stood before it."""
    result = words('Open "Returns", then can\'t')

    assert result.raws == ["Open", "Returns", "then", "can't", ""]
    assert result.before[1] == ' "'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Ask Dr. Low. He knows", ["Ask Dr. Low.", "He knows"]),
        ("first\nsecond; third", ["first", "second;", "third"]),
        ("It costs 3.50 now", ["It costs 3.50 now"]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    """Sentences end at . ? ! before a space, at line breaks and semicolons, not inside numbers or after titles."""
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't re-send it", 3),
        ("\U0001f600 \U0001f600 ok", 1),
        ("a" * 30, 1),
        ("a" * 31, 6),
        ("a" * 60, 10),
        ("zero\u200bwidth", 1),
        ("under_score", 2),
        ("", 0),
    ],
)
def test_word_count(text: str, expected: int) -> None:
    """Glued words are counted by length, emoji not at all."""
    assert count_words(text) == expected


@settings(deadline=None)
@given(st.text(max_size=300))
def test_word_count_never_raises(text: str) -> None:
    """Any text has a count, and it is never negative."""
    assert count_words(text) >= 0


def test_importing_text_leaves_the_stemmer_alone(lean: dict[str, str]) -> None:
    """nltk is loaded on first use only: collecting tests must not pay for it."""
    code = (
        "import sys, pytest_spiral.text as t; assert 'nltk' not in sys.modules; "
        "t.stem('running'); assert 'nltk' in sys.modules"
    )

    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, **lean}, check=False).returncode == 0
