"""The conversations of the confirmatory trial: known groups, a dose series, and the order of the conditions.

    python -m benchmarks.confirmatory_conversations mix RUNS > mixed/report.json
    python -m benchmarks.confirmatory_conversations RUNS > tables.md

RUNS holds the run directories (or their `report.json`) `plain`, `warm` and `affirm`, and, for the tables, `dose`: the
mixed conversations after judging (`--replay mixed --redo-judging --run-id=dose`). What would confirm or fail a
hypothesis stands in docs/validation/trial-registration.md.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.confirmatory_trial import CONDITIONS, Row, read, table
from pytest_spiral.spiral import Conversation
from pytest_spiral.spiral.aggregate import paired_differences, score_conversations
from pytest_spiral.status import Status

MIXED = ("ac-04", "ec-05", "ie-04", "mp-04", "st-02", "td-01")
SHARES = (0, 25, 50, 75, 100)
TURNS = 10
# Two metrics: one-sided bounds of 97.5 %.
CONFIDENCE = 0.95


def affirming(opening: str) -> Iterator[frozenset[int]]:
    """Of each share the turns that affirm; each holds those of the share before it."""
    rng = random.Random(f"dose {opening}")
    order = rng.sample(range(TURNS), TURNS)
    # Of a quarter of ten turns, two or three.
    few = 2 + MIXED.index(opening) % 2
    for number in (0, few, TURNS // 2, TURNS - few, TURNS):
        yield frozenset(order[:number])


def mix(folder: Path) -> dict[str, Any]:
    """The report of `plain` with 30 conversations: of six openings, at five shares of affirming exchanges."""
    plain, affirm = (json.loads((folder / name / "report.json").read_text()) for name in ("plain", "affirm"))
    held, slid = ({one["prompt_id"]: one for one in report["spiral"]["conversations"]} for report in (plain, affirm))
    mixed = []
    for opening in MIXED:
        for step, turns in enumerate(affirming(opening)):
            exchanges = [
                (slid if turn in turns else held)[opening]["transcript"][2 * turn : 2 * turn + 2]
                for turn in range(TURNS)
            ]
            mixed.append(
                {
                    **held[opening],
                    "id": f"{opening}-{step + 1}",
                    "index": step,
                    "transcript": [message for exchange in exchanges for message in exchange],
                    "judgements": [],
                    "finals": [],
                    "retests": [],
                }
            )
    plain["spiral"]["conversations"] = mixed
    return dict(plain)


def differences(folder: Path) -> Iterator[Row]:
    """Of neighbouring conditions, expected to be below 0 in risk and above 0 in protection."""
    for better, worse in pairwise(CONDITIONS):
        found = paired_differences(read(folder, better), read(folder, worse), confidence=CONFIDENCE).differences
        for metric in ("risk", "protection", "score"):
            one = found[metric]
            yield f"{better} - {worse}", metric, f"{one.value:+.1f}", f"[{one.low:+.1f}, {one.high:+.1f}]", one.n


def headline(conversations: Sequence[Conversation]) -> Iterator[str]:
    """Risk, protection, nagging and composite, 0..100, with intervals."""
    score = score_conversations(conversations, confidence=CONFIDENCE)
    assert score.headline is not None
    for one in (score.headline.risk, score.headline.protection, score.headline.nagging):
        yield "" if one.value is None else f"{one.value:.1f} [{one.ci_low:.1f}, {one.ci_high:.1f}]"
    yield f"{score.score:.1f}"


def doses(folder: Path) -> Iterator[Row]:
    """The mixed conversations by share of affirming turns."""
    mixed = read(folder, "dose")
    for step, share in enumerate(SHARES):
        own = [one for one in mixed if one.index == step]
        yield f"{share} %", len(own), *headline(own)


def main(argv: Sequence[str]) -> None:
    """Print the mixed conversations, or all tables."""
    if argv[0] == "mix":
        print(json.dumps(mix(Path(argv[1]))))
        return
    folder = Path(argv[0])
    print(table(("pair", "metric", "difference", "95 % interval", "openings"), [*differences(folder)]), end="\n\n")
    numbers = ("conversations", "risk", "protection", "nagging", "composite")
    conditions = {name: read(folder, name) for name in CONDITIONS}
    measured = {name: [one for one in own if one.status is Status.MEASURED] for name, own in conditions.items()}
    rows = [(name, len(own), *headline(own)) for name, own in measured.items()]
    print(table(("condition", *numbers), rows), end="\n\n")
    print(table(("affirming turns", *numbers), [*doses(folder)]))


if __name__ == "__main__":
    main(sys.argv[1:])
