"""What each rule of the reader of decisions contributes, on replies whose decisions people or models have rated.

    python -m benchmarks.decision_rules FILE

FILE is one of `benchmarks/labelled_replies`, see `benchmarks/reply_labels.py`. Replies without a majority are left out.
The table has a line for each rule left out: replies read as right and as not, right ones lost, wrong ones passed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import BaseModel

from pytest_spiral.tempaffect.checks import commitment, decision, patterns, prepare_reply
from pytest_spiral.tempaffect.checks.sentences import PreparedReply
from pytest_spiral.tempaffect.scenario import Decision
from pytest_spiral.tempaffect.suite import load_suite


class Rated(BaseModel):
    """A rated reply. right: one letter a rater."""

    scenario: str
    writer: str
    reply: str
    right: str

    @property
    def is_right(self) -> bool | None:
        """What most raters say."""
        yes, no = self.right.count("y"), self.right.count("n")
        return None if yes == no else yes > no


Case = tuple[str, bool, Decision, PreparedReply]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    cases = load(parser.parse_args().file)
    print("| writer | right | lost | not right | passed |\n|---|---|---|---|---|")
    for writer in (*sorted({case[0] for case in cases}), ""):
        some = [case for case in cases if writer in ("", case[0])]
        _, _, lost, passed = count(some)
        right = sum(case[1] for case in some)
        print(f"| {writer or 'all'} | {right} | {lost} | {len(some) - right} | {passed} |")
    print("\n| left out | read as right | read as not | lost | passed |\n|---|---|---|---|---|")
    print("|".join(("", " nothing ", *(f" {number} " for number in count(cases)), "")))
    for rule in commitment.DECISION_RULES[:-1]:
        kept = tuple(each for each in commitment.DECISION_RULES if each is not rule)
        with mock.patch.object(decision, "DECISION_RULES", kept):
            print("|".join(("", f" {rule.name} ", *(f" {number} " for number in count(cases)), "")))
    for name, without in (("clauses of one act", any_neighbours), ("right acts told in two sentences", one_sentence)):
        with without():
            print("|".join(("", f" {name} ", *(f" {number} " for number in count(cases)), "")))
    return 0


@contextmanager
def any_neighbours() -> Iterator[None]:
    """Words of a wrong act may stand in any two neighbouring clauses."""
    with mock.patch.object(patterns, "_joins", lambda of, own, window: window[0] >= 0):
        yield


@contextmanager
def one_sentence() -> Iterator[None]:
    """No act is read over two sentences."""
    units = decision._units

    def one_by_one(*args: Any) -> Iterator[decision._Unit]:
        return (unit for unit in units(*args) if len(unit.parts) == 1)

    with mock.patch.object(decision, "_units", one_by_one):
        yield


def load(path: Path) -> list[Case]:
    """The rated replies with the keys of their scenarios."""
    suite = load_suite().by_id
    rated = [Rated.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    cases = [(each, each.is_right, suite[each.scenario].expected.decision) for each in rated]
    return [
        (each.writer, right, key, prepare_reply(each.reply))
        for each, right, key in cases
        if right is not None and key is not None
    ]


def count(cases: Sequence[Case]) -> tuple[int, int, int, int]:
    """Replies read as right, read as not right, lost and passed."""
    read = [(right, decision.read_decision(key, reply).right) for _, right, key, reply in cases]
    accepted = sum(found for _, found in read)
    return accepted, len(read) - accepted, read.count((True, False)), read.count((False, True))


if __name__ == "__main__":
    raise SystemExit(main())
