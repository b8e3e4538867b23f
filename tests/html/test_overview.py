"""What the page says first: the decision, and nothing that judges without a verdict did not look for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_spiral.report.html.build import report_page
from tests.html.conftest import Visitor
from tests.html.reports import demo_document, typed

Visit = Callable[..., Visitor]


@pytest.mark.parametrize("verdict", ["fail", "measured", "incomplete"])
def test_the_first_screen_answers(visit: Visit, tmp_path: Path, verdict: str) -> None:
    """At 1280 by 800 pixels: may it ship, what passed means, why, how sure, by which item, what next."""
    document = demo_document()
    document["verdict"] = verdict
    document["run"] |= {"argv": ["--model=m", "--run-id=demo"]}
    document["run"]["config"] |= {"model": ["m"]}
    if verdict != "fail":
        document["gates"] = []
    path = tmp_path / "report.html"
    path.write_text(report_page(typed(document)), encoding="utf-8")
    page = visit(path, size=(1280, 800)).open()

    shown = ["How sure", "Worst item", "Next"]
    assert page.locator(".brief dt").all_inner_texts() == (shown if verdict == "measured" else ["Why", *shown])
    for part in (".lead", ".lead + .note", ".brief"):
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 800, part
    assert "pytest" in page.locator(".brief dd").last.inner_text()
    page.locator(".brief a").click()
    page.wait_for_selector("mark")


def test_judges_without_a_verdict_clear_nobody_of_harm(visit: Visit, tmp_path: Path) -> None:
    """What they did not look for they did not find: the overview does not count it."""
    document = demo_document()
    for score in document["spiral"]["scores"]:
        score["judges"]["health"]["no_verdict"] = ["judgements of j0 mean nothing: J01"]
    path = tmp_path / "report.html"
    path.write_text(report_page(typed(document)), encoding="utf-8")
    page = visit(path).open()

    said = page.locator(".tile", has_text="Spiral-Bench").all_inner_texts()
    assert all("the judges leave no verdict" in text and "strength-3" not in text for text in said)
    assert said


@pytest.mark.parametrize("any_score", [True, False])
def test_what_was_not_measured_is_not_cleared(visit: Visit, tmp_path: Path, any_score: bool) -> None:
    """An empty list of worst items says no more than was measured."""
    document = demo_document()
    document["tempaffect"] |= {"items": [], "cards": document["tempaffect"]["cards"] if any_score else []}
    document["spiral"] |= {"conversations": [], "scores": []}
    path = tmp_path / "report.html"
    path.write_text(report_page(typed(document)), encoding="utf-8")
    said = visit(path).open().locator("section", has_text="Worst items").inner_text()

    assert "every answer was useful" not in said
    assert ("None in what was measured" if any_score else "Nothing was measured that could be good or bad") in said


def test_states_without_a_score_and_weights_are_told_as_they_are(visit: Visit, tmp_path: Path) -> None:
    """A conversation that the model failed has no score; a weight of 0.75 is not 0.8."""
    report = typed(demo_document())
    path = tmp_path / "report.html"
    path.write_text(report_page(report), encoding="utf-8")
    page = visit(path).open()

    assert "Only what was measured has a score, and of TempAffect what the model failed" in page.inner_text("main")
    row = (
        visit(path)
        .open("spiral")
        .locator("table", has_text="Adds to the score")
        .locator("tr", has_text="inner life claim")
    )
    assert "0.75" in row.inner_text().split()


def test_how_sure_names_a_number_that_was_measured(visit: Visit, tmp_path: Path) -> None:
    """Scenarios without a decision key have a score, but no rate of useful and bounded replies."""
    document = demo_document()
    document |= {"verdict": "measured", "gates": []}
    card = document["tempaffect"]["cards"][0]
    card["useful_bounded_response_rate"] = None
    path = tmp_path / "report.html"
    path.write_text(report_page(typed(document)), encoding="utf-8")

    said = visit(path).open().locator(".brief").inner_text()
    assert f"score {card['score']:.2f} (" in said
    assert "useful and bounded not measured" not in said
