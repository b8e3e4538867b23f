"""The JSON Schema of `report.json`: python -m pytest_spiral.report.schema > data/report.schema.json."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap

from pydantic import JsonValue
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from pytest_spiral.report.model import SCHEMA_VERSION, Report


class _Described(GenerateJsonSchema):
    """Takes descriptions of keys from the docstrings below them.

    Pydantic's own setting for this reads the source of every record whenever the report is imported, which takes longer
    than all else of the import.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _described(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _described(super().dataclass_schema(schema), schema["cls"])


def _described(found: JsonSchemaValue, record: type) -> JsonSchemaValue:
    for cls in reversed(record.__mro__):
        if not cls.__module__.startswith("pytest_spiral."):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(definition, ast.ClassDef)
        for key, doc in zip(definition.body, definition.body[1:], strict=False):
            match key, doc:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found["properties"][name]["description"] = inspect.cleandoc(text)
    return found


def report_schema() -> dict[str, JsonValue]:
    """The schema of a report as this version writes it: every key is present."""
    schema = Report.model_json_schema(mode="serialization", schema_generator=_Described)
    for definition in schema["$defs"].values():
        # Docstrings of records describe their attributes as well, which the schema does by key.
        if "description" in definition:
            definition["description"] = definition["description"].split("\n\nAttributes:")[0]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"pytest-spiral report, schema version {SCHEMA_VERSION}",
    }


if __name__ == "__main__":
    print(json.dumps(report_schema(), indent=1))
