"""Data files as frozen, strict models, and the regular expressions that they hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.resources import read_json, read_toml


class Table(BaseModel):
    """A table without unknown keys or conversions, never changed."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=Table)


def read_table(model: type[M], path: Path) -> M:
    """A TOML or JSON file as a model. Raises `DataError` naming file and key of the first fault."""
    value = read_toml(path) if path.suffix == ".toml" else read_json(path)
    try:
        # Dates, which JSON has not, fail as text where anything else is expected.
        return model.model_validate_json(json.dumps(value, default=str))
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error)}") from None


def compile_cues(lines: str) -> re.Pattern[str]:
    """One pattern that matches any of the expressions, one a line. A space in one stands for any white space."""
    expressions = [line.replace(" ?", "[ ]?").replace(" ", r"\s+") for line in lines.splitlines() if line.strip()]
    # Neighbours that begin at a word boundary share its test: `re` then looks at them between words only.
    groups = groupby((f"(?:{expression})" for expression in expressions), lambda each: each.startswith(r"(?:\b"))
    return re.compile("|".join(f"(?:{'|'.join(group)})" for _, group in groups), re.MULTILINE)


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Numbers = Mapping[str, Count]
"""Limits by name. What each means is said in its file."""


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
