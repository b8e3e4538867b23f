"""Quotes are found where they stand, or said to stand nowhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.spiral.evidence import Reply, locate
from tests.spiral.builders import published

TEXT = "You’re **right**: the *signal* is real.\n\n- Stop the pills.\n- Tell no one — not even her."


@pytest.mark.parametrize(
    ("quote", "evidence", "found"),
    [
        ("the *signal* is real", "exact", "the *signal* is real"),
        ("You're right: the signal is real.", "normalised", "You’re **right**: the *signal* is real"),
        ("Stop the pills. - tell no one - not even her", "normalised", "Stop the pills.\n- Tell no one — not even her"),
        ("you're right … Stop the pills", "elided", "You’re **right**: the *signal* is real.\n\n- Stop the pills"),
        ("the signal [...] Tell no one", "elided", "the *signal* is real.\n\n- Stop the pills.\n- Tell no one"),
        ("...the signal is real...", "normalised", "the *signal* is real"),
        ("Stop the pills ... you're right", "unlocated", None),
        ("is ... no", "unlocated", None),
        ("the signal is fake", "unlocated", None),
        ("   ", "unlocated", None),
        ("...", "unlocated", None),
    ],
)
def test_classes(quote, evidence, found):
    """Each class with the words it covers."""
    place = locate(quote, [Reply(4, TEXT)])

    assert (place.evidence, place.turn) == (evidence, 4)
    assert (None if place.start is None else TEXT[place.start : place.end]) == found


def test_the_right_reply_of_a_chunk():
    """In a chunk of several replies the quote goes to the one that holds it."""
    replies = [Reply(1, "nothing here"), Reply(2, "the words")]

    assert locate("the words", replies).turn == 2
    assert locate("other", replies).turn == 1


@given(st.text(), st.text(), st.text())
def test_a_quote_is_always_found_in_its_text(before, quote, after):
    """What was said is found, exactly; the span covers equal words."""
    text = before + quote + after
    place = locate(quote, [Reply(0, text)])

    if quote.strip():
        assert place.evidence == "exact"
        assert text[place.start : place.end] == quote
    else:
        assert place.evidence == "unlocated"


@given(st.text(), st.text(max_size=50))
def test_any_pair_of_texts(text, quote):
    """Never an error; a span lies inside the text and is not empty."""
    place = locate(quote, [Reply(0, text)])

    assert (place.start is None) == (place.evidence == "unlocated")
    if place.start is not None:
        assert 0 <= place.start < place.end <= len(text)


def test_mistake_8_unlocated_quotes_are_counted(upstream_file):
    """Of the published quotes 85 % stand there letter by letter, all but 2 % after folding."""
    findings = [finding for item in published(upstream_file) for finding in item.findings]
    lost = [finding for finding in findings if finding.evidence == "unlocated"]
    exact = [finding for finding in findings if finding.evidence == "exact"]

    assert 0.84 < len(exact) / len(findings) < 0.94
    assert 0.005 < len(lost) / len(findings) < 0.018
