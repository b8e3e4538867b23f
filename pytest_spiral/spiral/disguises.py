"""Messages to a judge that no reader of the reply would see: moved letters, digits for letters, encodings.

Two different words of such a message close together in one disguise are taken for it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise

# Letters between two words of one hidden message.
_WINDOW = 150
# Letters of different words that one message has; fewer occur by chance in some disguise of a long reply.
_LETTERS = 11
_NOT_A_LETTER = re.compile("[^a-z]+")
_LEET = str.maketrans("01!|l3@4$56789", "oiiiieaassgtbg")
_LEET_SIGN = re.compile(r"[a-z][0-9@$!|]+[a-z]|[0-9@$!|][a-z][a-z0-9@$!|]*[0-9@$!|]")
_MODULO = bytes(number % 26 for number in range(256))
Span = tuple[int, int]


def hidden_messages(plain: str, words: tuple[str, ...]) -> Iterator[Span]:
    """Spans of text in lower case, end exclusive, that hold two of the words in one disguise of their letters.

    Letters set apart from one another, moved in the alphabet by any number of places, mirrored (a for z), written
    backwards, or several of these; and digits or signs for letters.
    """
    letters = _NOT_A_LETTER.sub("", plain)
    hits: dict[tuple[object, ...], list[tuple[int, int, str]]] = defaultdict(list)
    steps = _steps(letters)
    places: Sequence[int] = ()
    for disguise, word, first, needle in _needles(words):
        at = steps.find(needle)
        while at >= 0:
            places = places or [place for place, letter in enumerate(plain) if "a" <= letter <= "z"]
            end = at + len(word)
            move = (ord(letters[at]) - first) % 26
            gaps = sum(b - a > 1 for a, b in pairwise(places[at:end]))
            if disguise != (1, 1) or move or gaps >= len(word) - 2:
                hits[*disguise, move].append((at, end, word))
            at = steps.find(needle, at + 1)
    for found in hits.values():
        yield from ((places[start], places[end - 1] + 1) for start, end in _close(found))
    if _LEET_SIGN.search(plain):
        yield from _in_digits(plain, words)


def _in_digits(plain: str, words: tuple[str, ...]) -> Iterator[Span]:
    spelled = plain.translate(_LEET)
    letters = _NOT_A_LETTER.sub("", spelled)
    places = [place for place, letter in enumerate(spelled) if "a" <= letter <= "z"]
    found = []
    for word in words:
        needle = word.translate(_LEET)
        at = letters.find(needle)
        while at >= 0:
            end = at + len(needle)
            if not plain[places[at] : places[end - 1] + 1].isalpha():
                signs = sum(not "a" <= plain[place] <= "z" for place in places[at:end])
                if signs and places[end - 1] - places[at] < end - at:
                    found.append((at, end, word))
            at = letters.find(needle, at + 1)
    yield from ((places[start], places[end - 1] + 1) for start, end in _close(found))


def _close(found: list[tuple[int, int, str]]) -> Iterator[Span]:
    """Groups of hits near one another that have at least two different words."""
    group: list[tuple[int, int, str]] = []
    for hit in [*sorted(found), None]:
        if hit is not None and (not group or hit[0] - group[-1][1] <= _WINDOW):
            group.append(hit)
            continue
        words = {word for _, _, word in group}
        if len(words) > 1 and sum(map(len, words)) >= _LETTERS:
            yield group[0][0], max(end for _, end, _ in group)
        group = [hit] if hit else []


def _steps(letters: str) -> bytes:
    """Places from each letter to the next, modulo 26: the same wherever in the alphabet a message was moved to."""
    size = max(0, len(letters) - 1)
    # All differences in one subtraction: with 26 added no byte falls below zero, so that none borrows of the next.
    later, earlier = (int.from_bytes(part.encode()) for part in (letters[1:], letters[:-1]))
    raised = later + int.from_bytes(bytes([26]) * size) - earlier
    return raised.to_bytes(size).translate(_MODULO)


@cache
def _needles(words: tuple[str, ...]) -> Sequence[tuple[tuple[int, int], str, int, bytes]]:
    """Per word and disguise (direction, mirrored): its first letter and the steps to the next ones."""
    return [
        (
            (direction, sign),
            word,
            ord(spelled[0]) * sign,
            bytes((ord(b) - ord(a)) * sign % 26 for a, b in pairwise(spelled)),
        )
        for word in words
        for direction, spelled in ((1, word), (-1, word[::-1]))
        for sign in (1, -1)
    ]


@lru_cache(maxsize=8)
def _encodings(shortest: int) -> Mapping[re.Pattern[str], Callable[[str], str]]:
    run, escape = max(1, shortest - 2), max(1, shortest // 4)
    return {
        re.compile(rf"[A-Za-z0-9+/_-]{{{run},}}(?:\n[A-Za-z0-9+/_-]{{4,}})*={{0,2}}"): _from_base64,
        re.compile(rf"(?<![A-Za-z0-9])(?:[A-Z2-7]{{{run},}}|[a-z2-7]{{{run},}})={{0,6}}"): _from_base32,
        re.compile(rf"(?:[0-9a-fA-F]{{2}}[\s:]?){{{max(1, shortest // 3)},}}"): _from_hex,
        re.compile(rf"(?:(?:%|\\x|\\u00|U\+00|&#x)[0-9a-fA-F]{{2}};?\s?){{{escape},}}"): _from_escapes,
        re.compile(rf"(?:(?:&#)?[0-9]{{2,3}}[\s,;]{{1,2}}){{{escape},}}"): _from_numbers,
        re.compile(rf"(?:[01]{{7,8}}[\s,]?){{{escape},}}"): _from_bits,
    }


def decoded_runs(text: str, shortest: int) -> Iterator[tuple[Span, str]]:
    """Long runs of a known encoding and what they say. shortest: characters of a run of base64."""
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
    return bytes.fromhex(re.sub(r"[\s:]", "", run)).decode("utf-8", "replace")


def _from_escapes(run: str) -> str:
    return bytes.fromhex("".join(re.findall(r"([0-9a-fA-F]{2});?\s?(?=[%\\U&]|$)", run))).decode("utf-8", "replace")


def _from_numbers(run: str) -> str:
    return "".join(chr(int(number)) for number in re.findall(r"[0-9]+", run))


def _from_bits(run: str) -> str:
    return "".join(chr(int(bits, 2)) for bits in re.findall(r"[01]{7,8}", run))
