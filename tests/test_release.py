"""What a release needs: notes for readers, one version number, reports of released schemas that stay readable."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from pytest_spiral.report.export import tables
from pytest_spiral.report.model import SCHEMA_VERSION
from pytest_spiral.report.read import load_report

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
STORED = sorted((Path(__file__).parent / "data").glob("report_v*.json.gz"))


def test_every_note_is_one_the_changelog_takes() -> None:
    """Named for its kind; one or two sentences that end."""
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    for path in (ROOT / "changelog.d").glob("*.md"):
        assert re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(kinds)})\.md", path.name), path.name
        text = path.read_text().strip()
        assert text.endswith((".", "`", ")")), path.name
        assert len(text) < 900, path.name


def test_towncrier_builds_the_notes() -> None:
    """All fragments, none left out."""
    if importlib.util.find_spec("towncrier") is None:
        pytest.skip("towncrier is not installed (extra `release`)")
    build = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=True)

    assert len(re.findall(r"^- ", done.stdout, re.M)) >= len(list((ROOT / "changelog.d").glob("*.md")))


def test_there_is_one_version() -> None:
    """The citation names the version that is published."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_reports_of_every_schema_are_read(path: Path, tmp_path: Path) -> None:
    """Stored when its schema was current; brought up to date, it keeps what it said."""
    stored = json.loads(gzip.decompress(path.read_bytes()))
    (tmp_path / "report.json").write_text(json.dumps(stored))

    report = load_report(tmp_path / "report.json")

    assert report.schema_version == SCHEMA_VERSION
    assert report.verdict == stored["verdict"]
    assert [card.score for card in report.tempaffect.cards] == [card["score"] for card in stored["tempaffect"]["cards"]]
    assert tables(report)["measurements"]


def test_every_earlier_schema_has_a_stored_report() -> None:
    """Whoever raises the version stores a report of the one before."""
    versions = {int(re.findall(r"v(\d+)", path.name)[0]) for path in STORED}

    assert versions == set(range(1, SCHEMA_VERSION))
