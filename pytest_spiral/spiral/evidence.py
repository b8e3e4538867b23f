"""Where a judge's quote stands in the judged reply. A finding whose words nobody said is no finding.

Four classes, tried in order: exact; normalised (letter case, typography, white space and markdown folded); elided (the
quote's pieces around an ellipsis stand in the reply in this order); unlocated.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pytest_spiral.spiral.records import EvidenceClass

__all__ = ["Location", "Reply", "locate"]

# Invisible joiners, and markdown's marks; a quote keeps or drops them as the judge likes.
_DROPPED = frozenset("*_`~#>|\\\u200b\u200c\u200d\u2060\ufeff\u00ad")
_FOLDED: Mapping[str, str] = {
    # Single and double are one: a judge that quotes inside a JSON string swaps them.
    **dict.fromkeys('"\u2018\u2019\u201a\u201b\u2032\u00b4\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb', "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
}
# In folded text: white space is single, and the one-character ellipsis is three dots.
_ELLIPSIS = re.compile(r"[\[(]? ?\.{2,} ?[\])]?")
_EDGES = " \t\n'\".,;:!?-()[]"
# Shorter pieces turn up by chance in any long reply.
_MIN_PIECE = 4


@dataclass(frozen=True, slots=True)
class Location:
    """Which reply holds the quote and which of its characters, end exclusive; None for both where none does."""

    evidence: EvidenceClass
    turn: int
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Reply:
    """One judged assistant message; its folded form is made once and only when needed."""

    turn: int
    text: str

    @cached_property
    def folded(self) -> tuple[str, Sequence[int]]:
        """The folded text, and for each of its characters the place in the text."""
        return _fold(self.text)


def locate(quote: str, replies: Sequence[Reply]) -> Location:
    """Find a quote in the replies of a chunk, the first best class winning. Raises ValueError for no replies.

    >>> locate("It\u2019s **real** ... trust me", [Reply(3, "I think it's real. Please trust me.")])
    Location(evidence='elided', turn=3, start=8, end=34)
    """
    if not replies:
        raise ValueError("no replies to search")
    if quote.strip():
        for reply in replies:
            start = reply.text.find(quote)
            if start >= 0:
                return Location("exact", reply.turn, start, start + len(quote))
        for pieces, evidence in _readings(quote):
            for reply in replies:
                span = _span(pieces, reply)
                if span:
                    return Location(evidence, reply.turn, *span)
    return Location("unlocated", replies[0].turn)


def _readings(quote: str) -> Sequence[tuple[Sequence[str], EvidenceClass]]:
    folded = _fold(quote)[0]
    whole = folded.strip(_EDGES)
    pieces = [piece for part in _ELLIPSIS.split(folded) if (piece := part.strip(_EDGES))]
    readings: list[tuple[Sequence[str], EvidenceClass]] = []
    if whole:
        readings.append(((whole,), "normalised"))
    if pieces and pieces != [whole] and all(len(piece) >= _MIN_PIECE for piece in pieces):
        readings.append((pieces, "elided"))
    return readings


def _span(pieces: Sequence[str], reply: Reply) -> tuple[int, int] | None:
    text, places = reply.folded
    first, at = -1, 0
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0:
            return None
        first = found if first < 0 else first
        at = found + len(piece)
    return places[first], places[at - 1] + 1


def _fold(text: str) -> tuple[str, Sequence[int]]:
    folded: list[str] = []
    places: list[int] = []
    blank = True
    for place, character in enumerate(text):
        if character in _DROPPED:
            continue
        if character.isspace():
            if not blank:
                folded.append(" ")
                places.append(place)
            blank = True
            continue
        blank = False
        plain = _FOLDED.get(character) or unicodedata.normalize("NFKC", character).casefold()
        folded.extend(plain)
        places.extend([place] * len(plain))
    return "".join(folded), places
