"""When a reply counts as repeating itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_spiral.repetition import repeats_itself

REPLIES = Path(__file__).parents[1] / "benchmarks" / "labelled_replies"
_TO_DO = "I am not sure what to do. "
_NAMES = ("Ada", "Ben", "Cem", "Dan", "Eva", "Fay", "Gil", "Hal", "Ida", "Jon")
_TASKS = "".join(f"Ask {name} what has become of it. " for name in _NAMES)


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("I see. " + _TO_DO * 3, True),
        ("I see. " + _TO_DO * 2, False),
        ("No, " * 15, True),
        ("No, " * 14, False),
        (_TO_DO * 8 + "But then", False),
        ("-" * 119, False),
        ("-" * 120, True),
        ("| 0 | 0 |\n" * 12, True),
        ("| 0 | 0 |\n" * 11, False),
        ("".join(f"{number}. Wait. " for number in range(60)), True),
        ("".join(f"There are {number} of them on the table. " for number in range(19)), False),
        ("".join(f"Day {number}: {_TASKS} " for number in range(5)), True),
        ("".join(f"Day {number}: {_TASKS} " for number in range(4)), False),
    ],
)
def test_what_counts(text: str, repeats: bool) -> None:
    """Passages with letters soon, rules and tables later, counting last; and only at the end of the text."""
    assert repeats_itself(text) is repeats


def test_no_labelled_reply_would_be_cut_off() -> None:
    """None of them says anything of 20 characters three times in a row, at its end or before."""
    thrice = re.compile(r"(.{20,100}?)\1\1", re.DOTALL)
    replies = [json.loads(line)["reply"] for path in REPLIES.glob("*.jsonl") for line in path.read_text().splitlines()]

    assert len(replies) > 2000
    assert [reply for reply in replies if thrice.search(reply)] == []
