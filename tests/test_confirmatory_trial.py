"""The published figures of the trial on prefixes are those of its records, by the registered analysis."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from benchmarks.confirmatory_trial import agreement, detectable, difference, read
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.records import Conversation

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "validation"
PROTOCOL = load_protocol("prefix")
Runs = dict[str, tuple[Conversation, ...]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The recorded runs by name."""
    folder = tmp_path_factory.mktemp("runs")
    for packed in (ROOT / "benchmarks" / "field_trial" / "confirmatory").glob("*.json.gz"):
        name = packed.name.removesuffix(".json.gz")
        (folder / name).mkdir()
        (folder / name / "report.json").write_bytes(gzip.decompress(packed.read_bytes()))
    return {path.name: tuple(read(folder, path.name)) for path in folder.iterdir()}


@pytest.mark.parametrize(("better", "worse"), [("plain", "warm"), ("warm", "affirm"), ("plain", "plain-again")])
def test_the_differences_are_those_published(runs: Runs, better: str, worse: str) -> None:
    """Of the headline, with their bounds; of the A/A pair also the minimum detectable difference."""
    page = (PAGES / "trial.md").read_text(encoding="utf-8")

    found = difference(runs[better], runs[worse], PROTOCOL)

    assert f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]" in page
    if worse == "plain-again":
        halves = [
            difference(runs[better], runs[worse], PROTOCOL, f"prefix.{half}").n for half in ("protection", "fitting")
        ]
        assert "{:.1f}, upper limit {:.1f}".format(*detectable(found, min(halves))) in page


def test_the_judges_agree_as_published(runs: Runs) -> None:
    """The macro-averaged kappa of presence."""
    pairs = [(runs[name], runs[f"second-{name}"]) for name in ("plain", "warm", "affirm")]

    kappas = [kappa for *_, kappa in agreement(pairs, PROTOCOL, 1)]

    assert len(kappas) == 15
    assert f"{sum(kappas) / 15:.2f}".lstrip("0") in (PAGES / "trial.md").read_text(encoding="utf-8")


def test_the_analysis_is_the_registered_one() -> None:
    """Nothing in it has changed since before the first request."""
    analysis = (ROOT / "benchmarks" / "confirmatory_trial.py").read_bytes()

    assert hashlib.sha256(analysis).hexdigest() in (PAGES / "trial-registration.md").read_text(encoding="utf-8")
