"""Data files as frozen, strict models: what every table of this room is held to, and how a fault in one is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_spiral.errors import DataError, first_fault

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]


class Table(BaseModel):
    """A table without unknown keys or conversions, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=Table)


def read_table(model: type[M], path: Path, value: Any) -> M:
    """The value of a file as a model. Raises `DataError` naming file and key of the first fault."""
    try:
        return model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error)}") from None
