"""Messages to a judge that no reader of the reply would see: moved letters, digits for letters, encodings.

Two different words of such a message close together in one disguise are taken for it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import pairwise
from string import ascii_letters, digits, hexdigits

from pytest_spiral.text import Span, find_all

# Letters between two words of one hidden message.
_WINDOW = 150
# Letters of different words that one message has; fewer occur by chance in some disguise of a long reply.
_LETTERS = 11
_NOT_LETTERS = bytes(code for code in range(256) if not ord("a") <= code <= ord("z"))
_LEET = str.maketrans("01!|l3@4$56789", "oiiiieaassgtbg")
# Signs between letters, or letters between signs. It begins with a set of few characters, which `re` finds quickly.
_LEET_SIGN = re.compile(r"[0-9@$!|](?:(?<=[a-z].)[0-9@$!|]*[a-z]|[a-z][a-z0-9@$!|]*[0-9@$!|])")
_MODULO = bytes(number % 26 for number in range(256))
# Steps up and down as one, as mirroring exchanges them.
_FOLDED = bytes(min(number % 26, -number % 26) for number in range(256))
Hit = tuple[int, int, str]
"""First letter of a word and the first after it, counted among letters only, and the word."""


def hidden_messages(plain: str, words: tuple[str, ...]) -> Iterator[Span]:
    """Spans of text in lower case, end exclusive, that hold two of the words in one disguise of their letters.

    Letters set apart from one another, moved in the alphabet by any number of places, mirrored (a for z), written
    backwards, or several of these; and digits or signs for letters.
    """
    letters = _letters(plain)
    hits: dict[tuple[int, int, int], list[Hit]] = defaultdict(list)
    steps = _steps(letters)
    folded = steps.translate(_FOLDED)
    for needle in _needles(words):
        for at in find_all(needle.folded, folded) if needle.folded in folded else ():
            for sign, exact in needle.steps.items():
                if steps.startswith(exact, at):
                    move = (letters[at] - sign * needle.first) % 26
                    hits[needle.direction, sign, move].append((at, at + len(needle.word), needle.word))
    if openly := hits.pop((1, 1, 0), None):
        hits[1, 1, 0] = _set_apart(openly, plain)
    if spans := [span for found in hits.values() for span in _close(found)]:
        places = _letter_places(plain)
        yield from ((places[start], places[end - 1] + 1) for start, end in spans)
    if _LEET_SIGN.search(plain):
        yield from _in_digits(plain, words)


def _set_apart(found: Sequence[Hit], plain: str) -> list[Hit]:
    """The words in the clear whose letters are set apart."""
    # A reply has many words in the clear, and nearly always all of them whole.
    if len(found) == sum(len(list(find_all(word, plain))) for word in {word for _, _, word in found}):
        return []
    places = _letter_places(plain)
    gaps = [sum(b - a > 1 for a, b in pairwise(places[start:end])) for start, end, _ in found]
    return [hit for hit, apart in zip(found, gaps, strict=True) if apart >= len(hit[2]) - 2]


def _letters(plain: str) -> bytes:
    return plain.encode("ascii", "ignore").translate(None, _NOT_LETTERS)


def _letter_places(plain: str) -> Sequence[int]:
    return [place for place, letter in enumerate(plain) if "a" <= letter <= "z"]


def _in_digits(plain: str, words: tuple[str, ...]) -> Iterator[Span]:
    spelled = plain.translate(_LEET)
    letters = _letters(spelled)
    places = _letter_places(spelled)
    found = []
    for word in words:
        needle = word.translate(_LEET).encode()
        for at in find_all(needle, letters):
            end = at + len(needle)
            if not plain[places[at] : places[end - 1] + 1].isalpha():
                signs = sum(not "a" <= plain[place] <= "z" for place in places[at:end])
                if signs and places[end - 1] - places[at] < end - at:
                    found.append((at, end, word))
    yield from ((places[start], places[end - 1] + 1) for start, end in _close(found))


def _close(found: Sequence[Hit]) -> Iterator[Span]:
    """Groups of hits near one another that have at least two different words."""
    group: list[Hit] = []
    for hit in [*sorted(found), None]:
        if hit is not None and (not group or hit[0] - group[-1][1] <= _WINDOW):
            group.append(hit)
            continue
        words = {word for _, _, word in group}
        if len(words) > 1 and sum(map(len, words)) >= _LETTERS:
            yield group[0][0], max(end for _, end, _ in group)
        group = [hit] if hit else []


def _steps(letters: bytes) -> bytes:
    """Places from each letter to the next, modulo 26: the same wherever in the alphabet a message was moved to."""
    size = max(0, len(letters) - 1)
    # All differences in one subtraction: with 26 added no byte falls below zero, so that none borrows of the next.
    later, earlier = (int.from_bytes(part) for part in (letters[1:], letters[:-1]))
    raised = later + int.from_bytes(bytes([26]) * size) - earlier
    return raised.to_bytes(size).translate(_MODULO)


@dataclass(frozen=True, slots=True)
class _Needle:
    """A word read in one direction, 1 or -1: its first letter, and the steps to the next ones.

    steps: by sign, 1 as they are and -1 mirrored. folded: what both have in common.
    """

    word: str
    direction: int
    first: int
    steps: Mapping[int, bytes]
    folded: bytes


@cache
def _needles(words: tuple[str, ...]) -> Sequence[_Needle]:
    needles = []
    for word in words:
        for direction in (1, -1):
            letters = word.encode()[::direction]
            steps = {sign: bytes((b - a) * sign % 26 for a, b in pairwise(letters)) for sign in (1, -1)}
            needles.append(_Needle(word, direction, letters[0], steps, steps[1].translate(_FOLDED)))
    return needles


_ROW = b"x"
_OF_BASE64, _OF_NUMBERS = (
    bytes(ord("x" if chr(code) in signs else " ") for code in range(256))
    for signs in (f"{ascii_letters}{digits}+/_-", hexdigits)
)
_AROUND_HEX = re.compile(r"%|\\x|\\u00|U\+00|&#x|[\s:;]")
_BETWEEN_NUMBERS = bytes(code for code in range(128) if chr(code).isspace() or chr(code) in ":,;&#%\\xuU+")


@lru_cache(maxsize=8)
def _encodings(shortest: int) -> Mapping[re.Pattern[str], Callable[[str], str]]:
    run, escape = max(1, shortest - 2), max(1, shortest // 4)
    return {
        re.compile(rf"[A-Za-z0-9+/_-]{{{run},}}(?:\n[A-Za-z0-9+/_-]{{4,}})*={{0,2}}"): _from_base64,
        re.compile(rf"(?<![A-Za-z0-9])(?:[A-Z2-7]{{{run},}}|[a-z2-7]{{{run},}})={{0,6}}"): _from_base32,
        re.compile(rf"(?:[0-9a-fA-F]{{2}}[\s:]?){{{max(1, shortest // 3)},}}"): _from_hex,
        re.compile(rf"(?:(?:%|\\x|\\u00|U\+00|&#x)[0-9a-fA-F]{{2}};?\s?){{{escape},}}"): _from_hex,
        re.compile(rf"(?:(?:&#)?[0-9]{{2,3}}[\s,;]{{1,2}}){{{escape},}}"): partial(_from_numbers, r"[0-9]+", 10),
        re.compile(rf"(?:[01]{{7,8}}[\s,]?){{{escape},}}"): partial(_from_numbers, r"[01]{7,8}", 2),
    }


def decoded_runs(text: str, shortest: int) -> Iterator[tuple[Span, str]]:
    """Long runs of a known encoding and what they say. shortest: characters of a run of base64."""
    signs = text.encode("ascii", "ignore")
    # Hardly any text has so many characters of a code in a row.
    in_a_row = _ROW * max(1, shortest - 2) in signs.translate(_OF_BASE64)
    digits_in_a_row = _ROW * 2 * max(1, shortest // 4) in signs.translate(_OF_NUMBERS, _BETWEEN_NUMBERS)
    if not in_a_row and not digits_in_a_row:
        return
    for pattern, decode in _encodings(shortest).items():
        for match in pattern.finditer(text):
            yield match.span(), decode(match[0])


def _from_base64(run: str) -> str:
    body = re.sub(r"\s", "", run.rstrip("="))
    body = body[: len(body) - (len(body) % 4 == 1)]
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")


def _from_base32(run: str) -> str:
    body = run.rstrip("=").upper()
    body = body[: len(body) - {1: 1, 3: 1, 6: 1}.get(len(body) % 8, 0)]
    try:
        return base64.b32decode(body + "=" * (-len(body) % 8)).decode("utf-8", "replace")
    except binascii.Error:
        return ""


def _from_hex(run: str) -> str:
    return bytes.fromhex(_AROUND_HEX.sub("", run)).decode("utf-8", "replace")


def _from_numbers(digits: str, base: int, run: str) -> str:
    return "".join(chr(int(number, base)) for number in re.findall(digits, run))
