"""Does the interval of a number corrected by labels hold what it promises? Simulated truth, fixed seeds, one table.

    python -m benchmarks.corrected_coverage [--runs 5000] [--write docs/validation/corrected-numbers.md]

Populations of scenarios and of conversations whose items are alike; a machine of known sensitivity and specificity that
errs alike within a unit; labels of a random part, or of a random core and of items that the machine reports. Every
interval is the package's own; numpy draws the samples.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_spiral.stats.corrected import LEAST_LABELS, Corrected, corrected_sums

MARK = "<!-- written by benchmarks/corrected_coverage.py -->\n"
PREVALENCES, LABELS = (0.03, 0.1, 0.3), (50, 100, 200, 400)
SENSITIVITIES, SPECIFICITIES = (0.6, 0.8, 0.95), (0.8, 0.9, 0.99)
CORNERS = ((0.6, 0.8), (0.6, 0.99), (0.95, 0.8), (0.95, 0.99))
# How much alike the errors within a unit are.
ERRORS_ALIKE = 0.1
BAR = 0.93
# A coverage of fewer runs says little.
FEW = 200


class Shape(NamedTuple):
    """What a run is made of, and how much alike the items of a unit are."""

    name: str
    units: int
    items: int
    alike: float


SHAPES = (
    Shape("75 scenarios of 6 replies, correlation .3", 75, 6, 0.3),
    Shape("30 conversations of 20 turns, correlation .4", 30, 20, 0.4),
)


class Cell(NamedTuple):
    """One population, machine and number of labels. core: half of the labels at random, half where it reports."""

    shape: Shape
    core: bool
    prevalence: float
    labels: int
    sensitivity: float
    specificity: float


class Result(NamedTuple):
    """Runs with an estimate, and of these the mean width and how many intervals cover, are too high, too low."""

    cell: Cell
    shown: int
    covers: int
    high: int
    low: int
    width: float


def cells() -> Iterator[Cell]:
    """The whole grid."""
    judges = tuple(itertools.product(SENSITIVITIES, SPECIFICITIES))
    for shape, core in itertools.product(SHAPES, (False, True)):
        for prevalence, labels in itertools.product(PREVALENCES, LABELS):
            for sensitivity, specificity in CORNERS if core else judges:
                yield Cell(shape, core, prevalence, labels, sensitivity, specificity)


def simulate(cell: Cell, runs: int) -> Result:
    """Runs of one cell, in parts that fit into memory."""
    numbers = [round(1_000 * number) for number in cell[2:]]
    rng = np.random.default_rng([cell.shape.units, cell.core, *numbers])
    shown = covers = high = low = 0
    width = 0.0
    for start in range(0, runs, 500):
        for units in draw(rng, cell, min(500, runs - start)):
            found = corrected_sums(units)
            positives = sum(unit[-1] for unit in units)
            enough = LEAST_LABELS <= positives <= sum(unit[-2] for unit in units) - LEAST_LABELS
            assert isinstance(found, Corrected) == enough, "refused where there are enough labels, or not where not"
            if isinstance(found, Corrected):
                interval = found.interval
                shown += 1
                covers += interval.low <= cell.prevalence <= interval.high
                high += interval.low > cell.prevalence
                low += interval.high < cell.prevalence
                width += interval.high - interval.low
    return Result(cell, shown, covers, high, low, width / max(shown, 1))


def draw(rng: np.random.Generator, cell: Cell, runs: int) -> Iterator[list[list[float]]]:
    """The sums of each unit, run by run."""
    shape, size = cell.shape, (runs, cell.shape.units, cell.shape.items)
    truth = rng.random(size) < leaning(rng, cell.prevalence, shape.alike, size[:2])
    hit = rng.random(size) < leaning(rng, cell.sensitivity, ERRORS_ALIKE, size[:2])
    alarm = rng.random(size) < leaning(rng, 1 - cell.specificity, ERRORS_ALIKE, size[:2])
    judged = np.where(truth, hit, alarm)
    drawn, inclusion = sample(rng, cell, judged.reshape(runs, -1))
    drawn, weight = drawn.reshape(size), (drawn / inclusion).reshape(size)
    whole = np.full(size[:2], float(shape.items))
    columns = (
        whole,
        whole,
        np.zeros(size[:2]),
        judged.sum(2),
        weight.sum(2),
        (weight * truth).sum(2),
        (weight * judged).sum(2),
        weight.max(2),
        drawn.sum(2),
        (drawn & truth).sum(2),
    )
    yield from np.stack(columns, axis=2).tolist()


def leaning(rng: np.random.Generator, mean: float, alike: float, size: tuple[int, int]) -> np.ndarray:
    """Of each unit the probability of its items, which correlate by `alike`."""
    spread = 1 / alike - 1
    return rng.beta(mean * spread, (1 - mean) * spread, size)[:, :, None]


def sample(rng: np.random.Generator, cell: Cell, judged: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which items are labelled, and the probability of that."""
    runs, items = judged.shape
    first = cell.labels // 2 if cell.core else cell.labels
    core = rng.random((runs, items)).argsort(1).argsort(1) < first
    if not cell.core:
        return core, np.full((runs, items), first / items)
    rest = cell.labels - first
    more = judged & (np.where(judged, rng.random((runs, items)), 2.0).argsort(1).argsort(1) < rest)
    chance = judged * np.minimum(1.0, rest / np.maximum(judged.sum(1, keepdims=True), 1))
    return core | more, 1 - (1 - first / items) * (1 - chance)


def table(results: list[Result], runs: int) -> Iterator[str]:
    """One row per population and number of labels, over all machines."""
    far = [result for result in results if result.shown >= FEW]
    below = [result for result in far if result.covers < BAR * result.shown]
    worst = min(far or results, key=lambda result: result.covers / max(result.shown, 1))
    yield (
        f"{runs:,} runs in each of {len(results)} cells; {len(far)} of them have an interval in {FEW} runs or more. "
        f"Below {BAR:.0%}: {len(below)} cells. The least coverage is {worst.covers / max(worst.shown, 1):.1%}, at "
        f"prevalence {worst.cell.prevalence:g}, {worst.cell.labels} labels, sensitivity {worst.cell.sensitivity:g}, "
        f"specificity {worst.cell.specificity:g}.\n"
    )
    for (shape, core), group in itertools.groupby(results, key=lambda result: result.cell[:2]):
        how = "half of the labels at random, half where the machine reports it" if core else "labels at random"
        yield f"\n**{shape.name}; {how}**\n\n"
        yield "| prevalence | labels | refuses | covers, worst machine | covers, all | too high | too low | width |\n"
        yield "|---|---|---|---|---|---|---|---|\n"
        for (prevalence, labels), one in itertools.groupby(group, key=lambda result: result.cell[2:4]):
            row = list(one)
            shown = sum(result.shown for result in row)
            shares = [result.covers / result.shown for result in row if result.shown >= FEW]
            refuses = f"{1 - shown / (runs * len(row)):.1%}"
            if shown < FEW:
                yield f"| {prevalence:g} | {labels} | {refuses} | - | - | - | - | - |\n"
                continue
            least = f"{min(shares):.1%}" if shares else "-"
            covers = sum(result.covers for result in row) / shown
            high, low = sum(result.high for result in row) / shown, sum(result.low for result in row) / shown
            width = sum(result.width * result.shown for result in row) / shown
            yield (
                f"| {prevalence:g} | {labels} | {refuses} | {least} | {covers:.1%} | {high:.1%} | {low:.1%} "
                f"| {width:.3f} |\n"
            )


def _one(task: tuple[Cell, int]) -> Result:
    return simulate(*task)


def main() -> int:
    """Print or write the table. Exit code 1 where a coverage is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5_000, help="simulated runs per cell (default: 5000)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--write", type=Path, help="a page whose end, from its mark on, becomes the table")
    options = parser.parse_args()
    with Pool(options.jobs) as pool:
        results = pool.map(_one, [(cell, options.runs) for cell in cells()], chunksize=1)
    text = "".join(table(results, options.runs))
    if options.write:
        before = options.write.read_text(encoding="utf-8").partition(MARK)[0]
        options.write.write_text(f"{before}{MARK}\n{text}", encoding="utf-8")
    print(text)
    return int(any(result.shown >= FEW and result.covers < BAR * result.shown for result in results))


if __name__ == "__main__":
    sys.exit(main())
