"""Word lists, phrase lists and limits: what the files hold is what the checks use, and damage is reported."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytest_spiral.tempaffect
from pytest_spiral import resources
from pytest_spiral.errors import DataError
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tempaffect import lexicon
from pytest_spiral.tempaffect.lexicon import PHRASES, VERBS, WORDS

# Lists with a function of their own.
OTHER_SHAPES = {"forbidden_phrases"}
SOURCES = Path(pytest_spiral.tempaffect.__file__).parent


def entries() -> dict[str, Any]:
    """Word and phrase lists of the lexicon files by name."""
    paths = sorted((data_root() / "tempaffect" / "lexicons").glob("*.toml"))
    lists = {name: value for path in paths for name, value in read_toml(path).items()}
    return {name: value for name, value in lists.items() if name not in OTHER_SHAPES and not isinstance(value, dict)}


def used(owner: str) -> Iterator[str]:
    """Names of attributes that the package reads from `owner`."""
    for path in (SOURCES / "lexicon.py", *(SOURCES / "checks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == owner:
                yield node.attr


def test_every_word_list_is_used_and_there() -> None:
    """A list that no rule reads is dead, and a rule cannot read a list that is missing."""
    assert set(used("WORDS")) == {name for name, value in entries().items() if isinstance(value, str)}


def test_every_phrase_list_is_used_and_there() -> None:
    """The same for phrase lists."""
    assert set(used("PHRASES")) == {name for name, value in entries().items() if isinstance(value, list)}


def test_every_limit_is_used_and_there() -> None:
    """The same for the limits of `params.toml`."""
    tables = read_toml(data_root() / "tempaffect" / "params.toml")
    read = {name for owner in ("limits", *(f"LIMITS.{table}" for table in tables)) for name in used(owner)}

    assert read == {name for limits in tables.values() for name in limits}


@pytest.mark.parametrize("name", ["negatoins", "blame"])
def test_an_unknown_word_list_is_no_attribute(name: str) -> None:
    """A name that is not in the files, or is no word list, is refused."""
    with pytest.raises((AttributeError, DataError), match=name):
        getattr(WORDS, name)


@pytest.mark.parametrize("alternatives", ["[]", "['(?:dear']", "'dear'"])
def test_a_damaged_phrase_list_names_file_and_list(
    alternatives: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty list or an unusable expression is an error that says where."""
    shutil.copytree(data_root(), tmp_path / "data")
    (tmp_path / "data/tempaffect/lexicons/grammar.toml").write_text(f"idioms = {alternatives}\n", encoding="utf-8")
    monkeypatch.setattr(resources, "_root", lambda: tmp_path)
    lexicon._entries.cache_clear()
    try:
        with pytest.raises(DataError, match=r"grammar\.toml: idioms"):
            type(PHRASES)(PHRASES._compiled).idioms  # noqa: B018
    finally:
        lexicon._entries.cache_clear()


@pytest.mark.parametrize(
    ("form", "lemma", "uses"),
    [
        ("sending", "send", {"ing"}),
        ("sent", "send", {"past", "participle"}),
        ("cut", "cut", {"base", "past", "participle"}),
        ("replies", "reply", {"third"}),
        ("stopped", "stop", {"past", "participle"}),
    ],
)
def test_verbs_are_conjugated(form: str, lemma: str, uses: set[str]) -> None:
    """Regular and irregular forms lead back to their verb."""
    verb = VERBS.forms[form]

    assert verb.lemma == lemma
    assert {use for use in ("base", "third", "ing", "past", "participle") if getattr(verb, use)} == uses
