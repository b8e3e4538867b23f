"""Two runs side by side, and corrected numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_spiral.evaluate.corrected import with_labels
from pytest_spiral.evaluate.inputs import GivenLabels
from pytest_spiral.report.html.build import compare_page, report_page
from pytest_spiral.report.model.comparison import MetricDifference, ModelComparison, RunComparison, RunName
from tests.evaluate.labelled_runs import labels, mostly
from tests.evaluate.labelled_runs import report as labelled_report
from tests.html.conftest import Visitor
from tests.html.reports import GOOD, demo, demo_document, typed
from tests.html.test_accessibility import violations

Visit = Callable[..., Visitor]


def comparison() -> RunComparison:
    """Run `later` compared with run `demo`."""
    metric = MetricDifference(
        baseline=2.25,
        candidate=1.0,
        difference=-1.25,
        low=-2.0,
        high=-0.5,
        mde=1.1,
        method="paired",
        differs=True,
    )
    row = ModelComparison(
        suite="spiral",
        mode=None,
        baseline=GOOD,
        candidate=GOOD,
        unit="prompt",
        paired=9,
        only_baseline=(),
        only_candidate=("bt-99",),
        metrics={"score": metric},
    )
    baseline, candidate = (RunName(path=f"{name}.json", run=name) for name in ("demo", "later"))
    return RunComparison(
        baseline=baseline,
        candidate=candidate,
        protocol="per-turn",
        notes=("not checked: turns",),
        comparisons=(row,),
    )


def test_two_runs_stand_side_by_side(visit: Visit, tmp_path: Path) -> None:
    """The same prompt of two runs; differences in circumstances are named; links keep the run."""
    later = demo_document()
    later["run"]["id"] = "later"
    later["integrity"]["spiral"]["rubric_hash"] = "d" * 64
    path = tmp_path / "compare.html"
    path.write_text(compare_page([demo(), typed(later)], comparison()))
    visitor = visit(path)
    page = visitor.open()

    assert "rubric hash" in page.inner_text(".notice")
    assert "\u22121.250 (\u22122.000 to \u22120.500)" in " ".join(page.inner_text("main").split())
    assert "bt-99" in page.inner_text("main")
    assert page.input_value("#left").startswith("0:")
    assert page.input_value("#right").startswith("1:")
    page.click("tbody a:has-text('bt-01-1')")
    page.wait_for_selector(".sides")
    assert page.locator(".sides > header h3").all_inner_texts() == [f"demo: {GOOD}", f"later: {GOOD}"]
    assert page.locator(".sides .message.assistant").count() == 12

    page = visitor.go("overview?run=1")
    assert page.inner_text("h1") == "Run id later"
    page.click("nav.main a:text-is('Conversations')")
    page.wait_for_selector("h1:text-is('Conversations')")
    page.click("tbody th a >> nth=0")
    page.wait_for_selector(".chat")
    assert "run=1" in page.url


def test_numbers_corrected_by_labels_stand_beside_the_measured_ones(tmp_path: Path, visit: Visit) -> None:
    """With whose labels they are; one that is refused says how many labels it takes, and shows no number."""
    both = ("useful_bounded", "right_decision")
    file = labels({"ann": lambda item, name: mostly(0.9)(item, name) if name == both[0] else "yes"}, 90, both)
    report = with_labels(labelled_report(), [GivenLabels("labels.jsonl", "d" * 64, file)], (), "bound")
    path = tmp_path / "report.html"
    path.write_text(report_page(report), encoding="utf-8")
    assert report.corrected is not None
    shown, refused = report.corrected.figures

    page = visit(path, size=(375, 812)).open("overview")
    text = page.locator("section", has_text="Corrected by labels").inner_text()

    assert "TempAffect: labels of people (ann), labels.jsonl, 90 items" in text
    assert f"{shown.raw:.2f}" in text
    assert f"{shown.value:.2f} ({shown.low:.2f} to {shown.high:.2f})" in text
    assert refused.refused is not None
    assert refused.refused.detail in text
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert violations(page) == []
