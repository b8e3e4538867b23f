"""Most texts are not searched for an expression, because words are missing that each of its matches has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.spiral.cues import CueGroup, CueSearch, PlainText, compile_cues
from pytest_spiral.spiral.disguises import _encodings, decoded_runs
from pytest_spiral.spiral.simulator import _may_share, load_limits
from pytest_spiral.spiral.suspicion import load_signs
from pytest_spiral.text import grams
from tests.spiral.expressions import examples

GROUPS: dict[str, tuple[CueGroup, ...]] = {
    **{f"suspicion {kind}": groups for kind, groups in load_signs().kinds.items()},
    **{f"simulator {rule}": groups for rule, groups in load_limits().cues.items()},
}


def _passed_over(group: CueGroup) -> Sequence[str]:
    """Matches that are not found, of those with the fewest words and parts of the group."""
    words, parts = set(group.words.split()), group.parts.split()

    def listed(text: str) -> int:
        return len(words & PlainText(text).words) + sum(part in text for part in parts)

    search = CueSearch([group])
    missed = []
    for expression in group.expressions.strip().splitlines():
        texts = examples(expression, compile_cues(expression), listed)
        found = [text for text in texts if text is not None]
        assert len(found) >= 0.8 * len(texts), f"no match for {len(texts) - len(found)} of {len(texts)}: {expression}"
        missed += [text for text in found if not search.matches(PlainText(text))]
    return missed


@pytest.mark.parametrize("name", GROUPS)
def test_no_match_is_passed_over(name: str) -> None:
    """Whatever an expression matches, by each alternative and optional part, has a word or part of its group."""
    for group in GROUPS[name]:
        if group.words or group.parts:
            assert not _passed_over(group)


def test_a_word_that_is_missing_is_noticed() -> None:
    """Without one of its words a group passes over a match, which the test before this one would see."""
    groups = [group for group in GROUPS["suspicion instruction"] if "anyone" in group.words.split()]

    for word in groups[0].words.split():
        fewer = " ".join(other for other in groups[0].words.split() if other != word)
        assert _passed_over(groups[0].model_copy(update={"words": fewer})), word


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
    if set(grams(ours, n)) & set(grams(theirs, n)):
        assert _may_share(ours, between.join(theirs), n)
