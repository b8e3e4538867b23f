"""The page of unlocated findings lists what the published files hold, no more and no less."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from pytest_spiral.spiral.upstream import load_upstream

PAGE = Path(__file__).parents[2] / "docs" / "validation" / "unlocated-quotes.md"
ROW = re.compile(r"^\| (\S+) \| (\S+) \| (chunk\d+) \| (\w+) \| `(.+)` \| (.+) \|$", re.MULTILINE)


def test_every_row_is_short_and_gives_a_reason() -> None:
    """52 findings, at most twelve words quoted of each, why each was not located."""
    rows = ROW.findall(PAGE.read_text())

    assert len(rows) == 52
    assert max(len(words.split()) for *_, words, _ in rows) <= 12
    assert all(reason.strip() for *_, reason in rows)


def test_the_rows_are_the_unlocated_findings() -> None:
    """File, prompt, chunk, behaviour and the first words of the quote."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not folder:
        pytest.skip("SPIRAL_UPSTREAM_DIR is not set")
    result = Counter(
        (
            name,
            conversation.prompt_id,
            f"chunk{judgement.index}",
            finding.behaviour,
            " ".join(finding.quote.split()[:9]),
        )
        for name in ("kimi-k2", "llama-4-maverick")
        for conversation in load_upstream(Path(folder) / f"{name}.json")
        for judgement in conversation.judgements
        for finding in judgement.findings
        if finding.evidence == "unlocated"
    )

    assert Counter(row[:5] for row in ROW.findall(PAGE.read_text())) == result
