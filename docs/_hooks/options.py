"""The table of options, written from the one that the plugin reads."""

from __future__ import annotations

from typing import Any

from pytest_spiral.plugin.options import OPTIONS

MARK = "<!-- options -->"


def option_table() -> str:
    """Markdown: every option with its short name, ini key, meaning and default."""
    rows = ["| option | short | ini key | what |", "|---|---|---|---|"]
    for option in OPTIONS:
        value = "" if option.kind == "flag" else f" {option.metavar or '{' + ','.join(option.choices) + '}'}"
        short = "" if option.alias == option.flag else f"`{option.alias}`"
        again = " Repeatable." if option.kind == "many" else ""
        text = option.described().replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| `{option.flag}{value}` | {short} | `{option.dest}` | {text}.{again} |")
    return "\n".join(rows)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs: put the table where a page asks for it."""
    return markdown.replace(MARK, option_table())
