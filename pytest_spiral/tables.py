"""The package's data files as frozen, strict models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from pytest_spiral.resources import naming_faults, read_json, read_toml

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
PerMille = Annotated[int, Field(ge=0, le=1000)]


class Table(BaseModel):
    """A table without unknown keys or conversions, never changed."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=Table)


def read_table(model: type[M], path: Path) -> M:
    """A TOML or JSON file as a model. Raises `DataError` naming file and key of the first fault."""
    value = read_toml(path) if path.suffix == ".toml" else read_json(path)
    with naming_faults(path):
        # From JSON, arrays may become tuples. Dates, which it has not, fail as text where anything else is expected.
        return model.model_validate_json(json.dumps(value, default=str))
