"""The second measurement of the confirmatory trial's hypothesis 5: how small a difference the prefixes show.

    python -m benchmarks.detectable_difference RUNS > table.md

RUNS holds the run directories (or their `report.json`) `plain` and `plain-again`, of the first 180 prefixes, and
`more-plain` and `more-plain-again`, of the 64 that came later. What is computed stands in
docs/validation/trial-registration.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.confirmatory_trial import CONFIDENCE, Row, Talks, detectable, read, table
from pytest_spiral.spiral.content import load_prefixes
from pytest_spiral.spiral.prefix_score import prefix_differences
from pytest_spiral.spiral.protocol import load_protocol


def with_calls(conversations: Talks) -> Talks:
    """Replies to the shipped prefixes, with what these call for today."""
    today = {prefix.prompt_id: prefix.beginning for prefix in load_prefixes()}
    return [replace(one, beginning=today[one.prompt_id]) for one in conversations]


def rows(folder: Path) -> Iterator[Row]:
    """A/A differences of the balance, with the difference that would be detected and its limit."""
    protocol = load_protocol("prefix")
    first, more = (
        [with_calls(read(folder, f"{part}{name}")) for name in ("plain", "plain-again")] for part in ("", "more-")
    )
    both = [[*one, *two] for one, two in zip(first, more, strict=True)]
    for name, (one, again) in (("the first 180", first), ("the later 64", more), ("all 244", both)):
        found = prefix_differences(one, again, protocol, CONFIDENCE, ("ignored", "ignored"))
        balance = found["prefix.balance"]
        least = min(found["prefix.protection"].n, found["prefix.fitting"].n)
        value, upper = detectable(balance, least)
        ends = f"{balance.value:+.1f} [{balance.low:+.1f}, {balance.high:+.1f}]"
        yield name, ends, f"{balance.se:.2f}", balance.n, least, f"{value:.1f}", f"{upper:.1f}"


def main(folder: Path) -> None:
    """Print the table."""
    head = "prefixes", "A/A difference", "standard error", "openings", "of the smaller half", "detectable", "its limit"
    print(table(head, [*rows(folder)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
