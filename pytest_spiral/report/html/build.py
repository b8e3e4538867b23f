"""The pages: one report, several runs in one page to compare them, the leaderboard over many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pytest_spiral.report.html.leaderboard import Entry, leaderboard
from pytest_spiral.report.html.markup import html_page
from pytest_spiral.report.html.view import view_of
from pytest_spiral.report.model import Report
from pytest_spiral.report.model.comparison import RunComparison

__all__ = ["compare_page", "leaderboard_page", "report_page"]


def report_page(report: Report, home: str | None = None) -> str:
    """The page of one report. home: address of the leaderboard that links to it, relative to the page."""
    view = view_of(report)
    data = {"kind": "report", "title": report.run.id, "home": home, "reports": [view.shown]}
    return html_page(f"pytest-spiral {report.run.id}", data, view.packs)


def compare_page(reports: Sequence[Report], comparison: RunComparison | None = None) -> str:
    """Several runs in one page, side by side on the same prompts. comparison: their paired differences."""
    views = [view_of(report, prefix=f"r{number}") for number, report in enumerate(reports)]
    differences = None if comparison is None else comparison.model_dump(mode="json")
    title = " and ".join(report.run.id for report in reports)
    data = {"kind": "compare", "title": title, "reports": [view.shown for view in views], "comparison": differences}
    return html_page(
        f"pytest-spiral {title}", data, {name: pack for view in views for name, pack in view.packs.items()}
    )


def leaderboard_page(entries: Sequence[Entry]) -> str:
    """The leaderboard over many runs."""
    data = {
        "kind": "leaderboard",
        "title": "leaderboard",
        "leaderboard": {"groups": [*map(asdict, leaderboard(entries))]},
    }
    return html_page("pytest-spiral leaderboard", data, {})
