"""The leaderboard on disk: `index.html` and a page for every run, linked by relative addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_spiral.errors import StoreError
from pytest_spiral.report.html.build import board_page, report_page
from pytest_spiral.report.html.leaderboard import Entry
from pytest_spiral.report.write import file_slug, write_atomically

__all__ = ["write_site"]


def write_site(reports: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write a leaderboard over reports. Returns the files, the leaderboard first.

    Raises `DataError` for what is no report of this version, `StoreError` where the folder cannot be written.
    """
    pages: dict[str, str] = {}
    entries = []
    for report in reports:
        slug = name = file_slug(str(report["run"]["id"]))
        number = 1
        while f"runs/{name}.html" in pages:
            number += 1
            name = f"{slug}-{number}"
        pages[f"runs/{name}.html"] = report_page(report, home="../index.html")
        entries.append(Entry(report, f"runs/{name}.html"))
    pages = {"index.html": board_page(entries), **pages}
    try:
        for name, page in pages.items():
            write_atomically(folder / name, page)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror or error}); give another -o") from None
    return [folder / name for name in pages]
