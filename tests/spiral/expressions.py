"""Texts that an expression of the data files matches: at least one for each of its alternatives and optional parts."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["examples"]

_CHARACTERS = string.ascii_lowercase + string.digits + string.punctuation + " \n\u2014\u2022\u201c\u201d"
_TOKEN = re.compile(r"\\u[0-9a-f]{4}|\\.|\[\^?(?:\\.|[^\]\\])+\]|\(\?(?::|<?[=!])|.", re.DOTALL)
_QUANTIFIER = re.compile(r"(?:\?|\*|\+|\{(\d+)(,?)(\d*)\})\??")
# Characters beside a match, so that an expression is also met in the midst of a text and of a word.
_BEFORE, _AFTER = ("", "", "a", ". "), ("", "", "a", " a")
_NOTHING = frozenset((r"\b", r"\A", r"\Z", "^", "$"))


@dataclass(eq=False)
class _Choice:
    """Sequences of which one is taken."""

    ways: list[list[_Part]] = field(default_factory=list)


@dataclass(eq=False)
class _Part:
    """One character, class or group, so many times."""

    atom: str | _Choice
    least: int = 1
    most: int = 1


_Decided: TypeAlias = Mapping[_Choice | _Part, int]


class _Reader:
    """An expression as choices; forms that the data files do not use are not known."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0

    def read(self) -> _Choice:
        """Up to the end of the expression or group."""
        choice = _Choice([[]])
        while self._at < len(self._text):
            match = _TOKEN.match(self._text, self._at)
            assert match is not None
            token, self._at = match.group(), match.end()
            if token == ")":
                break
            if token == "|":
                choice.ways.append([])
                continue
            atom: str | _Choice = token
            if token.startswith("("):
                atom = self.read()
                # What must not stand there is left out; what must stand there is written.
                atom = _Choice([[]]) if token.endswith("!") else atom
            choice.ways[-1].append(_Part(atom, *self._count()))
        return choice

    def _count(self) -> tuple[int, int]:
        match = _QUANTIFIER.match(self._text, self._at)
        if match is None:
            return 1, 1
        self._at = match.end()
        if match[1]:
            least = int(match[1])
            return least, int(match[3]) if match[3] else least
        return ("+" in match[0][0]) * 1, 1 if match[0][0] == "?" else 3


def _decisions(choice: _Choice, before: _Decided) -> Iterator[_Decided]:
    """Every decision there is, with those that lead to it: the way taken of a choice, how often a part is there."""
    for number, way in enumerate(choice.ways):
        taken = {**before, choice: number}
        if len(choice.ways) > 1:
            yield taken
        for part in way:
            if part.least == 0:
                yield from ({**taken, part: 0}, {**taken, part: 1})
            if isinstance(part.atom, _Choice):
                yield from _decisions(part.atom, {**taken, part: max(part.least, 1)})


def _write(choice: _Choice, decided: _Decided, rng: random.Random) -> str:
    number = decided.get(choice)
    way = rng.choice(choice.ways) if number is None else choice.ways[number]
    return "".join(_write_part(part, decided, rng) for part in way)


def _write_part(part: _Part, decided: _Decided, rng: random.Random) -> str:
    times = decided.get(part)
    if times is None:
        times = rng.randint(part.least, min(part.most, part.least + 1))
    if isinstance(part.atom, _Choice):
        return "".join(_write(part.atom, decided, rng) for _ in range(times))
    if part.atom in _NOTHING:
        return ""
    fitting = part.atom if len(part.atom) == 1 and part.atom != "." else _fitting(part.atom)
    return "".join(rng.choice(fitting) for _ in range(times))


_FITTING: dict[str, str] = {}


def _fitting(token: str) -> str:
    if token not in _FITTING:
        _FITTING[token] = "".join(c for c in _CHARACTERS if re.fullmatch(token, c))
    return _FITTING[token]


def examples(
    expression: str, pattern: re.Pattern[str], cost: Callable[[str], int], *, tries: int = 24
) -> Sequence[str | None]:
    """For every decision in an expression the match that costs least of those that were tried; None: there was none."""
    choice = _Reader(expression).read()
    rng = random.Random(expression)
    found = []
    for decided in [*_decisions(choice, {})] or [{}]:
        texts = (rng.choice(_BEFORE) + _write(choice, decided, rng) + rng.choice(_AFTER) for _ in range(tries))
        found.append(min((text for text in texts if pattern.search(text)), key=cost, default=None))
    return found
