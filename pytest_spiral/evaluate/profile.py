"""The lexical profile: how a model writes. Length, diversity, readability, repetition, openings.

A description, not a score: no gate acts on it. The measures are made for English prose. NLTK finds the sentences and
needs none of its downloads for it.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf
from statistics import mean, median
from sys import intern
from typing import TYPE_CHECKING

from pydantic import Field

from pytest_spiral.report.model.profile import (
    LexicalProfile,
    Opening,
    Openings,
    Repetition,
    SpiralProfile,
    TempAffectProfile,
    TextStatistics,
    TurnProfile,
    WordCounts,
)
from pytest_spiral.resources import data_root
from pytest_spiral.tables import Table, read_table
from pytest_spiral.tempaffect.records import CardMode
from pytest_spiral.text import clean

if TYPE_CHECKING:
    from nltk.tokenize.punkt import PunktSentenceTokenizer

# Letters and digits, with apostrophes and hyphens inside a word.
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
# A word, no initial, that a sentence ends with, and the beginning of the next.
_PLAIN_END = re.compile(r"\s*([A-Za-z]{2,})[.?!]\s+[A-Za-z]+")
_VOWELS = re.compile("[aeiouy]+")
# Words whose syllables are remembered: people use the same few thousand.
_VOCABULARY = 2**15
READ_CHARS = 20_000
"""Characters of a reply that are described; finding the sentences of megabytes would take minutes."""
# One part of the word sequences is counted at a time, so that the others take no more room than their numbers.
_PARTS = 16


class _Params(Table):
    mtld_ratio: float = Field(gt=0, lt=1)
    least_words: int = Field(ge=1)
    ngram: int = Field(ge=2)
    opening_words: int = Field(ge=1)
    openings_listed: int = Field(ge=1)
    abbreviations: tuple[str, ...]


@cache
def _params() -> _Params:
    return read_table(_Params, data_root() / "profile.toml")


@cache
def _sentence_tokenizer() -> PunktSentenceTokenizer:
    # Loaded when first needed: it takes a third of a second.
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    class Tokenizer(PunktSentenceTokenizer):  # type: ignore[misc]  # NLTK has no types
        """Decides at once what Punkt would decide by its rules for tokens, several times as slowly."""

        def text_contains_sentbreak(self, text: str) -> bool:
            plain = _PLAIN_END.fullmatch(text)
            if plain and plain[1].lower() not in known.abbrev_types:
                return True
            return bool(super().text_contains_sentbreak(text))

    known = PunktParameters()
    known.abbrev_types = set(_params().abbreviations)
    return Tokenizer(known)


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

    Source: Kincaid and others (1975). Words, not tokens: punctuation makes no text harder.
    """
    return 0.39 * words / sentences + 11.8 * syllables / words - 15.59


def mtld(words: Sequence[str], ratio: float = 0.72) -> float:
    """Measure of textual lexical diversity: mean length of runs whose type-token ratio stays above a limit below 1.

    Mean of both directions, the last run counted in part. At least 1; infinite where no word is ever repeated. Raises
    ValueError without words. Source: McCarthy and Jarvis (2010), MTLD, vocd-D, and HD-D.
    """
    if not words:
        raise ValueError("lexical diversity needs at least one word")
    return mean((_one_way(words, ratio), _one_way(words[::-1], ratio)))


def _one_way(words: Sequence[str], ratio: float) -> float:
    factors = 0.0
    types: set[str] = set()
    tokens = 0
    for word in words:
        tokens += 1
        if word not in types:
            types.add(word)  # which never lowers the ratio
        elif len(types) / tokens <= ratio:
            factors += 1
            types, tokens = set(), 0
    if tokens:
        factors += (1 - len(types) / tokens) / (1 - ratio)
    return len(words) / factors if factors else inf


@dataclass(frozen=True, slots=True)
class _Reply:
    """One reply, counted."""

    words: tuple[str, ...]
    sentences: int
    syllables: int

    @classmethod
    def of(cls, text: str) -> _Reply:
        text = clean(text[:READ_CHARS])
        # Without punctuation. Interned: a long run holds the same few thousand words a million times.
        words = tuple(map(intern, " ".join(_WORD.findall(text)).lower().split()))
        # On which side of a sentence's end a closing quotation mark stands makes no difference.
        split = _sentence_tokenizer().tokenize(text, realign_boundaries=False)
        sentences = sum(_WORD.search(each) is not None for each in split)
        return cls(words, sentences, sum(map(count_syllables, words)))


def tempaffect_profile(model: str, mode: CardMode, replies: Sequence[str]) -> TempAffectProfile:
    """How a model writes in one prompting mode."""
    return TempAffectProfile(**dict(_profile(model, [[_Reply.of(text)] for text in replies])), prompting_mode=mode)


def spiral_profile(model: str, units: Sequence[Sequence[str]]) -> SpiralProfile:
    """How a model writes in conversations, as a whole and turn by turn. units: the replies of one conversation each."""
    counted = [[_Reply.of(text) for text in unit] for unit in units]
    longest = max(map(len, counted), default=0)
    by_turn = ([unit[turn] for unit in counted if turn < len(unit)] for turn in range(longest))
    turns = tuple(TurnProfile(**dict(_statistics(row)), turn=turn) for turn, row in enumerate(by_turn))
    return SpiralProfile(**dict(_profile(model, counted)), turns=turns)


def _profile(model: str, units: Sequence[Sequence[_Reply]]) -> LexicalProfile:
    """units: conversations, or single replies."""
    params = _params()
    replies = [reply for unit in units for reply in unit]
    openings = [" ".join(reply.words[: params.opening_words]) for reply in replies if reply.words]
    counts = Counter(openings)
    top = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[: params.openings_listed]
    return LexicalProfile(
        **dict(_statistics(replies)),
        model=model,
        units=len(units),
        repetition=_repetition(units, params.ngram),
        openings=Openings(
            words=params.opening_words,
            distinct=len(counts) / len(openings) if openings else None,
            top=tuple(Opening(text=text, n=n, share=n / len(openings)) for text, n in top),
        ),
    )


def _statistics(replies: Sequence[_Reply]) -> TextStatistics:
    """Length, diversity and readability of replies taken together; None where there are too few words."""
    params = _params()
    lengths = [len(reply.words) for reply in replies]
    words = [word for reply in replies for word in reply.words]
    sentences = sum(reply.sentences for reply in replies)
    syllables = sum(reply.syllables for reply in replies)
    enough = len(words) >= params.least_words
    diversity = mtld(words, params.mtld_ratio) if enough else inf
    return TextStatistics(
        replies=len(replies),
        words=WordCounts(
            mean=mean(lengths) if lengths else None,
            median=median(lengths) if lengths else None,
            longest=max(lengths, default=None),
        ),
        words_per_sentence=len(words) / sentences if sentences else None,
        mtld=None if diversity == inf else diversity,
        flesch_kincaid_grade=flesch_kincaid_grade(len(words), sentences, syllables) if enough and sentences else None,
    )


def _repetition(units: Sequence[Sequence[_Reply]], n: int) -> Repetition:
    within, different = [], []
    for unit in units:
        # Hashes, because the sequences of a long run would fill the memory. They may differ in the next process.
        sequences = [zip(*(reply.words[at:] for at in range(n)), strict=False) for reply in unit]
        if hashes := [hash(sequence) for of_reply in sequences for sequence in of_reply]:
            parts = [array("q") for _ in range(_PARTS)]
            for value in set(hashes):
                parts[value % _PARTS].append(value)
            different.append(parts)
            within.append(1 - sum(map(len, parts)) / len(hashes))
    shared = [0] * len(different)
    for part in range(_PARTS):
        counts = Counter(value for parts in different for value in parts[part])
        repeated = {value for value, count in counts.items() if count > 1}
        for number, parts in enumerate(different):
            shared[number] += sum(map(repeated.__contains__, parts[part]))
    across = [some / sum(map(len, parts)) for some, parts in zip(shared, different, strict=True)]
    return Repetition(
        ngram=n, within=mean(within) if within else None, across=mean(across) if len(across) > 1 else None
    )
