"""Measures of English texts: words, syllables, readability, lexical diversity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import inf
from statistics import mean

from pytest_spiral.text import clean

# Letters and digits, with apostrophes and hyphens inside a word.
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_VOWELS = re.compile("[aeiouy]+")
# Words whose syllables are remembered: people use the same few thousand.
_VOCABULARY = 2**15


def words_of(text: str) -> tuple[str, ...]:
    """Words in lower case, without punctuation.

    >>> words_of("Don't re-send it -- not at 3 a.m.!")
    ("don't", 're-send', 'it', 'not', 'at', '3', 'a', 'm')
    """
    return tuple(word.lower() for word in _WORD.findall(clean(text)))


@lru_cache(maxsize=_VOCABULARY)
def count_syllables(word: str) -> int:
    """Syllables of one lower-case English word, by vowel groups; at least 1.

    >>> [count_syllables(word) for word in ("the", "table", "made", "radio", "boundary")]
    [1, 2, 1, 2, 3]
    """
    groups = len(_VOWELS.findall(word))
    silent = word.endswith("e") and not word.endswith(("le", "ee", "ye")) and groups > 1
    return max(1, groups - silent)


def flesch_kincaid_grade(words: int, sentences: int, syllables: int) -> float:
    """US school grade: 0.39 words per sentence + 11.8 syllables per word - 15.59. All arguments are positive counts.

    Source:
        Kincaid and others (1975). Words, not tokens: punctuation makes no text harder.
    """
    return 0.39 * words / sentences + 11.8 * syllables / words - 15.59


def mtld(words: Sequence[str], ratio: float = 0.72) -> float:
    """Measure of textual lexical diversity: mean length of runs whose type-token ratio stays above a limit.

    Mean of both directions, the last run counted in part. At least 1; infinite where no word is ever repeated.

    Args:
        words: In order.
        ratio: The limit, in 0..1.

    Raises:
        ValueError: Without words.

    Source:
        McCarthy and Jarvis (2010), MTLD, vocd-D, and HD-D.
    """
    if not words:
        raise ValueError("lexical diversity needs at least one word")
    return mean((_one_way(words, ratio), _one_way(words[::-1], ratio)))


def _one_way(words: Sequence[str], ratio: float) -> float:
    factors = 0.0
    types: set[str] = set()
    tokens = 0
    for word in words:
        types.add(word)
        tokens += 1
        if len(types) / tokens <= ratio:
            factors += 1
            types, tokens = set(), 0
    if tokens:
        factors += (1 - len(types) / tokens) / (1 - ratio)
    return len(words) / factors if factors else inf
