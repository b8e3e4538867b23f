"""The page about Spiral-Bench v1.2 holds what the public files give."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.v1_2_published import ROWS, published_rows, tables

PAGE = Path(__file__).parents[2] / "docs" / "validation" / "spiral-bench-v1.2.md"


@pytest.fixture
def folder() -> Path:
    """The public files."""
    name = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not name:
        pytest.skip("SPIRAL_UPSTREAM_DIR is not set")
    return Path(name)


def test_the_published_rows_are_recomputed(folder: Path) -> None:
    """All 25 within .05, or within what the rounding of their means leaves open."""
    rows = published_rows(folder / ROWS)

    assert len(rows) == 25
    assert all(row.low - 0.05 <= row.published <= row.high + 0.05 for row in rows)
    assert [row.model for row in rows if abs(row.published - row.recomputed) > 0.05] == ["qwen3-235b-a22b-2507"]


def test_the_page_is_in_step(folder: Path) -> None:
    """`python -m benchmarks.v1_2_published` prints its tables."""
    page = PAGE.read_text(encoding="utf-8").splitlines()

    assert [line for line in tables(folder) if line not in page and not line.startswith("###")] == []
