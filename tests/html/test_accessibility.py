"""Pages for everybody: no serious or critical violation that axe can find, light and dark, at a desk and on a phone."""

from __future__ import annotations

import pytest

from pytest_spiral.report.html.build import board_page
from pytest_spiral.report.html.leaderboard import Entry
from tests.html.reports import BAD, GOOD, demo_report

VIEWS = (
    "overview", "tempaffect", "items", f"item?model={BAD}&mode=raw&id=pi-01", f"spiral?model={BAD}", "talks",
    f"talk?model={BAD}&id=bt-00-1&turn=1&finding=1", "findings?strength=3", "compare", "compare?talk=bt-00-1",
    f"compare?item=pi-01&mode=schema&left=0:{GOOD}&right=0:{BAD}", "run",
)  # fmt: skip


def serious(page) -> list[str]:
    """What axe finds, worst first, as sentences."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the test extra is not installed")
    page.wait_for_timeout(50)
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{row['id']}: {row['help']}: {row['nodes'][0]['html'][:160]} ({len(row['nodes'])} times)"
        for row in found
        if row["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(
    ("scheme", "width", "views"),
    [("light", 1280, VIEWS), ("dark", 375, VIEWS[1::2])],
    ids=["light-desktop", "dark-phone"],
)
def test_no_serious_violation(visit, demo, scheme, width, views):
    """Names, roles, contrast, order of headings, tables, keyboard reach."""
    visitor = visit(demo, color_scheme=scheme, viewport={"width": width, "height": 900})
    visitor.open()

    assert {view: serious(visitor.go(view)) for view in views} == {view: [] for view in views}


def test_the_leaderboard_and_the_help_too(visit, demo, tmp_path):
    """The tables that sort, and the dialog."""
    path = tmp_path / "index.html"
    path.write_text(board_page([Entry(demo_report(), "runs/demo.html")]))
    assert serious(visit(path).open()) == []

    page = visit(demo).open("run")
    page.click("button:text-is('Keys')")
    assert serious(page) == []
