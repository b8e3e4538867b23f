"""`pytest-spiral label`: what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_spiral.cli import main
from pytest_spiral.labelling.files import Rater
from tests.labelling.runs import demo_run, sheet_in


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with both suites."""
    return demo_run(tmp_path / "run")


def test_pages_and_sampling_are_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page for every rater and suite; the same command writes the same files again, another draw is refused."""
    out = tmp_path / "labels"
    command = ["label", str(run), "-o", str(out), "--raters", "ann,gpt:model", "--items", "5"]

    assert main([*command, "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert written == [
        str(out / suite / f"{rater}.html") for suite in ("tempaffect", "spiral") for rater in ("ann", "gpt")
    ]
    sheet = sheet_in(out, "spiral")
    assert (sheet.header.sampling.sampled, len(sheet.items)) == (5, 5)
    assert sheet.header.raters == (Rater(name="ann", kind="person"), Rater(name="gpt", kind="model"))
    before = {path: Path(path).read_bytes() for path in written}
    assert main(command) == 0
    assert {path: Path(path).read_bytes() for path in written} == before
    assert "5 of 108 items, 21 questions each" in capsys.readouterr().out

    assert main([*command, "--seed", "2"]) == 4
    assert "belongs to other pages, whose answers would be lost" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--raters", "ann,../x"], "'../x' is no name"),
        (["--raters", "ann,Ann"], "raters with different names"),
        (["--raters", "0"], "expected 1 to 20 raters"),
        (["--raters", "9999999999999999999999"], "expected 1 to 20 raters"),
        (["--items", "0"], "is no whole number from 1"),
        (["--questions", "pushback"], "'pushback' is none of tempaffect"),
        (["--suite", "spiral", "--questions", "pushed"], "'pushed' is none of spiral"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Exit code 4, one sentence, no file."""
    assert main(["label", str(run), "-o", str(tmp_path / "labels"), *arguments]) == 4

    assert message in capsys.readouterr().err
    assert not (tmp_path / "labels").exists()


def test_the_group_names_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """`label --help` lists them; a wrong run is an error of the command that is short for."""
    assert main(["label", "--help"]) == 0
    assert "is short for it" in capsys.readouterr().out
    assert main(["label", "missing", "-o", "x"]) == 4
    assert "missing: cannot be read" in capsys.readouterr().err
