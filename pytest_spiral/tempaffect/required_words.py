"""Words that a phrase cannot do without, told from its regular expression: most sentences need no search for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_spiral.text import function_words

_INNER = r"((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)"
# What may come first or last in an expression: if it is a group, words of its own.
_FIRST = re.compile(rf"\^|\(\?<!{_INNER}\)|\(\?:{_INNER}\)[?*]?")
_LAST = re.compile(rf"(?:\$|\\b|\(\?!{_INNER}\)|\(\?:{_INNER}\)[?*]?)$")
_WORD = re.compile(r"([a-z0-9]+)(?:([a-z0-9]\?)|\(\?:([a-z0-9|]+)\)(\??))?")
_STEM = re.compile(r"[a-z0-9]{2,}(?![a-z0-9?*+{])")


def required_words(expression: str) -> frozenset[str]:
    """Words of which every match holds at least one; "fake*" is any word that begins so. Empty if that is not told."""
    found: set[str] = set()
    for branch in _parts(expression, "|"):
        options = [words for piece in _parts(branch, " ") if (words := _words_of(piece))]
        if not options:
            return frozenset()
        # The rarest: words of grammar are in every sentence.
        found |= min(options, key=lambda words: (len(words & function_words()), len(words)))
    return frozenset(found)


def _words_of(piece: str) -> frozenset[str]:
    """The words that a piece between two spaces may be; empty where they cannot be told."""
    while (first := _FIRST.match(piece)) and all(part[-1:] in ("^", " ") for part in _parts(first[2] or "^", "|")):
        piece = piece[first.end() :]
    while (last := _LAST.search(piece)) and all(part[:1] in ("$", " ") for part in _parts(last[2] or "$", "|")):
        piece = piece[: last.start()]
    if piece.startswith("(?:") and next(_parts(piece[3:], ")")) == piece[3:-1]:
        return required_words(piece[3:-1])
    if word := _WORD.fullmatch(piece):
        begin, letter, endings, optional = word.groups()
        if letter:
            return frozenset({begin, begin + letter[0]})
        whole = {begin + ending for ending in (endings or "").split("|")}
        return frozenset(whole | {begin} if optional else whole)
    stem = _STEM.match(piece)
    return frozenset({f"{stem[0]}*"} if stem else ())


def _parts(expression: str, separator: str) -> Iterator[str]:
    """The parts of an expression between separators that are in no group."""
    start = depth = 0
    for at, sign in enumerate(expression):
        if sign == separator and not depth:
            yield expression[start:at]
            start = at + 1
        depth += (sign in "([") - (sign in ")]")
    yield expression[start:]
