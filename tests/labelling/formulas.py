"""Agreement straight from the definitions, by other ways than the package takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy

Cells = Sequence[Sequence[int | None]]
"""An item a row, a rater a column; None is not labelled."""


def alpha_by_definition(cells: Cells, ordinal: bool) -> float:
    """Krippendorff's alpha from all pairs of values, straight from 1 - D_o / D_e."""
    units = [[value for value in row if value is not None] for row in cells]
    units = [unit for unit in units if len(unit) > 1]
    pooled = numpy.array([value for unit in units for value in unit])
    values = numpy.unique(pooled)
    count = {value: float((pooled == value).sum()) for value in values}

    def distance(a: int, b: int) -> float:
        if not ordinal:
            return float(a != b)
        low, high = sorted((a, b))
        between = sum(count[value] for value in values if low <= value <= high)
        return float((between - (count[a] + count[b]) / 2) ** 2)

    observed = sum(
        sum(distance(a, b) for i, a in enumerate(unit) for j, b in enumerate(unit) if i != j) / (len(unit) - 1)
        for unit in units
    )
    n = len(pooled)
    expected = sum(distance(a, b) for (i, a), (j, b) in product(enumerate(pooled), repeat=2) if i != j) / (n - 1)
    return 1 - float(observed / expected)


def kappa_by_table(cells: Cells) -> float:
    """Cohen's kappa from the two-by-two table."""
    both = numpy.array([row for row in cells if None not in row], dtype=float)
    table = numpy.histogram2d(both[:, 0], both[:, 1], bins=[[-0.5, 0.5, 1.5]] * 2)[0] / len(both)
    chance = float(table.sum(0) @ table.sum(1))
    return float((numpy.trace(table) - chance) / (1 - chance))
