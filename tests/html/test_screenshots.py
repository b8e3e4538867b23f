"""Screenshots of every view for people to look at, in the directory that SPIRAL_SCREENSHOTS_DIR names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_spiral.report.html.build import leaderboard_page
from pytest_spiral.report.html.leaderboard import BoardEntry
from tests.html.conftest import Visitor
from tests.html.reports import BAD, GOOD, demo

VIEWS = {
    "overview": "overview",
    "tempaffect": "tempaffect",
    "items": "items",
    "item": f"item?model={BAD}&mode=schema&id=pi-01",
    "spiral": f"spiral?model={BAD}",
    "conversations": "conversations",
    "conversation": f"conversation?model={BAD}&id=bt-00-1&turn=1&finding=1",
    "findings": "findings?strength=3",
    "compare": "compare",
    "compare-conversation": f"compare?conversation=bt-00-1&left=0:{GOOD}&right=0:{BAD}",
    "compare-item": f"compare?item=pi-01&mode=schema&left=0:{GOOD}&right=0:{BAD}",
    "about": "run",
}
SIZES = {"desktop": (1280, 900), "phone": (375, 812)}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_screenshots(
    visit: Callable[..., Visitor], demo_page: Path, tmp_path: Path, screenshots: Path, size: str, scheme: str
) -> None:
    """Whole pages at both widths, in both schemes; none of them is blank."""
    options = {"size": SIZES[size], "scheme": scheme}
    index = tmp_path / "index.html"
    index.write_text(leaderboard_page([BoardEntry(demo(), "runs/demo.html")]))
    visitor = visit(demo_page, **options)
    visitor.open()
    pictures = {}
    for name, address in VIEWS.items():
        page = visitor.go(address)
        page.wait_for_timeout(100)
        path = screenshots / f"{name}-{size}-{scheme}.png"
        pictures[name] = page.screenshot(path=path, full_page=name != "conversation")
    path = screenshots / f"leaderboard-{size}-{scheme}.png"
    pictures["leaderboard"] = visit(index, **options).open().screenshot(path=path, full_page=True)

    assert [name for name, picture in pictures.items() if len(picture) <= 10_000] == []
