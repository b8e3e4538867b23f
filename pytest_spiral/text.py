"""Read English text the same way everywhere: normalise, tokenise, stem, split, count words.

Pure functions over strings, shared by both suites. Spellings, contractions, numbers and look-alike letters are data in
`data/text/`. Nothing here knows what a scenario or a conversation is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

from pytest_spiral.resources import data_root, read_toml

# A number keeps its inner separators (07:30, 41,800); any other token is letters and digits with inner apostrophes.
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)+[^\W_]*|[^\W_]+(?:'[^\W_]+)*")
_TOKENS_APART = re.compile(f"({_TOKEN.pattern})")
_COUNTED = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
# One class of signs comes first, so that the rest of the text is passed over quickly.
_END = re.compile(r"[.?!\n;](?:(?<=[\n;])[\n;]*|(?<=[.?!])(?<![.?!]{2})[.?!]*+[\"')\]]*+(?=\s|$))")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:mr|mrs|ms|dr|st|prof|no|vs|approx|ca|dept|ext|e\.g|i\.e|[a-z])\.$", re.IGNORECASE
)
_ABBREVIATION_REACH = 9  # characters: "approx." and more than what may stand before it
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_CLOCK = re.compile(r"0(\d:\d\d)(?!\d)")
_HOUR = re.compile(r"[0-9][0-9:]{0,4}")
_THOUSANDS = re.compile(r"[^,]*(?:,\d{3}(?!\d))+")
T = TypeVar("T", str, bytes)
Gram = tuple[str, ...]
"""A run of words."""
Span = tuple[int, int]
"""A part of a sequence: where it begins, and the place after its end."""
_GLUE_LENGTH, _GLUE_DIVISOR = 30, 6  # a word longer than any English one is several glued together
_PASSES = 6  # mappings feed each other at most this often before the text stands still

# "`" is a quote that people type; control characters other than line breaks separate words.
_ASCII = {**{code: " " for code in range(32) if code != 10}, 127: " ", 96: "'", 13: "\n"}
_DROPPED_CATEGORIES = frozenset({"Cf", "Mn", "Me", "Cs", "Co", "Cn"})
_HALVES_OF_DAY = frozenset({"am", "pm"})


class Words(NamedTuple):
    """Normalised tokens, each as written ("" for the later parts of a contraction), and what stands before each."""

    norms: list[str]
    raws: list[str]
    before: list[str]


def find_all(needle: T, text: T) -> Iterator[int]:
    """Where a needle stands, also where one overlaps the next."""
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def _table(name: str) -> dict[str, Any]:
    return read_toml(data_root() / "text" / f"{name}.toml")


class _Tables:
    """What the files of `data/text/` say, ready for use."""

    def __init__(self) -> None:
        signs, short, numbers = _table("confusables"), _table("contractions"), _table("numbers")
        self.punctuation = str.maketrans(signs["punctuation"])
        self.letters = str.maketrans(signs["letters"])
        self.contractions: dict[str, str] = short["whole"]
        self.suffixes: dict[str, str] = short["suffixes"]
        self.is_after = frozenset(short["is_after"]["words"].split())
        self.prefixes: dict[str, str] = _table("spelling")["prefixes"]
        self.prefix = re.compile("|".join(sorted(self.prefixes, key=len, reverse=True)))
        self.units: dict[str, int] = numbers["units"]
        self.tens: dict[str, int] = numbers["tens"]
        self.scales: dict[str, int] = numbers["scales"]
        self.number_words = _HALVES_OF_DAY.union(*numbers.values())


_tables = cache(_Tables)


@cache
def function_words() -> frozenset[str]:
    """Return the words that carry grammar rather than content, normalised."""
    return frozenset(_table("function_words")["words"].split())


def whole_characters(text: str) -> str:
    """Replace halves of surrogate pairs, which have no UTF-8 form, by the replacement character."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def joined_halves(text: str) -> str:
    """Make one character of two halves side by side, of which parts of a message may have one each."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def clean(text: str) -> str:
    """Put the characters in order, keeping letter case.

    NFKC; invisible and stray combining characters dropped; quotes and dashes plain; look-alike letters Latin inside
    words that also hold Latin letters.

    >>> clean("re\\u200bfund \\uff46ree \\u201cnow\\u201d")
    'refund free "now"'
    """
    if text.isascii():
        return text.translate(_ASCII)
    signs = _tables().punctuation

    def step(text: str) -> str:
        text = text.translate(signs)
        # Most texts have no other characters than dashes and quotation marks.
        return (text if text.isascii() else _visible(text).translate(signs)).translate(_ASCII)

    text = _settle(text, step)
    return text if text.isascii() else _TOKEN.sub(_latinized, text)


def _settle(text: str, step: Callable[[str], str]) -> str:
    """Repeat a step until the text stands still."""
    for _ in range(_PASSES):
        before, text = text, step(text)
        if text == before:
            break
    return text


def _visible(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    dropped = [sign for sign in set(_NOT_ASCII.findall(text)) if unicodedata.category(sign) in _DROPPED_CATEGORIES]
    return text.translate(dict.fromkeys(map(ord, dropped))) if dropped else text


def _latinized(match: re.Match[str]) -> str:
    token = match.group()
    if token.isascii() or not re.search("[A-Za-z]", token):
        return token
    return token.translate(_tables().letters)


def words(text: str, *, cleaned: bool = False) -> Words:
    """Return the normalised tokens of a text, in order.

    Args:
        cleaned: The text has already been through `clean`.

    >>> words("I can't re-send 41,800 in twenty-two minutes, mum's colour").norms
    ['i', 'can', 'not', 're', 'send', '41800', 'in', '22', 'minutes', 'mother', 'color']
    """
    # What stands before each token, the token, and in the end the rest.
    pieces = _TOKENS_APART.split(text if cleaned else clean(text))
    before, raws = pieces[:-1:2], pieces[1::2]
    forms = list(map(_normal_forms, raws))
    if any(map((1).__ne__, map(len, forms))):
        raws = ["" if at else raw for raw, parts in zip(raws, forms, strict=True) for at in range(len(parts))]
        before = [" " if at else signs for signs, parts in zip(before, forms, strict=True) for at in range(len(parts))]
    found = Words(list(chain.from_iterable(forms)), raws, before)
    return _join_numbers(found) if _tells_numbers(found.norms) else found


@lru_cache(maxsize=65536)
def _normal_forms(raw: str) -> tuple[str, ...]:
    """Return the normal forms of one written token."""
    tables = _tables()
    token = raw.lower()
    if not raw.isascii():
        token = _settle(raw, lambda text: _TOKEN.sub(_latinized, _visible(text.casefold())))
    opened = tables.contractions.get(token) or _open_contraction(token, tables)
    parts: list[str] = []
    for piece in opened.split():
        # A number has no separators of thousands, a time of day no leading zero.
        thousands = _THOUSANDS.match(piece)
        if piece[0].isdigit() and ":" in piece:
            piece = _CLOCK.sub(r"\1", piece) if piece.startswith("0") else piece
        elif piece[0].isdigit():
            piece = thousands.group().replace(",", "") + piece[thousands.end() :] if thousands else piece
        else:
            piece = tables.contractions.get(piece, piece)
            prefix = tables.prefix.match(piece)
            piece = tables.prefixes[prefix.group()] + piece[prefix.end() :] if prefix else piece
        parts.extend(piece.split())
    return tuple(parts)


def _open_contraction(token: str, tables: _Tables) -> str:
    for suffix, opened in tables.suffixes.items():
        if token.endswith(suffix) and len(token) > len(suffix):
            return token[: -len(suffix)] + opened
    if token.endswith("'s"):
        head = token[:-2]
        return head + " is" if head in tables.is_after else head
    return token.replace("'", "")


def _tells_numbers(norms: Sequence[str]) -> bool:
    """Whether there may be numbers in words. In "I am" there are none."""
    number_words = _tables().number_words
    if number_words.isdisjoint(norms):
        return False
    return any(
        after in number_words and (after not in _HALVES_OF_DAY or before[:1].isdigit() or before in number_words)
        for before, after in pairwise(("", *norms))
    )


def _join_numbers(found: Words) -> Words:
    """Turn runs of number words into digits, "3 am" into "3am"."""
    norms, raws, before = joined = Words([], [], [])
    number_words, done = _tables().number_words, 0
    for index, norm in enumerate(found.norms):
        if index < done or not (norm in number_words or norm[:1].isdigit()):
            continue
        _extend(joined, found, done, index)
        value, size = _spelled_number(found, index)
        norm = str(value) if size else norm
        if norm in _HALVES_OF_DAY and norms and _HOUR.fullmatch(norms[-1]) and found.before[index].isspace():
            norms[-1] += norm
            raws[-1] += found.raws[index]
        else:
            norms.append(norm)
            raws.append(found.raws[index])
            before.append(found.before[index])
        done = index + max(size, 1)
    _extend(joined, found, done, len(found.norms))
    return joined


def _extend(joined: Words, found: Words, start: int, end: int) -> None:
    for longer, whole in zip(joined, found, strict=True):
        longer += whole[start:end]


def _spelled_number(found: Words, start: int) -> tuple[int, int]:
    """Return value and length in tokens of the number that begins at `start`; length 0 where none does."""
    tables = _tables()
    total, current, size, scaled, last = 0, 0, 0, False, 0  # `last`: value of the token before, -1 for zero and digits
    for index in range(start, len(found.norms)):
        norm, before = found.norms[index], found.before[index]
        if size and before.strip(" -"):
            break
        if norm in tables.units and (
            not size or (last >= 20 and last % 10 == 0 and (tables.units[norm] < 10 or last >= 100))
        ):
            current += tables.units[norm]
            last = tables.units[norm] or -1
        elif norm in tables.tens and (not size or last >= 100):
            current += tables.tens[norm]
            last = tables.tens[norm]
        elif norm in tables.scales and (not size or 0 < current < tables.scales[norm]):
            last = tables.scales[norm]
            current = max(current, 1) * last
            if last >= 1000:
                total, current = total + current, 0
            scaled = True
        elif not size and norm.isascii() and norm.isdigit() and len(norm) < 5 and _next(found, index) in tables.scales:
            current, last = int(norm), -1
        elif not (norm == "and" and scaled and last >= 100 and _next(found, index) in tables.units | tables.tens):
            break
        size += 1
    return total + current, size


def _next(found: Words, index: int) -> str:
    """Return the token after `index` if only a space or hyphen stands between."""
    beside = not any(before.strip(" -") for before in found.before[index + 1 : index + 2])
    return "".join(found.norms[index + 1 : index + 2]) if beside else ""


def tokenize(text: str) -> list[str]:
    """Return the normalised tokens of a text.

    >>> tokenize("She's paid: 1,710 on the 3rd")
    ['she', 'is', 'paid', '1710', 'on', 'the', '3rd']
    """
    found = [form for raw in _TOKEN.findall(clean(text)) for form in _normal_forms(raw)]
    # Only numbers are told by more than one token.
    return words(text).norms if _tells_numbers(found) else found


@cache
def _stemmer() -> Callable[[str], str]:
    # Imported on first use: half a second that only scoring needs.
    from nltk.stem.snowball import SnowballStemmer

    stem_token: Callable[[str], str] = SnowballStemmer("english").stem
    return stem_token


@lru_cache(maxsize=65536)
def stem(token: str) -> str:
    """Return the Snowball English stem of one normalised token."""
    return _stemmer()(token) if token.isascii() and not token[:1].isdigit() else token


def sentences(text: str) -> list[str]:
    """Split a cleaned text into sentences: at . ? ! before white space, at line breaks and at semicolons.

    >>> sentences("Ask Mr. Low. He decides; I page him now!")
    ['Ask Mr. Low.', 'He decides;', 'I page him now!']
    """
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        ending = text[max(start, match.end() - _ABBREVIATION_REACH) : match.end()]
        if match.group() != "." or not _ABBREVIATION.search(ending):
            found.append(text[start : match.end()].strip())
            start = match.end()
    return [sentence for sentence in (*found, text[start:].strip()) if sentence]


def count_words(text: str) -> int:
    """Count the words of a reply: runs of letters and digits with inner apostrophes and hyphens; no emoji.

    A run longer than 30 characters counts once per 6 characters, so that gluing words together gains nothing.
    """
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    found = _COUNTED.findall(text)
    return len(found) + sum((len(run) - 1) // _GLUE_DIVISOR for run in found if len(run) > _GLUE_LENGTH)


def grams(words: Sequence[str], size: int) -> list[Gram]:
    """All runs of so many words, in order."""
    return list(zip(*(words[start:] for start in range(size)), strict=False))


def covered_share(words: Sequence[str], size: int, is_shared: Callable[[Gram], bool]) -> float:
    """Share of the words, 0..1, that lie in runs of at least `size` words which are shared; 0 without words.

    >>> covered_share("i hear you and i am here".split(), 3, {("i", "am", "here")}.__contains__)
    0.42857142857142855
    """
    covered = bytearray(len(words))
    for start, shared in enumerate(map(is_shared, grams(words, size))):
        if shared:
            covered[start : start + size] = b"\1" * size
    return sum(covered) / len(words) if words else 0.0
