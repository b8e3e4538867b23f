"""How much of a reply stands in the situation that the model was given. Pure.

A situation names facts, people and permitted acts, so that its words are also those of a good reply: what counts is
whether long runs of them are. A paraphrase is not found.
"""

from __future__ import annotations

from functools import lru_cache

from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import ItemScore
from pytest_spiral.text import Gram, covered_share, grams, tokenize


def is_copied(score: ItemScore) -> bool:
    """Whether the reply of a valid answer is mostly taken from the situation."""
    assert score.answer is not None
    share = copied_share(score.scenario.agent_context, score.answer.reply)
    return share * 1000 >= load_params().publication.copied_share


def copied_share(situation: str, reply: str) -> float:
    """Share of the reply's words, 0..1, that lie in runs of words which the situation has as well.

    A run has at least as many words as `publication.copied_gram` says.
    """
    size, words = load_params().publication.copied_gram, tokenize(reply)
    return covered_share(words, size, _grams(situation, size).__contains__)


@lru_cache(maxsize=1024)
def _grams(text: str, size: int) -> frozenset[Gram]:
    return frozenset(grams(tokenize(text), size))
