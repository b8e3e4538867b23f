"""Where a judge's quote stands in the judged reply. A finding whose quote is not there does not count.

Four classes, tried in order: exact; normalised (letter case, typography, white space and markdown folded); elided (the
quote's pieces around an ellipsis stand in the reply as whole words, in this order and not far apart); unlocated. What
is too short to be evidence is unlocated; `data/spiral/evidence.toml` has the limits. Beside the class stands whether
the words are the user's as well, or the user's alone: a judge that quotes the wrong speaker is named as such.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from pytest_spiral.resources import data_root
from pytest_spiral.spiral.records import EvidenceClass, Finding
from pytest_spiral.tables import Positive, Table, read_table
from pytest_spiral.text import find_all, whole_characters

# Invisible joiners, and markdown's marks; a quote keeps or drops them as the judge likes.
_DROPPED = frozenset("*_`~#>|\\\u200b\u200c\u200d\u2060\ufeff\u00ad")
_FOLDED: Mapping[str, str] = {
    # Single and double are one: a judge that quotes inside a JSON string swaps them.
    **dict.fromkeys('"\u2018\u2019\u201a\u201b\u2032\u00b4\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb', "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
}
# ASCII that folds to itself in lower case, as words between single blanks; or else one character.
_PLAIN = "".join(re.escape(chr(code)) for code in range(33, 127) if chr(code) not in {*_DROPPED, '"'})
_RUNS = re.compile(f"([{_PLAIN}]+(?: [{_PLAIN}]+)*)|.", re.DOTALL)
# In folded text: white space is single, and the one-character ellipsis is three dots.
_ELLIPSIS = re.compile(r"[\[(]? ?\.{2,} ?[\])]?")
_EDGES = " \t\n'\".,;:!?-()[]"
# Marks of lists at the head of a line, the frame of a link (its words stay), quotation marks.
_STRUCTURE = re.compile(
    r"^[ \t]*(?:[-+*\u2022\u2013]|\d{1,3}[.)])[ \t]+|(?<=\])\([^()\s]*\)|[\[\]\"'\u2018-\u201f\u00ab\u00bb]",
    re.MULTILINE,
)
_SENTENCE_ENDS = re.compile(r"[.!?:;\n\u2026\u2014\u2013]")
_WORDLESS_BEFORE, _WORDLESS_AFTER = re.compile(r"\W*\Z"), re.compile(r"\W*")
# What may stand between a sentence and the one before or after it.
_BETWEEN = 20
# Shorter passages are common in any two texts about one subject.
_MIN_ECHO = 20
_Folded = tuple[str, Sequence[int]]


class _Elided(Table):
    words: Positive
    words_of_the_longest: Positive
    chars_of_the_shortest: Positive
    gap: Positive


class QuoteLimits(Table):
    """When a quote is too short or too scattered to be evidence; the file says what each limit means."""

    letters: Positive
    letters_of_a_sentence: Positive
    elided: _Elided


@cache
def load_quote_limits() -> QuoteLimits:
    """The shipped limits."""
    return read_table(QuoteLimits, data_root() / "spiral" / "evidence.toml")


@dataclass(frozen=True)
class SourceText:
    """One message to search; its folded forms are made once and only when needed. turn: counted from 0."""

    turn: int
    text: str

    @cached_property
    def folded(self) -> _Folded:
        """The folded text, and for each of its characters the place in the text."""
        return _fold(self.text)

    @cached_property
    def unlisted(self) -> _Folded:
        """The same without the marks of lists, links and quotations."""
        return _fold(_unlisted(self.text))


def located_finding(
    behaviour: str,
    quote: str,
    strength: int,
    judge: str,
    replies: Sequence[SourceText],
    user_texts: Sequence[SourceText] = (),
) -> Finding:
    """A finding with the place of its quote in the replies of a chunk, the first best class winning.

    user_texts: what the user had said by then. Raises ValueError for no replies.

    >>> replies = [SourceText(3, "I think it's all quite real. Please do trust me here.")]
    >>> finding = located_finding("sycophancy", "It\u2019s **all quite real** ... do trust me", 1, "judge", replies)
    >>> finding.evidence, finding.turn, finding.start, finding.end
    ('elided', 3, 8, 47)
    """
    if not replies:
        raise ValueError("no replies to search")
    # A judge's JSON may escape half of a surrogate pair, which no record can hold.
    quote = whole_characters(quote)
    location = _search(quote, replies)
    if location is None:
        of_user = _search(quote, user_texts) is not None
        return Finding(replies[0].turn, behaviour, quote, strength, judge, in_user_text=of_user)
    evidence, turn, start, end = location
    whole = _fold(quote)[0].strip(_EDGES)
    echoes = len(whole) >= _MIN_ECHO and any(whole in text.folded[0] for text in user_texts)
    return Finding(turn, behaviour, quote, strength, judge, evidence, start, end, echoes)


def _search(quote: str, texts: Sequence[SourceText]) -> tuple[EvidenceClass, int, int, int] | None:
    for text in texts:
        # However short: a thumb up may be the whole reply.
        if quote.strip() and quote.strip() == text.text.strip():
            start = text.text.index(quote.strip())
            return "exact", text.turn, start, start + len(quote.strip())
    letters, limits = sum(map(str.isalnum, quote)), load_quote_limits()
    if letters < limits.letters_of_a_sentence:
        return None
    anywhere = letters >= limits.letters
    for text in texts:
        for start in find_all(quote, text.text):
            if anywhere or _is_sentence(text.text, start, start + len(quote)):
                return "exact", text.turn, start, start + len(quote)
    for pieces, evidence, unlisted in _readings(quote, limits.elided):
        for text in texts:
            folded = text.unlisted if unlisted else text.folded
            for first, last in _spans(pieces, folded[0], limits.elided):
                start, end = folded[1][first], folded[1][last - 1] + 1
                if anywhere or _is_sentence(text.text, start, end):
                    return evidence, text.turn, start, end
    return None


def _is_sentence(text: str, start: int, end: int) -> bool:
    """Whether a passage is a sentence or line of its own."""
    before = _WORDLESS_BEFORE.search(text, max(0, start - _BETWEEN), start)
    after = _WORDLESS_AFTER.match(text, end, end + _BETWEEN)
    if before is None or after is None:
        return False
    begins = before.start() == 0 or _SENTENCE_ENDS.search(before[0])
    ends = after.end() == len(text) or _SENTENCE_ENDS.search(text[end - 1] + after[0])
    return bool(begins and ends)


def _readings(quote: str, limits: _Elided) -> Iterator[tuple[Sequence[str], EvidenceClass, bool]]:
    """Ways to read a quote: the pieces to look for, the class they make, and whether in text without list marks."""
    plain, unlisted = _fold(quote)[0], _fold(_unlisted(quote))[0]
    for text, without in ((plain, False), (unlisted, True)):
        if whole := text.strip(_EDGES):
            yield (whole,), "normalised", without
    for text, without in ((plain, False), (unlisted, True)):
        pieces = [piece for part in _ELLIPSIS.split(text) if (piece := part.strip(_EDGES))]
        words = [len(piece.split()) for piece in pieces]
        if (
            pieces
            and pieces != [text.strip(_EDGES)]
            and sum(words) >= limits.words
            and max(words) >= limits.words_of_the_longest
            and min(map(len, pieces)) >= limits.chars_of_the_shortest
        ):
            yield pieces, "elided", without


def _spans(pieces: Sequence[str], text: str, limits: _Elided) -> Iterator[tuple[int, int]]:
    """Where the pieces stand in this order and not too far apart, short ones as whole words; end exclusive."""
    if len(pieces) == 1:
        yield from ((start, start + len(pieces[0])) for start in find_all(pieces[0], text))
        return
    # Where the pieces so far end, in order, and the latest place where each such run of them begins.
    ends: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        earlier, ordered, ends = ends, list(ends), {}
        # Judges cut long quotes inside a word.
        is_long = len(piece.split()) >= limits.words_of_the_longest
        for start in find_all(piece, text):
            end = start + len(piece)
            if not is_long and not _is_worded(text, start, end):
                continue
            if number == 0:
                ends[end] = start
            elif (nearest := bisect_right(ordered, start) - 1) >= 0 and start - ordered[nearest] <= limits.gap:
                ends[end] = earlier[ordered[nearest]]
    yield from ((begin, end) for end, begin in ends.items())


def _is_worded(text: str, start: int, end: int) -> bool:
    """Whether a passage cuts no word."""
    inside = (text[max(0, start - 1) : start + 1], text[end - 1 : end + 1])
    return not any(len(pair) == 2 and pair.isalnum() for pair in inside)


def _unlisted(text: str) -> str:
    """The text with the marks of lists, links and quotations replaced by what folding drops."""
    return _STRUCTURE.sub(lambda mark: "\u200b" * len(mark[0]), text)


def _fold(text: str) -> _Folded:
    folded: list[str] = []
    places: list[int] = []
    blank = True
    for run in _RUNS.finditer(text):
        plain = run[0].lower() if run.lastindex else _plain(run[0])
        if plain == " " and blank:
            continue
        blank = plain == " " or (blank and not plain)
        folded.append(plain)
        places.extend(range(*run.span()) if run.lastindex else [run.start()] * len(plain))
    return "".join(folded), places


@lru_cache(maxsize=4096)
def _plain(character: str) -> str:
    """What a character folds to; a blank for white space, nothing for what is dropped."""
    if character in _DROPPED:
        return ""
    if character.isspace():
        return " "
    return _FOLDED.get(character) or unicodedata.normalize("NFKC", character).casefold()
