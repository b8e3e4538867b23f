"""Expressions as data files hold them, one to a line, and a quick look at whether any of them could match.

Most texts hold none of dozens of expressions, and an alternation of all of them is tried at every character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Hints", "any_of"]

# An expression that begins so can only match where a word or a line begins.
_BEGINNINGS = (r"\b", r"^\W*")


def any_of(expressions: Iterable[str]) -> re.Pattern[str]:
    """Any of the expressions. Raises `re.error`."""
    return re.compile(_either(expressions), re.MULTILINE)


def _either(expressions: Iterable[str]) -> str:
    return "|".join(f"(?:{expression})" for expression in expressions)


class Hints:
    """A quick look for many expressions: those at the beginning of words together, every other one by itself.

    The others mostly begin with a letter, which is found at the speed of a text search. What follows a word boundary at
    the beginning of an expression must be a letter or digit.
    """

    def __init__(self, expressions: Iterable[str]) -> None:
        words: list[str] = []
        others: list[str] = []
        for expression in expressions:
            beginning = next((start for start in _BEGINNINGS if expression.startswith(start)), "")
            (words if beginning else others).append(expression.removeprefix(beginning))
        self._words = re.compile(rf"\W(?:{_either(words)})", re.MULTILINE)
        self._others = [re.compile(other, re.MULTILINE) for other in others]

    def anything_in(self, text: str) -> bool:
        """Whether an expression could match; False only where none does."""
        # The line break stands before the first word.
        return self._words.search(f"\n{text}") is not None or any(other.search(text) for other in self._others)
