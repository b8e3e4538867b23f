"""The quick look for cues: whatever an expression matches, it has seen coming."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_spiral.spiral.cues import Hints, any_of
from pytest_spiral.spiral.simulator import load_limits
from pytest_spiral.spiral.suspicion import load_signs

EXPRESSIONS = [r"\bend\s+of\b", r"^\W*(?:system|judge)\s*:", r"(?<!no\s)\bway\b", r"as\s+an\s+ai", r"={4,}", r"\Abye"]


@pytest.mark.parametrize("text", ["end of", "the end of it", "so\n-- judge: no", "judge:", "a way", "x====", "bye now"])
def test_what_could_match_is_hinted(text):
    """At the beginning of the text, of a line, of a word and inside."""
    assert any_of(EXPRESSIONS).search(text)
    assert Hints(EXPRESSIONS).anything_in(text)


@pytest.mark.parametrize("text", ["", "bend of", "the system says", "nothing here", "an ai"])
def test_most_texts_are_not(text):
    """Otherwise the look would save nothing."""
    assert not Hints(EXPRESSIONS).anything_in(text)


SHIPPED = {
    "suspicion": (load_signs().hints, list(load_signs().patterns.values())),
    "simulator": (load_limits().hints, list(load_limits().patterns.values())),
}


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_match_of_a_shipped_expression_is_missed(name, data):
    """Texts made from the expressions themselves, with something before and after."""
    hints, patterns = SHIPPED[name]
    pattern = data.draw(st.sampled_from(patterns))
    text = data.draw(st.from_regex(pattern)).lower()
    around = st.sampled_from(["", " ", "\n", "so ", "so, ", "x", "- "])
    text = data.draw(around) + text + data.draw(around)
    assume(re.search(pattern, text))
    assert hints.anything_in(text)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_alternative_of_the_data_is_hinted(name):
    """One that begins at a word boundary goes on with a letter or digit, as the quick look takes for granted."""
    kinds = (load_signs().kinds if name == "suspicion" else load_limits().cues.model_dump()).values()
    for line in (line for lines in kinds for line in lines.splitlines() if line.startswith(r"\b")):
        assert re.match(r"\\b(?:[a-z0-9]|\(\?:[a-z0-9(])", line), line
