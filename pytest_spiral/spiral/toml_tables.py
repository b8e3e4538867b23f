"""Data files as frozen, strict models, and the regular expressions that they hold."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.resources import read_json, read_toml


class Table(BaseModel):
    """A table without unknown keys or conversions, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=Table)


def read_table(model: type[M], path: Path) -> M:
    """A TOML or JSON file as a model. Raises `DataError` naming file and key of the first fault."""
    value = read_toml(path) if path.suffix == ".toml" else read_json(path)
    try:
        return model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error)}") from None


def compile_cues(lines: str) -> re.Pattern[str]:
    """One pattern that matches any of the expressions, one a line. A space in one stands for any white space."""
    expressions = [line.replace(" ?", "[ ]?").replace(" ", r"\s+") for line in lines.splitlines() if line.strip()]
    # Neighbours that begin at a word boundary share its test: `re` then looks at them between words only.
    groups = groupby((f"(?:{expression})" for expression in expressions), lambda each: each.startswith(r"(?:\b"))
    return re.compile("|".join(f"(?:{'|'.join(group)})" for _, group in groups), re.MULTILINE)


def _check_cues(lines: str) -> str:
    for line in lines.splitlines():
        try:
            compile_cues(line)
        except re.error as error:
            raise ValueError(f"{line!r:.60} is not a regular expression: {error.msg}") from None
    return lines


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Cues = Annotated[str, AfterValidator(_check_cues)]
"""Regular expressions, one to a line."""
