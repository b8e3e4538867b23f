"""The reference pages name everything there is, and the site builds without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from pytest_spiral import spiral, tempaffect
from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import OPERATORS
from pytest_spiral.plugin.terminal import gate_help
from pytest_spiral.settings import OPTIONS
from pytest_spiral.spiral.protocol import load_protocol, protocol_names
from pytest_spiral.tempaffect.card_metrics import metric_scales

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load_hook(name: str = "reference") -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_hook", DOCS / "_hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_option_is_on_its_page() -> None:
    """Written from the plugin's own table: long name, short name, ini key, default."""
    page = load_hook().on_page_markdown((DOCS / "reference" / "options.md").read_text())

    for option in OPTIONS:
        (row,) = (line for line in page.splitlines() if line.startswith((f"| `{option.flag} ", f"| `{option.flag}`")))
        assert option.dest in row
        assert option.alias in row or option.alias == option.flag


def test_every_protocol_is_on_its_page() -> None:
    """With what its file says about it."""
    page = load_hook().on_page_markdown((DOCS / "reference" / "protocols.md").read_text())

    assert [name for name in protocol_names() if load_protocol(name).about not in page] == []


def test_the_pages_of_providers_are_those_of_the_data() -> None:
    """`python docs/_hooks/providers.py` writes them; the table of contents lists each."""
    folder = DOCS / "how-to" / "providers"
    contents = (ROOT / "mkdocs.yml").read_text()

    assert {path.name: path.read_text() for path in folder.iterdir()} == load_hook("providers").pages()
    assert [path.name for path in folder.iterdir() if f"how-to/providers/{path.name}" not in contents] == []


def test_a_provider_without_notes_has_no_heading_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty section would look like a page that was cut off."""
    hook = load_hook("providers")
    groq = hook.providers()["groq"]
    monkeypatch.setattr(hook, "providers", lambda: {"groq": groq.model_copy(update={"notes": ()})})

    assert "## Notes" not in hook.pages()["groq.md"]
    assert groq.notes[0] not in hook.pages()["groq.md"]


def test_every_operator_of_gates_is_explained() -> None:
    """In the grammar of the page and in the help."""
    grammar = (DOCS / "reference" / "gates.md").read_text().partition("gate   = ")[2].partition("\n")[0]
    text = " ".join(gate_help().split())

    assert [op for op in OPERATORS if f'"{op}"' not in grammar or f"'PATH {op} BOUND'" not in text] == []


def test_every_metric_has_a_formula() -> None:
    """Everything a gate can name stands in a row of the page."""
    page = (DOCS / "reference" / "metrics.md").read_text()
    named = set(re.findall(r"`([a-z0-9_.]+)`", page))
    spirals = {name for protocol in protocol_names() for name in spiral_metric_scales(load_protocol(protocol))}
    scenarios = {re.sub(r"^families\.\w+\.", "", name) for name in metric_scales()}

    assert (scenarios | spirals) - named == set()


def test_the_api_page_has_what_is_exported() -> None:
    """The public names of both suites, or a note why not."""
    page = (DOCS / "reference" / "python-api.md").read_text()
    left_out = {"Item", "Origin", "Protocol", "protocol_names"}
    public = {f"pytest_spiral.tempaffect.{n}" for n in tempaffect.__all__} | {
        f"pytest_spiral.spiral.{n}" for n in spiral.__all__
    }

    assert {n.rpartition(".")[2] for n in public if f"::: {n}\n" not in page} == left_out


def test_every_page_is_in_the_menu() -> None:
    """A page that nobody finds is none."""
    menu = (ROOT / "mkdocs.yml").read_text()

    assert [str(page) for page in DOCS.rglob("*.md") if f": {page.relative_to(DOCS).as_posix()}\n" not in menu] == []


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """Links, anchors and documented objects are all there."""
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs-material and mkdocstrings are not installed (extra `docs`)")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "useful_bounded" in (tmp_path / "site" / "reference" / "metrics" / "index.html").read_text()
