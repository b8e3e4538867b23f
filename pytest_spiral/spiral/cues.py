"""Regular expressions that data files hold, and quick searches for many of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from pytest_spiral.tables import Table


def compile_cues(lines: str) -> re.Pattern[str]:
    """One pattern that matches any of the expressions, one a line. A space in one stands for any white space."""
    expressions = [line.replace(" ?", "[ ]?").replace(" ", r"\s+") for line in lines.splitlines() if line.strip()]
    # Neighbours that begin at a word boundary share its test: `re` then looks at them between words only.
    groups = groupby((f"(?:{expression})" for expression in expressions), lambda each: each.startswith(r"(?:\b"))
    return re.compile("|".join(f"(?:{'|'.join(group)})" for _, group in groups), re.MULTILINE)


class CueGroup(Table):
    """Expressions with what every match of them contains.

    expressions: regular ones, one to a line. words: of these one, whole. parts: or of these one, anywhere. Separated by
    spaces; without either nothing is known.
    """

    words: str = ""
    parts: str = ""
    expressions: str


@dataclass(frozen=True)
class PlainText:
    """A text in lower case that is searched for cues."""

    text: str

    @cached_property
    def words(self) -> frozenset[str]:
        """Its runs of the letters a to z."""
        return frozenset(self.text.encode("ascii", "replace").translate(_LETTERS).decode("ascii").split())


_LETTERS = bytes(code if chr(code) in "abcdefghijklmnopqrstuvwxyz" else ord(" ") for code in range(256))


class CueSearch:
    """One pattern made of groups of expressions, and a quick way to tell that it matches nowhere."""

    def __init__(self, groups: Sequence[CueGroup]) -> None:
        self.pattern = compile_cues("\n".join(group.expressions for group in groups))
        self._groups = [
            (frozenset(group.words.split()), group.parts.split(), compile_cues(group.expressions)) for group in groups
        ]

    def matches(self, plain: PlainText) -> bool:
        """Whether the pattern is in the text. Only groups of which a word or part is there are searched for."""
        for words, parts, pattern in self._groups:
            possible = not words.isdisjoint(plain.words) or any(part in plain.text for part in parts)
            if (possible or not (words or parts)) and pattern.search(plain.text):
                return True
        return False
