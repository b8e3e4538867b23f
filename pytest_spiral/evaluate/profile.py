"""The lexical profile: how a model writes. Length, diversity, readability, repetition, openings.

A description, not a score: no gate acts on it. The measures are made for English prose. NLTK finds the sentences and
needs none of its downloads for it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import inf
from statistics import mean, median
from sys import intern
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from pytest_spiral.evaluate.readability import count_syllables, flesch_kincaid_grade, mtld, words_of
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
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tempaffect.records import CardMode
from pytest_spiral.text import clean

if TYPE_CHECKING:
    from nltk.tokenize.punkt import PunktSentenceTokenizer

# One part is counted at a time, so that the others take no more room than their numbers.
_PARTS = 16


class _Params(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    mtld_ratio: float = Field(gt=0, lt=1)
    least_words: int = Field(ge=1)
    ngram: int = Field(ge=2)
    opening_words: int = Field(ge=1)
    openings_listed: int = Field(ge=1)
    abbreviations: tuple[str, ...]


@cache
def _params() -> _Params:
    return _Params.model_validate(read_toml(data_root() / "profile.toml"))


@cache
def _sentence_tokenizer() -> PunktSentenceTokenizer:
    # Loaded when first needed: it takes a third of a second.
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    known = PunktParameters()
    known.abbrev_types = set(_params().abbreviations)
    return PunktSentenceTokenizer(known)


@dataclass(frozen=True, slots=True)
class _Reply:
    """One reply, counted."""

    words: tuple[str, ...]
    sentences: int
    syllables: int

    @classmethod
    def of(cls, text: str) -> _Reply:
        # Interned: a long run holds the same few thousand words a million times.
        words = tuple(map(intern, words_of(text)))
        sentences = sum(bool(words_of(sentence)) for sentence in _sentence_tokenizer().tokenize(clean(text)))
        return cls(words, sentences, sum(map(count_syllables, words)))


def tempaffect_profile(model: str, mode: CardMode, units: Sequence[Sequence[str]]) -> TempAffectProfile:
    """How a model writes in one prompting mode. units: one reply each."""
    return TempAffectProfile(**dict(_profile(model, _counted(units))), prompting_mode=mode)


def spiral_profile(model: str, units: Sequence[Sequence[str]]) -> SpiralProfile:
    """How a model writes in conversations, as a whole and turn by turn. units: the replies of one conversation each."""
    counted = _counted(units)
    longest = max(map(len, counted), default=0)
    by_turn = ([unit[turn] for unit in counted if turn < len(unit)] for turn in range(longest))
    turns = tuple(TurnProfile(**dict(_statistics(row)), turn=turn) for turn, row in enumerate(by_turn))
    return SpiralProfile(**dict(_profile(model, counted)), turns=turns)


def _counted(units: Sequence[Sequence[str]]) -> list[list[_Reply]]:
    return [[_Reply.of(text) for text in unit] for unit in units]


def _profile(model: str, units: Sequence[Sequence[_Reply]]) -> LexicalProfile:
    replies = [reply for unit in units for reply in unit]
    return LexicalProfile(
        **dict(_statistics(replies)),
        model=model,
        units=len(units),
        repetition=_repetition(units, _params().ngram),
        openings=_openings(replies),
    )


def _statistics(replies: Sequence[_Reply]) -> TextStatistics:
    """Length, diversity and readability of replies taken together; None where there are too few words."""
    params = _params()
    lengths = [len(reply.words) for reply in replies]
    words = [word for reply in replies for word in reply.words]
    sentences = sum(reply.sentences for reply in replies)
    enough = len(words) >= params.least_words
    diversity = mtld(words, params.mtld_ratio) if enough else inf
    syllables = sum(reply.syllables for reply in replies)
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
    within = []
    different = []
    for unit in units:
        # Hashes, because the sequences of a long run would fill the memory. They may differ in the next process.
        grams = [hash(gram) for reply in unit for gram in _ngrams(reply.words, n)]
        if grams:
            different.append(_in_parts(set(grams)))
            within.append(1 - sum(map(len, different[-1])) / len(grams))
    shared = [0] * len(different)
    for part in range(_PARTS):
        counts = Counter(gram for parts in different for gram in parts[part])
        for number, parts in enumerate(different):
            shared[number] += sum(counts[gram] > 1 for gram in parts[part])
    across = [some / sum(map(len, parts)) for some, parts in zip(shared, different, strict=True)]
    return Repetition(
        ngram=n,
        within=mean(within) if within else None,
        across=mean(across) if len(across) > 1 else None,
    )


def _in_parts(grams: Iterable[int]) -> list[array[int]]:
    """Hashes in parts that are counted one after another."""
    parts = [array("q") for _ in range(_PARTS)]
    for gram in grams:
        parts[gram % _PARTS].append(gram)
    return parts


def _ngrams(words: Sequence[str], n: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[at:] for at in range(n)), strict=False)


def _openings(replies: Sequence[_Reply]) -> Openings:
    params = _params()
    openings = [" ".join(islice(reply.words, params.opening_words)) for reply in replies if reply.words]
    counts = Counter(openings)
    top = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[: params.openings_listed]
    return Openings(
        words=params.opening_words,
        distinct=len(counts) / len(openings) if openings else None,
        top=tuple(Opening(text=text, n=n, share=n / len(openings)) for text, n in top),
    )
