"""The pages: one report, several runs in one page to compare them, the leaderboard over many. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_spiral.report.html.leaderboard import Entry, board
from pytest_spiral.report.html.markup import html_page
from pytest_spiral.report.html.view import view_of

__all__ = ["board_page", "compare_page", "report_page"]


def report_page(report: Mapping[str, Any], home: str | None = None) -> str:
    """The page of one report. home: address of the leaderboard it belongs to, relative to the page.

    Raises `DataError` for what is no report of this version.
    """
    view = view_of(report)
    shown = {"kind": "report", "title": str(report["run"]["id"]), "home": home, "reports": [view.shown]}
    return html_page(f"pytest-spiral {shown['title']}", shown, view.packs)


def compare_page(reports: Sequence[Mapping[str, Any]], comparison: Mapping[str, Any] | None = None) -> str:
    """Several runs in one page, side by side on the same prompts. comparison: their paired differences, as JSON.

    Raises `DataError` for what is no report of this version.
    """
    views = [view_of(report, prefix=f"r{number}") for number, report in enumerate(reports)]
    title = " and ".join(str(report["run"]["id"]) for report in reports)
    shown = {
        "kind": "compare",
        "title": title,
        "reports": [view.shown for view in views],
        "comparison": comparison,
    }
    packs = {name: pack for view in views for name, pack in view.packs.items()}
    return html_page(f"pytest-spiral {title}", shown, packs)


def board_page(entries: Sequence[Entry]) -> str:
    """The leaderboard over many runs."""
    return html_page(
        "pytest-spiral leaderboard", {"kind": "board", "title": "leaderboard", "board": board(entries)}, {}
    )
