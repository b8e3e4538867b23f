"""The public suite against a private form: what is concluded, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.cli import main
from pytest_spiral.compare.shadow import caution_above, compare_rates, compare_shadow
from pytest_spiral.errors import DataError
from pytest_spiral.gates import Sample
from pytest_spiral.report.model.comparison import ShadowRow
from pytest_spiral.stats import Clusters
from pytest_spiral.tempaffect.card_metrics import mean
from tests.html.reports import GOOD, demo_document

LIMIT = 0.15
Json = dict[str, Any]
Outcome = bool | None
Change = Callable[[Json], None]
OUTCOMES = st.sampled_from([True, False, None])


def sample(*outcomes: Outcome) -> Sample:
    """One scenario per outcome: useful, not useful, or lost (None)."""

    def units(values: Sequence[float | None]) -> Clusters[float]:
        return Clusters("scenario", tuple(map(str, range(len(values)))), tuple(float(value or 0) for value in values))

    def fill(end: str) -> Clusters[float]:
        return units([end == "high" if outcome is None else outcome for outcome in outcomes])

    measured = [outcome for outcome in outcomes if outcome is not None]
    return Sample(units(measured), mean, (0.0, 1.0), outcomes.count(None), len(outcomes), fill)


def rates(public: Sequence[Outcome], shadow: Sequence[Outcome]) -> ShadowRow:
    return compare_rates("m", "raw", sample(*public), sample(*shadow), 1)


@pytest.mark.parametrize(
    ("public", "shadow", "verdict"),
    [
        ((70, 75), (14, 15), "too few to tell"),
        ((75, 75), (15, 15), "too few to tell"),
        ((75, 75), (30, 30), "agree"),
        ((50, 75), (15, 15), "agree"),
        ((75, 75), (12, 15), "caution"),
        # Just the limit, .80 - .65, is not over it, whatever the last bit says.
        ((60, 75), (13, 20), "too few to tell"),
    ],
)
def test_what_is_concluded(public: tuple[int, int], shadow: tuple[int, int], verdict: str) -> None:
    """Over the limit, surely below it, or neither: fifteen of fifteen are too few even for a model without fault."""
    row = rates(*([True] * hits + [False] * (n - hits) for hits, n in (public, shadow)))

    assert row.verdict == verdict
    assert row.difference == pytest.approx(public[0] / public[1] - shadow[0] / shadow[1])
    assert row.method == "Newcombe hybrid score"
    assert row.mde == pytest.approx(2.8016 / 3.92 * (row.high - row.low), rel=1e-3)


def test_what_is_missing_never_makes_them_agree() -> None:
    """It counts as useful in public and as not useful in the form where the upper end is concerned."""
    agreeing, lossy = rates([True] * 75, [True] * 30), rates([True] * 75, [True] * 29 + [None])

    assert (agreeing.verdict, lossy.verdict) == ("agree", "too few to tell")
    assert (lossy.difference, lossy.shadow.n, lossy.shadow.missing) == (0.0, 29, 1)
    nothing = rates([True] * 75, [None] * 15)
    assert (nothing.difference, nothing.verdict, nothing.shadow.rate) == (None, "too few to tell", None)


@given(st.lists(OUTCOMES, min_size=1, max_size=60), st.lists(OUTCOMES, min_size=1, max_size=60))
def test_the_interval_holds_the_difference_and_mirrors(public: list[Outcome], shadow: list[Outcome]) -> None:
    """Whatever is missing on either side; and more cannot be missing for a narrower interval."""
    there, back = rates(public, shadow), rates(shadow, public)

    assert back.low == pytest.approx(-there.high)
    assert back.high == pytest.approx(-there.low)
    if there.difference is not None:
        assert there.low <= there.difference <= there.high
        assert back.difference == pytest.approx(-there.difference)
    lossier = rates([None, *public[1:]], shadow)
    assert lossier.low <= there.low + 1e-12
    assert lossier.high >= there.high - 1e-12


@settings(max_examples=10)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=5, max_size=15))
def test_means_of_epochs_keep_the_scenario_together(values: list[float]) -> None:
    """Halves are no yes or no: the scenario's mean is resampled, and the interval still holds the difference."""
    units = Clusters("scenario", tuple(map(str, range(len(values)))), tuple(values))
    form = Sample(units, mean, (0.0, 1.0), 0, len(values), lambda end: units)

    row = compare_rates("m", "raw", sample(*[True] * 10), form, 1)

    assert row.difference is not None
    assert row.low <= row.difference <= row.high
    assert ("bootstrap" in row.method or "equal units" in row.method) == (0.5 in values)


def recorded(folder: Path, report: Json) -> Path:
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def public_report() -> Json:
    """A run of the public suite that names what it asked and with what."""
    report = demo_document()
    report["run"]["config"]["models"] = [
        {"role": "evaluated", "spec": model, "model_id": model, "kind": "remote",
         "params": {"tempaffect": {"temperature": 0.0}}}
        for model in sorted({card["model"] for card in report["tempaffect"]["cards"]})
    ]  # fmt: skip
    return report


def shadow_report() -> Json:
    """The same answers to scenarios of one's own."""
    report = public_report()
    report["run"]["id"] = "private"
    report["run"]["config"]["tempaffect_scenarios"] = "form.json"
    report["integrity"]["tempaffect"]["suite_hash"] = "f" * 64
    report["integrity"]["tempaffect"]["components"]["scenarios"] = "f" * 64
    for row in report["tempaffect"]["scenarios"].values():
        row["user_message"] += " (a private one)"
    return report


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("runs") / "public", public_report())


def worse(report: Json) -> Json:
    """Three of the answers of one model to the private form are not useful, one was lost."""
    rows = [row for row in report["tempaffect"]["items"] if row["model"] == GOOD]
    useful = [row for row in rows if row["prompting_mode"] == "raw_json" and row["useful_bounded"]]
    for row in useful[:5]:
        row["useful_bounded"] = False
    return report


def test_the_command_prints_text_and_json(public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every model and mode, with the numbers behind the verdict; a caution is exit code 1."""
    same = recorded(tmp_path / "same", shadow_report())
    other = recorded(tmp_path / "other", worse(shadow_report()))

    assert main(["shadow", str(public), str(same)]) == 0
    agreeing = capsys.readouterr().out
    assert main(["shadow", str(public), str(other / "report.json"), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert main(["shadow", str(public), str(other)]) == 1
    text = capsys.readouterr().out

    assert "caution\n" not in agreeing
    assert result["caution_above"] == caution_above() == LIMIT
    assert result["shadow"] == {"path": str(other / "report.json"), "run": "private"}
    verdicts = {(row["model"], row["mode"]): row["verdict"] for row in result["rows"]}
    assert [key for key, verdict in verdicts.items() if verdict == "caution"] == [(GOOD, "raw")]
    assert len(verdicts) == 4
    (row,) = (row for row in result["rows"] if row["verdict"] == "caution")
    assert row["difference"] == pytest.approx(5 / row["shadow"]["n"])
    assert f"{GOOD}, raw: caution" in text
    assert all(len(line) <= 80 for line in text.splitlines() if str(tmp_path) not in line)


def changed(*path: str | int, to: object) -> Change:
    def change(report: Json) -> None:
        *way, last = path
        target: Any = report
        for key in way:
            target = target[key]
        target[last] = to

    return change


def without_model(report: Json) -> None:
    report["tempaffect"]["items"] = [row for row in report["tempaffect"]["items"] if row["model"] == GOOD]


def with_public_texts(report: Json) -> None:
    report["tempaffect"]["scenarios"] = deepcopy(public_report()["tempaffect"]["scenarios"])


def with_public_hash(report: Json) -> None:
    report["integrity"]["tempaffect"]["suite_hash"] = public_report()["integrity"]["tempaffect"]["suite_hash"]


INTEGRITY = ("integrity", "tempaffect")
MODEL = ("run", "config", "models", 0)


def without_decisions(report: Json) -> None:
    for scenario in report["tempaffect"]["scenarios"].values():
        scenario["expected"]["decision"] = None


REFUSED: list[tuple[Change, str]] = [
    (without_decisions, "have nothing that can be compared: schema mode of demo/giddy: not measured in one run"),
    (changed("run", "config", "tempaffect_scenarios", to=None), "asked the bundled scenarios"),
    (with_public_hash, "runs of the same scenarios"),
    (with_public_texts, "scenarios in common"),
    (without_model, "only: demo/giddy"),
    (changed(*INTEGRITY, "scorer_fingerprint", to="e" * 64), "tempaffect.scorer_fingerprint"),
    (changed(*INTEGRITY, "components", "prompts.raw_json", to="e" * 64), "tempaffect.prompts.raw_json"),
    (changed(*INTEGRITY, "components", "params", to="e" * 64), "tempaffect.params"),
    (changed(*MODEL, "params", "tempaffect", to={"temperature": 1.0}), "parameters of demo/"),
    (changed("tempaffect", "items", to=[]), "no measurements of tempaffect"),
    (changed(*INTEGRITY, to=5), "integrity.tempaffect: "),
    (changed(*MODEL, to=5), "run.config.models.0: "),
    (changed("tempaffect", "scenarios", to={"x": {}}), "report.json: "),
    (changed("tempaffect", "items", 0, "useful_bounded", to="yes"), "tempaffect.items.0"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_pair_is_refused(
    public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change, says: str
) -> None:
    """One sentence on stderr, exit code 4."""
    report = shadow_report()
    change(report)
    other = recorded(tmp_path / "other", report)

    assert main(["shadow", str(public), str(other)]) == 4

    out, err = capsys.readouterr()
    assert says in err
    assert (out, err.count("\n")) == ("", 1)


def test_what_could_not_be_checked_is_noted(public: Path, tmp_path: Path) -> None:
    """The parameters behind a replay are not on record; a mode without its partner has no row."""
    report = shadow_report()
    for model in report["run"]["config"]["models"]:
        model["kind"] = "replay"
    rows = report["tempaffect"]["items"]
    report["tempaffect"]["items"] = [row for row in rows if row["prompting_mode"] == "raw_json"]

    result = compare_shadow(public, recorded(tmp_path / "other", report))

    assert "not checked: tempaffect.parameters of demo/giddy" in result.notes[0]
    assert f"schema mode of {GOOD} is in one run only" in result.notes
    assert {row.mode for row in result.rows} == {"raw"}


def test_a_damaged_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threshold is data, and checked like data."""
    (tmp_path / "tempaffect").mkdir()
    (tmp_path / "tempaffect" / "shadow.toml").write_text("caution_above = 1500\n")
    monkeypatch.setattr("pytest_spiral.compare.shadow.data_root", lambda: tmp_path)

    with pytest.raises(DataError, match=r"shadow\.toml: caution_above: "):
        caution_above.__wrapped__()
