"""How stable composites and their order are under other weights. Pure: the draws are the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import combinations
from math import exp, fsum, log
from operator import mul
from random import Random
from typing import Annotated

from pydantic import Field

from pytest_spiral.report.model.spiral import OrderStability, ProtocolScore, WeightRange, WeightStability
from pytest_spiral.resources import data_root
from pytest_spiral.tables import Positive, Table, Text, read_table


class _Perturbation(Table):
    draws: Annotated[int, Field(ge=100, le=10_000)]
    factor: Annotated[float, Field(gt=1, le=10)]
    seed: Text
    coverage: Positive


@cache
def _perturbation() -> _Perturbation:
    return read_table(_Perturbation, data_root() / "spiral" / "weights.toml")


def weight_stability(scores: Sequence[ProtocolScore]) -> WeightStability | None:
    """Of scores under one protocol: their ranges under perturbed weights, and how often pairs keep their order or tie.

    A score that was not measured is left out; None without any. The composite is 100 * sum(w * c) / sum(w) of the
    contributions c, which weights do not change.
    """
    if not (rows := [score for score in scores if score.score is not None]):
        return None
    data = _perturbation()
    weights = {name: metric.weight for score in rows for name, metric in sorted(score.metrics.items())}
    drawn: list[list[float]] = []
    for score in rows:
        parts = [score.metrics[name].contribution if name in score.metrics else None for name in weights]
        base = [weight if part is not None else 0.0 for weight, part in zip(weights.values(), parts, strict=True)]
        there = [part or 0.0 for part in parts]
        drawn.append([_composite([*map(mul, base, factors)], there) for factors in _factors(len(weights))])
    tail = round(data.draws * (1000 - data.coverage) / 2000)
    ordered = [sorted(own) for own in drawn]
    pairs = []
    for one, other in combinations(range(len(rows)), 2):
        first, second = sorted((one, other), key=lambda n: -(rows[n].unrounded or 0.0))
        if rows[first].model == rows[second].model:
            continue
        holds = sum(a >= b for a, b in zip(drawn[first], drawn[second], strict=True))
        pairs.append(OrderStability(above=rows[first].model, below=rows[second].model, holds=holds / data.draws))
    return WeightStability(
        draws=data.draws,
        factor=data.factor,
        ranges=tuple(
            WeightRange(model=score.model, low=own[tail], high=own[-1 - tail])
            for score, own in zip(rows, ordered, strict=True)
        ),
        orders=tuple(pairs),
    )


@lru_cache(maxsize=4)
def _factors(count: int) -> Sequence[Sequence[float]]:
    """By what each draw multiplies each of so many weights: the same for all scores."""
    data, random = _perturbation(), Random(_perturbation().seed)
    return [[exp(random.gauss(0, 1) * log(data.factor)) for _ in range(count)] for _ in range(data.draws)]


def _composite(weights: Sequence[float], parts: Sequence[float]) -> float:
    return 100 * fsum(map(mul, weights, parts)) / fsum(weights)
