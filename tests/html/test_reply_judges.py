"""Judges of replies on the report's page: whose answers these are, how far raters agree, and both sides' evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_spiral.evaluate.reply_judges import reply_judges
from pytest_spiral.labelling.files import TEMPAFFECT_QUESTIONS
from pytest_spiral.report.html.build import report_page
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import Report
from pytest_spiral.report.raters import judge_lines
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.tempaffect.records import Item, RatedAnswer, ReplyJudgement
from tests.html.conftest import Visitor
from tests.html.reports import demo
from tests.html.test_accessibility import violations

HOSTILE = "<img src=x onerror=alert(1)> `|` \u202e"


def with_judges() -> Report:
    """The small report, its replies judged by two models: one says no to everything in hostile words, one fails."""
    no = {name: RatedAnswer("no", HOSTILE, "exact") for name in TEMPAFFECT_QUESTIONS}
    lost = Reason(ReasonCode.NOT_JSON, "nothing to read")

    def judged(item: Item) -> Item:
        rows = (
            ReplyJudgement("strict", Status.MEASURED, None, no, ("fence",)),
            ReplyJudgement("mute", Status.INSTRUMENT_FAILED, lost),
        )
        return replace(item, judged=rows if item.answer else ())

    report = demo()
    items = tuple(map(judged, report.tempaffect.items))
    tempaffect = report.tempaffect.model_copy(update={"items": items})
    return report.model_copy(update={"tempaffect": tempaffect, "reply_judges": reply_judges(items)})


@pytest.fixture(scope="module")
def report() -> Report:
    return with_judges()


def test_the_page_shows_both_sides(report: Report, visit: Callable[..., Visitor], tmp_path: Path) -> None:
    """As text, whatever it is, without a serious violation; an item shows every judge's answers and failures."""
    path = tmp_path / "report.html"
    path.write_text(report_page(report), encoding="utf-8")
    visitor = visit(path)
    page = visitor.open()

    section = page.locator("section", has=page.locator("h2", has_text="Reply judges"))
    assert "models' answers, not people's" in section.inner_text()
    assert "pytest-spiral label reports/demo -o labels --suite tempaffect" in section.inner_text()
    assert "the scorer and strict" in section.inner_text()
    assert section.locator("img").count() == 0
    assert violations(page) == []
    section.locator("tbody a").first.click()
    page.wait_for_selector("h2:text-is('Judge models on the reply')")
    text = page.locator("section", has=page.locator("h2", has_text="Judge models on the reply")).inner_text()
    assert "mute: " in text
    assert "<img src=x" in text
    assert violations(page) == []


def test_terminal_and_summary_say_whose_answers_they_are(report: Report) -> None:
    """One sentence for each judge; the summary has a table."""
    assert report.reply_judges is not None
    lines = [line for line, _ in judge_lines(report.reply_judges, "reports/demo")]
    summary = summary_markdown(report)

    assert max(map(len, lines)) <= 80
    assert "(models' answers, not people's)" in " ".join(line.strip() for line in lines)
    assert lines[-1] == "  pytest-spiral label reports/demo -o labels --suite tempaffect"
    assert "### Reply judges: models' answers, not people's" in summary
    assert "- mute: " in summary
    assert "| the scorer and strict | useful\\_bounded |" in summary
    # Both sides' evidence, and nothing of it is markup.
    assert "| Item | Question | Scorer | Judges |" in summary
    assert "strict\\: no, " in summary
    assert "<img" not in summary
