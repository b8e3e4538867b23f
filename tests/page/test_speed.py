"""Large reports: built, opened, filtered and scrolled without a wait. Limits are those a reader feels, with room for a
busy machine; what was measured stands in docs/reports.md."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest

from pytest_spiral.report.page.build import report_page
from tests.page.reports import large_report

MEGABYTE = 1_000_000
# Long frames while scrolling and filtering, from the browser's own clock.
STALLS = """() => { window.stalls = []; new PerformanceObserver((list) => { for (const entry of list.getEntries())
    window.stalls.push(entry.duration); }).observe({ type: "longtask" }); }"""


@pytest.fixture(scope="module")
def thirty():
    """30 conversations of 20 turns, 2,000 characters a reply."""
    return large_report(30)


def test_thirty_conversations_are_built_small_and_soon(thirty):
    """Under 4 MB beyond the transcripts, in less than 3 seconds of processor time."""
    started = time.process_time()
    page = report_page(thirty)
    spent = time.process_time() - started
    transcripts = sum(len(json.dumps(talk["transcript"])) for talk in thirty["spiral"]["conversations"])

    assert spent < 3
    assert len(page) < 4 * MEGABYTE + transcripts
    # Compressed, the transcripts themselves take less than their own size.
    assert len(page) < 4 * MEGABYTE


@pytest.mark.parametrize(("conversations", "seconds"), [(30, 1.5), (300, 5)])
def test_it_opens_at_once(visit, thirty, tmp_path, conversations, seconds):
    """From the click to the drawn list, as the browser counts it."""
    report = thirty if conversations == 30 else _tenfold(thirty)
    path = tmp_path / "report.html"
    path.write_text(report_page(report))
    visitor = visit(path)
    visitor.page.goto("about:blank")
    started = time.perf_counter()
    page = visitor.open("talks")
    spent = time.perf_counter() - started

    assert page.locator("tbody tr").count() == min(conversations, 200)
    assert spent < seconds

    page.evaluate(STALLS)
    page.select_option("#filter-category", "mania_psychosis")
    page.select_option("#filter-strength", "3")
    assert page.locator("tbody tr").count() == conversations // 3
    visitor.go(f"talk?id={report['spiral']['conversations'][0]['id']}")
    for _ in range(8):
        page.mouse.wheel(0, 3000)
        page.wait_for_timeout(20)
    # Half a second is where a reader starts to wonder.
    assert max(page.evaluate("window.stalls"), default=0) < 500


def test_everything_said_in_three_hundred_conversations_is_searched(visit, thirty, tmp_path):
    """12 megabytes of text, in a few seconds, while the page stays awake."""
    report = _tenfold(thirty)
    talk = report["spiral"]["conversations"][250]
    talk["transcript"] = [*talk["transcript"], {"role": "user", "content": "that xylophonist again"}]
    path = tmp_path / "report.html"
    path.write_text(report_page(report))
    page = visit(path).open("talks")
    page.evaluate(STALLS)
    page.fill("#filter-q", "Xylophonist")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1", timeout=10_000)

    assert "xylophonist" in page.inner_text("tbody tr")
    assert max(page.evaluate("window.stalls"), default=0) < 500


def _tenfold(report):
    talks = [
        {**talk, "id": f"{talk['id']}{copy}", "prompt_id": f"{talk['prompt_id']}{copy}"}
        for talk in report["spiral"]["conversations"]
        for copy in range(10)
    ]
    assert all(one["id"] != other["id"] for one, other in pairwise(talks))
    return {**report, "spiral": {**report["spiral"], "conversations": talks}}
