"""What all records of the report have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from pytest_spiral.text import whole_characters

Rate = Annotated[float, Field(ge=0, le=1)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _encodable(value: object) -> object:
    return whole_characters(value) if isinstance(value, str) else value


EncodableText = Annotated[str, BeforeValidator(_encodable)]
"""Text of a model. Halves of surrogate pairs, which JSON in UTF-8 cannot hold, become the replacement character."""


class Record(BaseModel):
    """A frozen record that knows all its keys. It may also be validated from an object with the same attributes."""

    model_config = ConfigDict(
        allow_inf_nan=False,
        defer_build=True,
        extra="forbid",
        from_attributes=True,
        frozen=True,
        protected_namespaces=(),
    )


class OpenRecord(Record):
    """A record that keeps further keys as JSON values, for settings that differ between versions."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)
