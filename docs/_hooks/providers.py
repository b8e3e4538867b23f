"""The pages in docs/how-to/providers, made from data/providers. `python docs/_hooks/providers.py` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pytest_spiral.models.providers import Provider, providers

HERE = Path(__file__).parent
FOLDER = HERE.parent / "how-to" / "providers"


def is_hosted(preset: Provider) -> bool:
    """Whether it is a service, not a server that the user starts."""
    return not (preset.base_url or preset.example_url).startswith("http:")


def pages() -> Mapping[str, str]:
    """File names and texts of all pages."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  # Markdown from our own data
    )
    page = environment.get_template("provider.md.jinja")
    found = {f"{name}.md": page.render(it=preset, is_hosted=is_hosted(preset)) for name, preset in providers().items()}
    return {"overview.md": environment.get_template("providers.md.jinja").render(all=providers().values()), **found}


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
