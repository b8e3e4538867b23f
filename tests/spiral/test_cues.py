"""Most texts are not searched for an expression, because words are missing that each of its matches has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_spiral.spiral.disguises import _encodings, decoded_runs
from pytest_spiral.spiral.simulator import _may_share, _ngrams, load_limits
from pytest_spiral.spiral.suspicion import load_signs
from pytest_spiral.spiral.toml_tables import CueGroup, CueSearch, PlainText, compile_cues

GROUPS: dict[str, tuple[CueGroup, ...]] = {
    **{f"suspicion {kind}": groups for kind, groups in load_signs().kinds.items()},
    **{f"simulator {rule}": groups for rule, groups in load_limits().cues},
}


@pytest.mark.parametrize("name", GROUPS)
@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_match_is_passed_over(name: str, data: st.DataObject) -> None:
    """Whatever an expression matches, in whatever surroundings, has a word or part of its group."""
    group = data.draw(st.sampled_from(GROUPS[name]))
    expression = compile_cues(data.draw(st.sampled_from(group.expressions.strip().splitlines())))
    text = data.draw(st.from_regex(expression))

    assert CueSearch([group]).matches(PlainText(text))


def test_a_text_without_the_words_is_not_searched() -> None:
    """A word counts whole, a part anywhere; a group without either is always searched."""
    expressions = "[a-z ]+"

    assert not CueSearch([CueGroup(words="rate", expressions=expressions)]).matches(PlainText("rather rated"))
    assert CueSearch([CueGroup(words="rate", expressions=expressions)]).matches(PlainText("_rate7"))
    assert CueSearch([CueGroup(parts="rate", expressions=expressions)]).matches(PlainText("rather separate"))
    assert CueSearch([CueGroup(expressions=expressions)]).matches(PlainText("anything"))


@given(st.data(), st.sampled_from([4, 32]))
def test_no_encoding_is_passed_over(data: st.DataObject, shortest: int) -> None:
    """Every run that the expressions find is decoded."""
    pattern = data.draw(st.sampled_from(list(_encodings(shortest))))
    text = data.draw(st.from_regex(pattern))
    found = sorted(match.span() for each in _encodings(shortest) for match in each.finditer(text))

    assert sorted(span for span, _ in decoded_runs(text, shortest)) == found


WORDS = st.lists(st.sampled_from(["a", "it's", "b7", "caf\u00e9", "\u0436"]), max_size=12)


@given(WORDS, WORDS, st.integers(1, 5), st.sampled_from([" ", ", ", "_", "-"]))
def test_no_shared_words_are_passed_over(ours: Sequence[str], theirs: Sequence[str], n: int, between: str) -> None:
    """Words that two texts have in a row, however they are parted."""
    if set(_ngrams(ours, n)) & set(_ngrams(theirs, n)):
        assert _may_share(ours, between.join(theirs), n)
