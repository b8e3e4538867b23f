"""No serious or critical violation that axe can find, light on a desktop and dark on a phone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_spiral.report.html.build import leaderboard_page
from pytest_spiral.report.html.leaderboard import BoardEntry
from tests.html.conftest import Visitor
from tests.html.reports import BAD, GOOD, demo

if TYPE_CHECKING:
    from playwright.sync_api import Page

LIGHT = (
    *("overview", "items", "tempaffect", "conversations", "compare", "run"),
    f"conversation?model={BAD}&id=bt-00-1&turn=1&finding=1",
)
DARK = (
    *("tempaffect", "findings?strength=3", "compare?conversation=bt-00-1", f"spiral?model={BAD}"),
    f"item?model={BAD}&mode=raw&id=pi-01",
    f"compare?item=pi-01&mode=schema&left=0:{GOOD}&right=0:{BAD}",
)


def violations(page: Page) -> list[str]:
    """What axe finds, as sentences."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the test extra is not installed")
    page.wait_for_timeout(50)
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.Axe().axe_script)
    # Not by `Axe.run`, which sends the script each time and gets back every element that is well.
    rows = page.evaluate("axe.run({resultTypes: ['violations']}).then(results => results.violations)")
    return [
        f"{row['id']}: {row['help']}: {row['nodes'][0]['html'][:160]} ({len(row['nodes'])} times)"
        for row in rows
        if row["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(
    ("scheme", "width", "views"), [("light", 1280, LIGHT), ("dark", 375, DARK)], ids=["light-desktop", "dark-phone"]
)
def test_no_serious_violation(
    visit: Callable[..., Visitor], demo_page: Path, scheme: str, width: int, views: Sequence[str]
) -> None:
    """Names, roles, contrast, order of headings, tables, keyboard reach."""
    visitor = visit(demo_page, scheme=scheme, size=(width, 900))
    visitor.open()

    assert {view: violations(visitor.go(view)) for view in views} == {view: [] for view in views}


def test_leaderboard_and_help(visit: Callable[..., Visitor], demo_page: Path, tmp_path: Path) -> None:
    """The tables that sort, and the dialog."""
    path = tmp_path / "index.html"
    path.write_text(leaderboard_page([BoardEntry(demo(), "runs/demo.html")]))
    assert violations(visit(path).open()) == []

    page = visit(demo_page).open("run")
    page.click("button:text-is('Keys')")
    assert violations(page) == []
