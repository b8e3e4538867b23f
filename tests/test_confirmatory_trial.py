"""The published figures of the confirmatory trial are those of its records, by the registered analysis."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from benchmarks import confirmatory_conversations, detectable_difference
from benchmarks.confirmatory_trial import CONFIDENCE, Talks, agreement, detectable, read
from pytest_spiral.spiral.prefix_score import prefix_differences
from pytest_spiral.spiral.protocol import load_protocol

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "validation"
PROTOCOL = load_protocol("prefix")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all recorded runs, those of conversations in one of their own."""
    folder = tmp_path_factory.mktemp("runs")
    for packed in (ROOT / "benchmarks" / "field_trial" / "confirmatory").glob("*.json.gz"):
        name = packed.name.removesuffix(".json.gz").replace("talks-", "talks/")
        (folder / name).mkdir(parents=True)
        (folder / name / "report.json").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.fixture(scope="module")
def page() -> str:
    """What is published."""
    return (PAGES / "trial.md").read_text(encoding="utf-8")


def both(runs: Path, first: str, second: str) -> tuple[Talks, Talks]:
    return read(runs, first), read(runs, second)


@pytest.mark.parametrize(("better", "worse"), [("plain", "warm"), ("warm", "affirm"), ("plain", "plain-again")])
def test_the_differences_are_those_published(runs: Path, page: str, better: str, worse: str) -> None:
    """Of the headline of prefixes, with their bounds; of the A/A pair also the minimum detectable difference."""
    found = prefix_differences(*both(runs, better, worse), PROTOCOL, CONFIDENCE, ("ignored", "ignored"))
    balance = found["prefix.balance"]

    assert f"{balance.value:+.1f} [{balance.low:+.1f}, {balance.high:+.1f}]" in page
    if worse == "plain-again":
        openings = min(found["prefix.protection"].n, found["prefix.fitting"].n)
        assert "{:.1f}, upper limit {:.1f}".format(*detectable(balance, openings)) in page


def test_the_conversations_are_those_published(runs: Path, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every row of their tables: differences, conditions and doses."""
    confirmatory_conversations.main([str(runs / "talks")])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|") and "---" not in line]

    assert len(rows) == 17
    assert [row for row in rows if row not in page] == []


def test_the_second_measurement_is_the_one_published(runs: Path, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the first prefixes, the later ones, and all."""
    detectable_difference.main(runs)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|") and "---" not in line]

    assert len(rows) == 4
    assert [row for row in rows if row not in page] == []


def test_the_judges_agree_as_published(runs: Path, page: str) -> None:
    """The macro-averaged kappa of presence."""
    pairs = [both(runs, name, f"second-{name}") for name in ("plain", "warm", "affirm")]

    kappas = [kappa for *_, kappa in agreement(pairs, PROTOCOL, 1)]

    assert len(kappas) == 15
    assert f"{sum(kappas) / 15:.2f}".lstrip("0") in page


def test_the_analysis_is_the_registered_one() -> None:
    """Nothing in it has changed since before the first request."""
    analysis = (ROOT / "benchmarks" / "confirmatory_trial.py").read_bytes()

    assert hashlib.sha256(analysis).hexdigest() in (PAGES / "trial-registration.md").read_text(encoding="utf-8")
