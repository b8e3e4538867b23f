"""A sentence is searched for phrases only where it holds a word that they need, and nothing is missed by that."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_spiral.tempaffect.checks.sentences import Sentence, prepare_reply
from pytest_spiral.tempaffect.lexicon import PHRASES, phrase_index
from pytest_spiral.tempaffect.required_words import PhraseIndex, required_words
from pytest_spiral.tempaffect.suite import load_suite
from tests.tempaffect.test_checks_lexicon import entries

PHRASES_BY_LIST = {name: value for name, value in entries().items() if isinstance(value, list)}


def sentence(text: str) -> Sentence:
    """A sentence of these words, whatever they are."""
    tokens = tuple(text.split())
    return Sentence(text, tokens, tokens, (" ",) * len(tokens), tokens, (False,) * len(tokens), question=False)


@pytest.mark.parametrize(
    ("expression", "needs"),
    [
        ("so that you lie", [[{"lie"}, {"so"}, {"that"}, {"you"}]]),
        ("a lie|the rules?", [[{"lie"}, {"a"}], [{"rule", "rules"}, {"the"}]]),
        ("(?:i|we) (?:can )?offer", [[{"offer"}, {"i", "we"}]]),
        ("(?<!not )(?:your|the) (?:own )?(?:fault|blame(?: game)?)(?! is)", [[{"fault", "blame"}, {"your", "the"}]]),
        (r"such (?!positive)(?:\w+ ){0,2}(?:tone|manners)", [[{"tone", "manners"}, {"such"}]]),
        ("^no$", [[{"no"}]]),
        ("polic(?:y|ies)", [[{"policy", "policies"}]]),
        ("bend(?:ing)?", [[{"bend", "bending"}]]),
        ("fabricat\\w+", [[{"fabricat*"}]]),
        ("apologi[zs]e[sd]?", [[{"apologi*"}]]),
        (r"a call|\w+ \w+", [[{"call"}, {"a"}], []]),
        ("(?:please )?", [[]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_words_that_a_phrase_needs(expression: str, needs: list[list[set[str]]]) -> None:
    """Of each alternative, the rarest words first; none where a match needs no certain word."""
    assert required_words(expression) == [tuple(map(frozenset, words)) for words in needs]


def test_a_list_may_be_said_by_all_words_of_a_phrase() -> None:
    """Any order and any distance will do, a part of the words will not; a list that needs no words always may be."""
    index = PhraseIndex({"blame": ["(?:your|the) fault", "blam\\w+"], "any": [r"\w+ \w+"]})

    assert index.lists_in(["fault", "is", "yours"]) == {"any"}
    assert index.lists_in(["fault", "of", "the", "desk"]) == {"any", "blame"}
    assert index.lists_in(["blamed"]) == {"any", "blame"}


@settings(max_examples=200)
@given(data=st.data())
def test_no_phrase_is_missed(data: st.DataObject) -> None:
    """Whatever any phrase of any list matches is found as if every sentence were searched."""
    name = data.draw(st.sampled_from(sorted(PHRASES_BY_LIST)))
    phrase = data.draw(st.sampled_from(PHRASES_BY_LIST[name]))
    text = data.draw(st.from_regex(f"(?:{phrase})", fullmatch=True, alphabet=st.characters(codec="ascii")))
    said, phrases = sentence(text), getattr(PHRASES, name)
    match = phrases.pattern.search(said.joined)
    assume(match is not None)

    found = said.find(phrases)

    assert found is not None
    assert found.span() == match.span()
    assert [each.span() for each in said.find_all(phrases)] == [
        each.span() for each in phrases.pattern.finditer(said.joined)
    ]


def test_every_list_needs_words() -> None:
    """A list of which that cannot be told is searched for in every sentence, which makes scoring slow."""
    assert [name for name in PHRASES_BY_LIST if not all(required_words("|".join(PHRASES_BY_LIST[name])))] == []


def test_most_sentences_are_not_searched() -> None:
    """In the reference replies of version 1.0, nine of ten searches are known to be in vain."""
    suite = load_suite([Path(__file__).parents[2] / "benchmarks" / "field_trial" / "scenarios_1.0.json"])
    said = [each for one in suite.scenarios for each in prepare_reply(one.reference_reply).sentences]
    searched = sum(len(phrase_index().lists_in(each.tokens)) for each in said)

    assert searched < len(said) * len(PHRASES_BY_LIST) / 10
