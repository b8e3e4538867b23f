"""The words without which a phrase cannot be said, told from its regular expression: most sentences need no search."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from pytest_spiral.text import function_words

_INNER = r"((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)"
# Without them an expression matches more.
_CONDITION = re.compile(rf"\(\?<?[!=]{_INNER}\)")
# What may come first or last in an expression: if it is a group, words of its own.
_GROUP = rf"\(\?:{_INNER}\)(?:[?*]|\{{\d+,\d+\}})?"
_FIRST = re.compile(rf"\^|{_GROUP}")
_LAST = re.compile(rf"(?:\$|\\b|{_GROUP})$")
_WORD = re.compile(r"([a-z0-9]+)(?:([a-z0-9]\?)|\(\?:([a-z0-9|]+)\)(\??))?")
_STEM = re.compile(r"[a-z0-9]{2,}(?![a-z0-9?*+{])")

AnyOf = frozenset[str]
"""Words of which a match holds at least one; "fake*" is any word that begins so."""
Needs = tuple[AnyOf, ...]
"""What a match needs, the rarest words first. Empty where that is not told."""


class PhraseIndex:
    """Which lists of phrases may be said by given words."""

    def __init__(self, lists: Mapping[str, Iterable[str]]) -> None:
        self._by_word: dict[str, list[tuple[str, Needs]]] = {}
        always: set[str] = set()
        for name, phrases in lists.items():
            for needs in required_words("|".join(phrases)):
                for word in needs[0] if needs else ():
                    self._by_word.setdefault(word, []).append((name, needs[1:]))
                if not needs:
                    always.add(name)
        self._always = frozenset(always)
        others = (words for phrases in self._by_word.values() for _, needs in phrases for words in needs)
        self._known = AnyOf().union(self._by_word, *others)
        self._longest = max(map(len, self._known), default=0)
        self._cues = lru_cache(maxsize=16384)(self._find_cues)

    def lists_in(self, tokens: Iterable[str]) -> frozenset[str]:
        """Names of the lists of which some phrase has all its words among the tokens."""
        cues = {cue for token in set(tokens) for cue in self._cues(token)}
        found = set(self._always)
        for cue in self._by_word.keys() & cues:
            for name, others in self._by_word[cue]:
                for words in others:
                    if cues.isdisjoint(words):
                        break
                else:
                    found.add(name)
        return frozenset(found)

    def _find_cues(self, token: str) -> tuple[str, ...]:
        """The needed words that a token is or begins with."""
        beginnings = (f"{token[:length]}*" for length in range(1, min(len(token), self._longest) + 1))
        return tuple(word for word in (token, *beginnings) if word in self._known)


def required_words(expression: str) -> list[Needs]:
    """What every match needs, for each alternative of an expression."""
    alternatives = _parts(_CONDITION.sub("", expression), "|")
    needs = (filter(None, map(_words_of, _parts(alternative, " "))) for alternative in alternatives)
    # Words of grammar are in every sentence.
    return [tuple(sorted(words, key=lambda of: (len(of & function_words()), len(of)))) for words in needs]


def _words_of(piece: str) -> AnyOf:
    """The words that a piece between two spaces may be; empty where they cannot be told."""
    while (first := _FIRST.match(piece)) and all(part[-1:] in ("^", " ") for part in _parts(first[1] or "^", "|")):
        piece = piece[first.end() :]
    while (last := _LAST.search(piece)) and all(part[:1] in ("$", " ") for part in _parts(last[1] or "$", "|")):
        piece = piece[: last.start()]
    if piece.startswith("(?:") and next(_parts(piece[3:], ")")) == piece[3:-1]:
        alternatives = required_words(piece[3:-1])
        return AnyOf().union(*(needs[0] for needs in alternatives)) if all(alternatives) else AnyOf()
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
