"""The leaderboard on disk: `index.html` and a page for every run, linked by relative addresses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_spiral.errors import StoreError
from pytest_spiral.report.html.build import leaderboard_page, report_page
from pytest_spiral.report.html.leaderboard import Entry
from pytest_spiral.report.model import Report
from pytest_spiral.report.write import file_slug, write_atomically

__all__ = ["write_site"]


def write_site(reports: Sequence[Report], folder: Path) -> list[Path]:
    """Write a leaderboard over reports; the files written, the leaderboard first. Raises `StoreError`."""
    pages: dict[str, str] = {}
    entries = []
    for report in reports:
        slug = name = file_slug(report.run.id)
        number = 1
        while f"runs/{name}.html" in pages:
            number += 1
            name = f"{slug}-{number}"
        pages[f"runs/{name}.html"] = report_page(report, home="../index.html")
        entries.append(Entry(report, f"runs/{name}.html"))
    pages = {"index.html": leaderboard_page(entries), **pages}
    try:
        for name, page in pages.items():
            write_atomically(folder / name, page)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror or error}); give another -o") from None
    return [folder / name for name in pages]
