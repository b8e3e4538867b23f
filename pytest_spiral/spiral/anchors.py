"""Anchors: fixed turns that every judge judges twice in every run, so that a judge who has changed is noticed. Pure.

Of an anchor, two runs have four judgements of a judge: a, b of the one and c, d of the other. With |a - b| for the sum
over behaviours of the difference of their highest strengths,

    within  = (|a - b| + |c - d|) / 2
    between = (|a - c| + |a - d| + |b - c| + |b - d|) / 4
    shift   = mean over anchors of (between - within)

The four judgements of an unchanged judge may change places: of the three ways to pair them, each is as likely to be the
one that was seen. Over anchors that gives the distribution of the shift exactly, whatever the judge's noise is.

>>> shift_of([({"pushback": 2}, {"pushback": 2}, {}, {})] * 3)
(2.0, 0.037037037037037035)

Source:
    Szekely and Rizzo 2013, Energy statistics, J. Stat. Plann. Inference 143:1249; Fisher's permutation test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from math import fsum
from typing import Annotated, NamedTuple

from pydantic import Field

from pytest_spiral.report.model.anchors import Anchors, JudgeAnchors, Vector
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.agreement import seen_in
from pytest_spiral.spiral.labels import LabelledSet, load_labels, shipped_turns
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import ChunkJudgement
from pytest_spiral.tables import Table, Text, read_table

ALPHA = 0.05
"""False alarms of a check of all judges of two runs, at most."""
ENOUGH = 0.75
"""Share of the anchors of which all four judgements are needed: with fewer, a judge counts as not checked."""
UNCHECKED = "whether the judges have changed was not checked: no anchors in common"
Four = tuple[Vector, Vector, Vector, Vector]
Judged = Mapping[str, Sequence[ChunkJudgement]]
"""By turn id, one judgement per judge."""


def judge_again(baseline: str) -> str:
    """What to do about a baseline with other judges. baseline: its path."""
    return f"judge it again with `pytest --replay={baseline} --redo-judging`, and name that run as the baseline"


class _Choice(Table):
    set: Text
    turns: Annotated[tuple[Text, ...], Field(min_length=1)]


class _Choices(Table):
    rubrics: dict[str, _Choice]


def load_anchors(protocol: Protocol) -> LabelledSet | None:
    """The anchors of a protocol's rubric; None where there are none, as for protocols of the public implementation."""
    return None if protocol.rubric is None or protocol.counting == "stated_sums" else _anchors(protocol.rubric)


@cache
def _anchors(rubric: str) -> LabelledSet | None:
    choice = read_table(_Choices, data_root() / "spiral" / "anchors.toml").rubrics.get(rubric)
    return None if choice is None else shipped_turns(choice.set, choice.turns)


def judge_anchors(judged: tuple[Judged, Judged], number: int, judged_at: str) -> JudgeAnchors:
    """What one judge said in both passes, by its number among the judges."""
    passes = tuple({turn: vector_of(of[number]) for turn, of in each.items()} for each in judged)
    first, second = ({turn: vector for turn, vector in each.items() if vector is not None} for each in passes)
    twice = [distance(vector, second[turn]) for turn, vector in first.items() if turn in second]
    failed = [one[number].reason for each in judged for one in each.values()]
    return JudgeAnchors(
        judged_at=judged_at,
        passes=(first, second),
        answered=len(twice),
        failures=dict(Counter(reason.code for reason in failed if reason is not None)),
        noise=fsum(twice) / len(twice) if twice else None,
    )


def overlooked(anchors: Anchors | None, protocol: Protocol) -> Mapping[str, tuple[int, int]]:
    """By judge, in how many anchors with a risky behaviour by the raters it sees none, and how many it answered.

    Nothing where the anchors are other ones than those of the protocol's rubric.
    """
    shown = load_anchors(protocol)
    if anchors is None or shown is None or shown.hash != anchors.hash:
        return {}
    ids, risky = {turn.id for turn in shown.turns}, protocol.weighted("risky")
    harmful = [turn for turn in _turns_with(tuple(risky), protocol.behaviours) if turn in ids]
    found = {}
    for judge, said in anchors.judges.items():
        answers = [said.passes[0][turn] for turn in harmful if turn in said.passes[0]]
        found[judge] = sum(not any(name in answer for name in risky) for answer in answers), len(answers)
    return found


@cache
def _turns_with(found: Sequence[str], behaviours: Sequence[str]) -> tuple[str, ...]:
    """Shipped turns in which the raters found one of some behaviours, among those that they looked for."""
    return tuple(turn.id for turn in load_labels(None, behaviours).turns if any(map(turn.reference, found)))


def vector_of(judgement: ChunkJudgement) -> Vector | None:
    """The highest strength by behaviour and the marks of the user's message; None for a judgement that failed."""
    if (seen := seen_in(judgement)) is None:
        return None
    return dict(sorted({**seen, **{name: mark for name, mark in judgement.called_for.items() if mark}}.items()))


def distance(one: Vector, other: Vector) -> int:
    """Points of strength in which two judgements of a turn differ."""
    return sum(abs(one.get(name, 0) - other.get(name, 0)) for name in {*one, *other})


def shift_of(anchors: Sequence[Four]) -> tuple[float, float]:
    """The shift between two runs, and the probability that an unchanged judge shows as large a one.

    anchors: of each, the two judgements of the one run and the two of the other.
    """
    # Numbers of the outcomes by the sum over anchors of what is within pairs: the smaller, the larger the shift.
    sums: Counter[int] = Counter({0: 1})
    shifts, seen = [], 0
    for four in anchors:
        ab, ac, ad, bc, bd, cd = (distance(x, y) for x, y in combinations(four, 2))
        pairings = (ab + cd, ac + bd, ad + bc)
        shifts.append((sum(pairings) - 3 * pairings[0]) / 4)
        seen += pairings[0]
        following: Counter[int] = Counter()
        for total, count in sums.items():
            for within in pairings:
                following[total + within] += count
        sums = following
    extreme = sum(count for total, count in sums.items() if total <= seen)
    return (fsum(shifts) / len(shifts) if shifts else 0.0), extreme / 3 ** len(anchors)


class Movement(NamedTuple):
    """Whether a judge has changed between two runs, None where too few anchors were judged to tell, and in words."""

    moved: bool | None
    said: str


def movements(one: Anchors | None, other: Anchors | None, *, checks: int = 1) -> tuple[Movement, ...]:
    """Every judge of the same name in both runs; none where they have no common anchors to tell by.

    checks: of pairs of runs that are made together. Each judge in each is tested at its share of `ALPHA`.
    """
    if one is None or other is None or one.hash != other.hash:
        return ()
    found = []
    names = [name for name in one.judges if name in other.judges]
    for name in names:
        passes = *one.judges[name].passes, *other.judges[name].passes
        (a, b, c, d), complete = passes, sorted(set.intersection(*map(set, passes)))
        if len(complete) < ENOUGH * one.of:
            few = f"only {len(complete)} of {one.of} anchors were judged in both"
            found.append(Movement(None, f"{name} may have changed: {few}"))
            continue
        shift, p = shift_of([(a[turn], b[turn], c[turn], d[turn]) for turn in complete])
        moved = p <= ALPHA / (checks * len(names))
        change = f"{shift:.2f} points of strength a turn beyond its retest noise (p = {p:.2g})"
        found.append(
            Movement(moved, f"{name} {'has changed' if moved else 'shows no change'} on the anchors: {change}")
        )
    return tuple(found)


def not_the_same(one: Anchors | None, other: Anchors | None, *, checks: int = 1) -> str:
    """Why judgements of two runs are not to be compared; "" where nothing is known that speaks against it."""
    return "; ".join(each.said for each in movements(one, other, checks=checks) if each.moved is not False)
