"""The JSON Schema of `report.json`: python -m pytest_spiral.report.schema > data/report.schema.json."""

from __future__ import annotations

import json

from pydantic import JsonValue

from pytest_spiral.report.model import SCHEMA_VERSION, Report


def report_schema() -> dict[str, JsonValue]:
    """The schema of a report as this version writes it: every key is present."""
    schema = Report.model_json_schema(mode="serialization")
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
