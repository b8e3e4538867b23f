"""Highlights: where a reply has the words that the reasons of its checks quote.

Reasons quote normalised words, after a colon ("commit: i am recalling every copy") or, as stems, in brackets ("names
salary_sheet (salari), boss (boss)"). Words that are not located stay unmarked; the page shows every reason in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_spiral.text import clean, stem, words

__all__ = ["Mark", "find_marks"]

_BRACKETED = re.compile(r"\(([^()]+)\)")
_SPREAD = 5  # stems of one anchor lie this close: the widest gap and reversal that grounding allows


@dataclass(frozen=True, slots=True)
class Mark:
    """Characters `start` to `end` (exclusive) of a reply, quoted by `check`."""

    start: int
    end: int
    check: str


@dataclass(frozen=True, slots=True)
class _Token:
    norm: str
    stem: str
    start: int
    end: int


def find_marks(reply: str, reasons: Mapping[str, Sequence[str]]) -> tuple[Mark, ...]:
    """The highlights of a reply in order. reasons: by check."""
    tokens = _tokens(reply)
    marks = {
        Mark(tokens[first].start, tokens[last].end, check)
        for check, sentences in reasons.items()
        for sentence in sentences
        for first, last in _places(check, sentence, tokens)
    }
    return tuple(sorted(marks, key=lambda mark: (mark.start, mark.end, mark.check)))


def _tokens(reply: str) -> list[_Token]:
    """The normalised words of a reply with their offsets; the words of a contraction share theirs."""
    origin: list[int] = []
    cleaned = ""
    if reply.isascii():
        cleaned, origin = clean(reply), list(range(len(reply)))
    else:
        for index, character in enumerate(reply):
            piece = clean(character)
            cleaned += piece
            origin += [index] * len(piece)
    tokens: list[_Token] = []
    at = start = end = 0
    for word in words(cleaned, cleaned=True):
        if word.raw:
            start = cleaned.find(word.raw, at)
            if start < 0:
                break
            at = end = start + len(word.raw)
        if end:
            tokens.append(_Token(word.norm, stem(word.norm), origin[start], origin[end - 1] + 1))
    return tokens


def _places(check: str, sentence: str, tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    if check == "content_grounding":
        for named in _BRACKETED.findall(sentence):
            yield from _near(named.split(), tokens)
        return
    _, colon, phrase = sentence.partition(": ")
    if colon:
        yield from _run(phrase.split(), tokens)


def _run(phrase: Sequence[str], tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """Where the words first follow each other."""
    for first in range(len(tokens) - len(phrase) + 1) if phrase else ():
        if all(tokens[first + step].norm == word for step, word in enumerate(phrase)):
            yield first, first + len(phrase) - 1
            return


def _near(stems: Sequence[str], tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """Where all the stems first stand close together, in any order."""
    sought = set(stems)
    for first, token in enumerate(tokens):
        if token.stem not in sought:
            continue
        left = set(sought)
        for last in range(first, min(first + len(sought) + _SPREAD, len(tokens))):
            left.discard(tokens[last].stem)
            if not left:
                yield first, last
                return
