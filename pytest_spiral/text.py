"""Reading English text the same way everywhere: normalising, tokenising, stemming, splitting, counting words.

Pure functions over strings, shared by both suites. Tables (spellings, contractions, numbers, look-alike letters) are
data in `data/text/`, read once. Nothing here knows what a scenario or a conversation is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol

from pytest_spiral.errors import DataError
from pytest_spiral.resources import data_root, read_toml

__all__ = [
    "Word",
    "clean",
    "count_words",
    "function_words",
    "normalize",
    "sentences",
    "stem",
    "stems",
    "tokenize",
    "whole_characters",
    "words",
]

_SURROGATES = re.compile("[\ud800-\udfff]")


def whole_characters(text: str) -> str:
    """`text` with the replacement character for halves of surrogate pairs, which have no UTF-8 form."""
    return _SURROGATES.sub("\ufffd", text)


class Word(NamedTuple):
    """One normalised token with where it came from.

    norm: the token after all normalisation. raw: how it stood in the cleaned text ("" for the later parts of an opened
    contraction). before: what stood between it and the token before.
    """

    norm: str
    raw: str
    before: str


class _Stemmer(Protocol):
    def stem(self, token: str) -> str: ...


# A number keeps its inner separators (07:30, 41,800); any other token is letters and digits with inner apostrophes.
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)+[^\W_]*|[^\W_]+(?:'[^\W_]+)*")
_COUNTED = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_END = re.compile(r"[.?!]+[\"')\]]*(?=\s|$)|[\n;]+")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:mr|mrs|ms|dr|st|prof|no|vs|approx|ca|dept|ext|e\.g|i\.e|[a-z])\.$", re.IGNORECASE
)
_CLOCK = re.compile(r"0(\d:\d\d)(?!\d)")
_GLUE_LENGTH, _GLUE_DIVISOR = 30, 6  # a word longer than any English one is several glued together
_PASSES = 6  # mappings feed each other at most this often before the text stands still


class _Tables(NamedTuple):
    punctuation: Mapping[int, str]
    letters: Mapping[int, str]
    whole: Mapping[str, str]
    suffixes: tuple[tuple[str, str], ...]
    is_after: frozenset[str]
    spelling: re.Pattern[str]
    spellings: Mapping[str, str]
    small: Mapping[str, int]
    tens: Mapping[str, int]
    scales: Mapping[str, int]


def _table(name: str) -> dict[str, Any]:
    return read_toml(data_root() / "text" / f"{name}.toml")


@cache
def _tables() -> _Tables:
    look, short, count, spell = _table("confusables"), _table("contractions"), _table("numbers"), _table("spelling")
    try:
        prefixes: dict[str, str] = spell["prefixes"]
        longest_first = sorted(prefixes, key=len, reverse=True)
        return _Tables(
            punctuation={ord(sign): plain for sign, plain in look["punctuation"].items()},
            letters={ord(sign): plain for sign, plain in look["letters"].items()},
            whole=short["whole"],
            suffixes=tuple(short["suffixes"].items()),
            is_after=frozenset(short["is_after"]["words"].split()),
            spelling=re.compile("|".join(map(re.escape, longest_first))),
            spellings=prefixes,
            small=count["units"],
            tens=count["tens"],
            scales=count["scales"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{data_root() / 'text'}: a table lacks {error}; reinstall the package") from None


@cache
def function_words() -> frozenset[str]:
    """Words of grammar rather than content, normalised."""
    return frozenset(_table("function_words")["words"].split())


def clean(text: str) -> str:
    """Characters put in order, letter case kept: NFKC, invisible and stray combining characters dropped, quotes and
    dashes plain, look-alike letters Latin inside words that also hold Latin letters.

    >>> clean("re\\u200bfund \\uff46ree \\u201cnow\\u201d")
    're fund free "now"'.replace(' f', 'f', 1)
    """
    if text.isascii():
        return text.translate(_ASCII)
    tables = _tables()
    for _ in range(_PASSES):
        before = text
        text = unicodedata.normalize("NFKC", text.translate(tables.punctuation))
        text = "".join(character for character in text if character.isascii() or _kept(character))
        text = text.translate(tables.punctuation).translate(_ASCII)
        if text == before:
            break
    return text if text.isascii() else _TOKEN.sub(_latinized, text)


# "`" is a quote people type; other control characters than line breaks separate words.
_ASCII = {**{code: " " for code in range(32) if code not in (10,)}, 127: " ", 96: "'", 13: "\n"}
_DROPPED = frozenset({"Cf", "Mn", "Me", "Cs", "Co", "Cn"})


@lru_cache(maxsize=4096)
def _kept(character: str) -> bool:
    return unicodedata.category(character) not in _DROPPED


def _latinized(match: re.Match[str]) -> str:
    token = match.group()
    if token.isascii() or not any("a" <= character <= "z" or "A" <= character <= "Z" for character in token):
        return token
    return token.translate(_tables().letters)


def words(text: str, *, cleaned: bool = False) -> list[Word]:
    """Normalised tokens of a text, in order. `cleaned`: the text has already been through `clean`.

    >>> [word.norm for word in words("I can't re-send 41,800 in twenty-two minutes, mum's colour")]
    ['i', 'can', 'not', 're', 'send', '41800', 'in', '22', 'minutes', 'mother', 'color']
    """
    return _words_of_clean(text if cleaned else clean(text))


def _words_of_clean(text: str) -> list[Word]:
    found: list[Word] = []
    numeric = False
    position = 0
    for match in _TOKEN.finditer(text):
        before = text[position : match.start()]
        position = match.end()
        raw = match.group()
        parts, number = _word(raw)
        numeric = numeric or number
        if len(parts) == 1:
            found.append(Word(parts[0], raw, before))
        else:
            for index, part in enumerate(parts):
                found.append(Word(part, raw if index == 0 else "", before if index == 0 else " "))
    return _numbers(found) if numeric else found


@lru_cache(maxsize=65536)
def _word(raw: str) -> tuple[tuple[str, ...], bool]:
    """Normal forms of one written token, and whether it may be part of a spelled-out or split number."""
    tables = _tables()
    token = _fold(raw)
    opened = tables.whole.get(token)
    if opened is None and "'" in token:
        opened = _opened(token, tables)
    parts: list[str] = []
    number = False
    for piece in (opened or token).split():
        if piece[0].isdigit():
            piece = _digits(piece)
        else:
            piece = tables.whole.get(piece, piece)
            piece = tables.spelling.sub(_respelled, piece, count=1) if tables.spelling.match(piece) else piece
        number = number or piece in tables.small or piece in tables.tens or piece in tables.scales or piece in _HALVES
        parts.extend(piece.split())
    return tuple(parts), number


_HALVES = frozenset({"am", "pm"})


def _respelled(match: re.Match[str]) -> str:
    return _tables().spellings[match.group()]


def _fold(token: str) -> str:
    if token.isascii():
        return token.lower()
    for _ in range(_PASSES):
        before = token
        token = unicodedata.normalize("NFKC", token.casefold())
        token = "".join(character for character in token if character.isascii() or _kept(character))
        token = token if token.isascii() else _TOKEN.sub(_latinized, token)
        if token == before:
            break
    return token


def _opened(token: str, tables: _Tables) -> str:
    for suffix, words_ in tables.suffixes:
        if token.endswith(suffix) and len(token) > len(suffix):
            return token[: -len(suffix)] + words_
    if token.endswith("'s"):
        head = token[:-2]
        return head + " is" if head in tables.is_after else head
    return token.replace("'", "")


def _digits(piece: str) -> str:
    if ":" in piece:
        return _CLOCK.sub(r"\1", piece) if piece.startswith("0") else piece
    head, comma, tail = piece.partition(",")
    while comma and tail[:3].isdigit() and len(tail) >= 3 and not tail[3:4].isdigit():
        head, piece = head + tail[:3], head + tail
        if tail[3:4] != ",":
            return head + tail[3:]
        tail = tail[4:]
    return piece


def _numbers(found: list[Word]) -> list[Word]:
    """Runs of number words as digits, "3 am" as "3am"."""
    tables = _tables()
    out: list[Word] = []
    index = 0
    while index < len(found):
        value, size = _run(found, index, tables)
        if size:
            out.append(Word(str(value), found[index].raw, found[index].before))
            index += size
        elif found[index].norm in _HALVES and out and _is_hour(out[-1].norm) and found[index].before.isspace():
            out[-1] = Word(out[-1].norm + found[index].norm, out[-1].raw + found[index].raw, out[-1].before)
            index += 1
        else:
            out.append(found[index])
            index += 1
    return out


def _is_hour(token: str) -> bool:
    return token.isascii() and token[0].isdigit() and token.replace(":", "").isdigit() and len(token) <= 5


def _run(found: list[Word], start: int, tables: _Tables) -> tuple[int, int]:
    """Value and length of the number that begins at `start`; length 0 where none does."""
    total, current, size, scaled, last = 0, 0, 0, False, 0
    index = start
    while index < len(found):
        norm, before = found[index].norm, found[index].before
        if size and before.strip(" -"):
            break
        if norm in tables.small and (
            not size or (last >= 20 and last % 10 == 0 and (tables.small[norm] < 10 or last >= 100))
        ):
            current += tables.small[norm]
            last = tables.small[norm] or -1
        elif norm in tables.tens and (not size or last >= 100):
            current += tables.tens[norm]
            last = tables.tens[norm]
        elif norm in tables.scales and (not size or 0 < current < tables.scales[norm]):
            scale = tables.scales[norm]
            current = max(current, 1) * scale
            if scale >= 1000:
                total, current = total + current, 0
            scaled, last = True, scale
        elif not size and norm.isascii() and norm.isdigit() and len(norm) < 5 and _scale_follows(found, index, tables):
            current = int(norm)
            last = -1
        elif norm == "and" and scaled and index + 1 < len(found) and not found[index + 1].before.strip(" -"):
            following = found[index + 1].norm
            if last < 100 or not (following in tables.small or following in tables.tens):
                break
            index += 1
            size += 1
            continue
        else:
            break
        index += 1
        size += 1
    return total + current, size


def _scale_follows(found: list[Word], index: int, tables: _Tables) -> bool:
    return index + 1 < len(found) and found[index + 1].norm in tables.scales and not found[index + 1].before.strip(" -")


def normalize(text: str) -> str:
    """The text after normalisation N, punctuation kept, white space single. Idempotent.

    >>> normalize("We can't re-colour TWO labels\\u2026")
    'we can not re-color 2 labels...'
    """
    cleaned = clean(text)
    found = _words_of_clean(cleaned)
    out: list[str] = []
    for word in found:
        out.append(word.before)
        out.append(word.norm)
    matches = list(_TOKEN.finditer(cleaned))
    out.append(cleaned[matches[-1].end() :] if matches else cleaned)
    return " ".join("".join(out).split())


def tokenize(text: str) -> list[str]:
    """Normalised tokens of a text.

    >>> tokenize("She's paid: 1,710 on the 3rd")
    ['she', 'is', 'paid', '1710', 'on', 'the', '3rd']
    """
    return [word.norm for word in words(text)]


@cache
def _stemmer() -> _Stemmer:
    # Imported on first use: half a second that only scoring needs.
    from nltk.stem.snowball import SnowballStemmer

    stemmer: _Stemmer = SnowballStemmer("english")
    return stemmer


@lru_cache(maxsize=65536)
def stem(token: str) -> str:
    """Snowball English stem of one normalised token."""
    return _stemmer().stem(token) if token.isascii() and not token[:1].isdigit() else token


def stems(tokens: Iterable[str]) -> tuple[str, ...]:
    """Stems of normalised tokens, in order."""
    return tuple(map(stem, tokens))


def sentences(text: str) -> list[str]:
    """Sentences of a cleaned text: ended by . ? ! before white space, by a line break or by a semicolon.

    >>> sentences("Ask Mr. Low. He decides; I page him now!")
    ['Ask Mr. Low.', 'He decides;', 'I page him now!']
    """
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if match.group() == "." and _ABBREVIATION.search(text[start : match.end()]):
            continue
        piece = text[start : match.end()].strip()
        if piece:
            found.append(piece)
        start = match.end()
    rest = text[start:].strip()
    if rest:
        found.append(rest)
    return found


def count_words(text: str) -> int:
    """Words in a reply (section 2.5): runs of letters and digits with inner apostrophes and hyphens; no emoji.

    A run longer than 30 characters counts once per 6 characters, so that gluing words together gains nothing.
    """
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    total = 0
    for token in _COUNTED.findall(text):
        total += 1 if len(token) <= _GLUE_LENGTH else -(-len(token) // _GLUE_DIVISOR)
    return total
