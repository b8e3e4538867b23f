"""Pictures of every view for people to look at: kept where SPIRAL_SCREENSHOTS_DIR says, as CI does."""

from __future__ import annotations

import pytest

from pytest_spiral.report.html.build import board_page
from pytest_spiral.report.html.leaderboard import Entry
from tests.html.reports import BAD, GOOD, demo_report

VIEWS = {
    "overview": "overview",
    "tempaffect": "tempaffect",
    "items": "items",
    "item": f"item?model={BAD}&mode=schema&id=pi-01",
    "spiral": f"spiral?model={BAD}",
    "conversations": "talks",
    "chat": f"talk?model={BAD}&id=bt-00-1&turn=1&finding=1",
    "findings": "findings?strength=3",
    "compare": "compare",
    "compare-chat": f"compare?talk=bt-00-1&left=0:{GOOD}&right=0:{BAD}",
    "compare-item": f"compare?item=pi-01&mode=schema&left=0:{GOOD}&right=0:{BAD}",
    "about": "run",
}
SIZES = {"desktop": (1280, 900), "phone": (375, 812)}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pictures_of_every_view(visit, demo, tmp_path, screenshots, size, scheme):
    """Whole pages at both widths, in both schemes; none of them is blank."""
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    board = tmp_path / "index.html"
    board.write_text(board_page([Entry(demo_report(), "runs/demo.html")]))
    visitor, boards = visit(demo, **options), visit(board, **options)
    visitor.open()
    for name, address in VIEWS.items():
        page = visitor.go(address)
        page.wait_for_timeout(100)
        picture = page.screenshot(path=screenshots / f"{name}-{size}-{scheme}.png", full_page=name != "chat")

        assert len(picture) > 10_000, name
    assert len(boards.open().screenshot(path=screenshots / f"leaderboard-{size}-{scheme}.png", full_page=True)) > 10_000
