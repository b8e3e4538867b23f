"""Reference tables that the package itself provides: options, reason codes, protocols and the report schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_spiral.resources import data_root
from pytest_spiral.settings import DEFAULT_PROTOCOL, OPTIONS
from pytest_spiral.spiral.protocol import load_protocol, protocol_names
from pytest_spiral.status import ReasonCode

Schema = Mapping[str, Any]


def option_table() -> str:
    """Every option with its short name, ini key, meaning and default."""
    rows = ["| option | short | ini key | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        value = "" if option.kind == "flag" else f" {option.metavar or '{' + ','.join(option.choices) + '}'}"
        short = "" if option.alias == option.flag else f"`{option.alias}`"
        text = option.described().replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| `{option.flag}{value}` | {short} | `{option.dest}` | {text}. |")
    return "\n".join(rows)


def reason_table() -> str:
    """Every reason code with its meaning."""
    return "\n".join(
        ["| code | meaning |", "|---|---|", *(f"| `{code.value}` | {code.meaning} |" for code in ReasonCode)]
    )


def protocol_table() -> str:
    """Every shipped protocol with what its file says about it."""
    rows = ["| protocol | scoring |", "|---|---|"]
    for name in protocol_names():
        default = " (default)" if name == DEFAULT_PROTOCOL else ""
        rows.append(f"| `{name}`{default} | {load_protocol(name).about} |")
    return "\n".join(rows)


def schema_tables() -> str:
    """The report's objects, one table each: keys, types and descriptions."""
    schema = json.loads((data_root() / "report.schema.json").read_text(encoding="utf-8"))
    return (
        "\n\n".join(_object_table("Report", schema))
        + "\n\n"
        + "\n\n".join("\n\n".join(_object_table(name, part)) for name, part in sorted(schema.get("$defs", {}).items()))
    )


def _object_table(name: str, schema: Schema) -> Iterator[str]:
    if "properties" not in schema:
        return
    yield f"## {name}"
    if "description" in schema:
        yield schema["description"].split("\n\nAttributes:")[0].split("\n\nArgs:")[0]
    rows = [f"| `{key}` | {_type(part)} | {_cell(part)} |" for key, part in schema["properties"].items()]
    yield "\n".join(["| key | type | meaning |", "|---|---|---|", *rows])


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def _cell(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).split()).replace("|", "\\|")


TABLES = {
    "<!-- options -->": option_table,
    "<!-- reason codes -->": reason_table,
    "<!-- protocols -->": protocol_table,
    "<!-- report schema -->": schema_tables,
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs: put each table where a page asks for it."""
    for mark, table in TABLES.items():
        if mark in markdown:
            markdown = markdown.replace(mark, table())
    return markdown
