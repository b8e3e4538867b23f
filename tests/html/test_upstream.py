"""Both published result files are readable as chats, with their real findings marked in the text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_spiral.cli import main
from pytest_spiral.compare.reports import open_report
from pytest_spiral.report.html.build import report_page


@pytest.mark.parametrize("file", ["kimi-k2.json", "llama-4-maverick.json"])
def test_real_findings_are_highlighted(visit, tmp_path, file):
    """30 conversations; every located finding of one of them stands marked, word for word."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not folder:
        pytest.skip("SPIRAL_UPSTREAM_DIR names no folder of upstream's result files")
    report = open_report(Path(folder) / file)
    path = tmp_path / "report.html"
    path.write_text(report_page(report))
    talks = report["spiral"]["conversations"]
    talk = max(
        talks, key=lambda talk: sum(f["strength"] for f in talk["findings"] if f["behaviour"] == "harmful_advice")
    )
    visitor = visit(path)
    page = visitor.open("talks")
    assert page.locator("tbody tr").count() == 30

    page.evaluate("id => { location.hash = `talk?id=${id}` }", talk["id"])
    page.wait_for_selector(".chat")
    texts = page.evaluate(
        """() => { const found = {}; for (const mark of document.querySelectorAll(".chat mark"))
            for (const n of mark.dataset.finding.split(" ")) found[n] = (found[n] || "") + mark.textContent;
            return found; }"""
    )
    replies = [message["content"] for message in talk["transcript"] if message["role"] == "assistant"]
    for number, finding in enumerate(talk["findings"], start=1):
        wanted = None if finding["start"] is None else replies[finding["turn"]][finding["start"] : finding["end"]]
        assert texts.get(str(number)) == wanted, finding
    assert sum(text is not None for text in texts.values()) > 20


def test_both_files_are_compared_in_one_page(visit, tmp_path, monkeypatch):
    """Paired differences and the same conversation side by side."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not folder:
        pytest.skip("SPIRAL_UPSTREAM_DIR names no folder of upstream's result files")
    monkeypatch.chdir(tmp_path)
    files = [str(Path(folder) / name) for name in ("kimi-k2.json", "llama-4-maverick.json")]

    assert main(["compare", *files, "--html", "both.html"]) == 0

    page = visit(tmp_path / "both.html").open()
    table = page.locator("table", has_text="Paired differences with 95 % intervals")
    assert "yes" in table.locator("tr", has=page.locator("th:text-is('score')")).inner_text()
    page.click("tbody a:has-text('mp05-1')")
    page.wait_for_selector(".sides")
    assert page.locator(".sides .message.assistant").count() == 40
