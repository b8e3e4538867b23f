"""Do the intervals hold what they promise? Simulated truth, fixed seeds, one table.

    python benchmarks/coverage.py [--runs 1000]

For each kind of number: how often the shown 95 % interval covers the truth, and how often a gate at the very margin
passes (it may in 5 % of the runs). Rates are computed exactly, over all possible counts; the rest is simulated. numpy
draws the samples; every interval is the package's own.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from pytest_spiral.spiral.counting import weighted_metrics
from pytest_spiral.spiral.protocol import Protocol, load_protocol
from pytest_spiral.spiral.sample import JudgedSample, PromptItem
from pytest_spiral.stats import (
    Clusters,
    Tally,
    bca,
    bounded_mean,
    clopper_pearson,
    percentile_resamples,
    wilson,
)

SIZES = (25, 30, 75, 150)
GATE = 0.90  # one-sided 95 % bounds are the ends of a two-sided 90 % interval
DRAWS = 1_000
Row = tuple[str, int, float | None, float, float]


def main() -> int:
    """Print the table. Exit code 1 where an interval or a gate does not hold what it promises."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000, help="simulated runs per row (default: 1000)")
    runs = parser.parse_args().runs
    print(
        f"{runs} runs per simulated row, half as many for composites; "
        f"standard error of a coverage near .95: {math.sqrt(0.05 * 0.95 / runs):.1%}"
    )
    print(f"\n{'':<46}{'n':>5}{'covers':>9}{'passes >=':>11}{'passes <=':>11}{'s':>6}")
    broken = 0
    started = time.perf_counter()
    for name, n, coverage, floor, ceiling in rows(runs):
        seconds, started = time.perf_counter() - started, time.perf_counter()
        shown = "" if coverage is None else f"{coverage:.1%}"
        # Two standard errors of the simulation are no breach of a promise.
        slack = 0.0 if name.startswith("rate") else 2 * math.sqrt(0.05 * 0.95 / runs)
        hard = name.endswith("(hard)")
        # Bounds that hold for every distribution may cover more than they promise.
        good = (
            coverage is None or hard or 0.93 - slack <= coverage <= (1.0 if name.startswith("risk") else 0.97 + slack)
        ) and max(floor, ceiling) <= 0.055 + slack
        broken += not good
        print(f"{name:<46}{n:>5}{shown:>9}{floor:>11.1%}{ceiling:>11.1%}{seconds:>6.0f}{'' if good else '  <--'}")
        sys.stdout.flush()
    print(f"\n{broken} rows out of bounds (coverage .93 to .97, false passes at most .055)")
    return 1 if broken else 0


def rows(runs: int) -> Iterator[Row]:
    for centre in (0.5, 0.95):
        for n in SIZES:
            yield rate(centre, n)
    for name, shape in SHAPES.items():
        for n in SIZES:
            yield mean_of_scenarios(name, shape, n, runs)
    for n in SIZES:
        yield paired_rates(n, runs)
    for n in SIZES:
        yield composite(n, max(1, runs // 2))
    for name in RISKS:
        yield risk(name, 30, runs)


def rate(centre: float, n: int) -> Row:
    """Wilson's coverage and Clopper-Pearson's false passes, averaged over rates within .02 of the centre."""
    rates = [centre + step / 1000 for step in range(-20, 21)]
    tallies = [Tally(k, n, "scenario") for k in range(n + 1)]
    shown, gate = [wilson(tally) for tally in tallies], [clopper_pearson(tally, GATE) for tally in tallies]
    covers, floors, ceilings = [], [], []
    for p in rates:
        mass = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        covers.append(sum(m for m, found in zip(mass, shown, strict=True) if found.low <= p <= found.high))
        floors.append(sum(m for m, found in zip(mass, gate, strict=True) if found.low >= p))
        ceilings.append(sum(m for m, found in zip(mass, gate, strict=True) if found.high <= p))
    return f"rate near {centre}", n, sum(covers) / len(rates), max(floors), max(ceilings)


def beta_binomial(mean: float, icc: float) -> Callable[[np.random.Generator, int], tuple[np.ndarray, float]]:
    """Points out of 13, as TempAffect gives them, alike within a scenario."""

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, float]:
        spread = (1 - icc) / icc
        return rng.binomial(13, rng.beta(mean * spread, (1 - mean) * spread, n)) / 13, mean

    return draw


def rare_failures(rng: np.random.Generator, n: int) -> tuple[np.ndarray, float]:
    """One answer in fifty is invalid and earns nothing; most samples of 25 hold none."""
    points = rng.choice([11, 12, 13], p=[0.1, 0.3, 0.6], size=n) / 13
    return np.where(rng.random(n) < 0.02, 0.0, points), 0.98 * (11 * 0.1 + 12 * 0.3 + 13 * 0.6) / 13


def three_epochs(rng: np.random.Generator, n: int) -> tuple[np.ndarray, float]:
    """A rate over three epochs of each scenario, alike within it."""
    return rng.binomial(3, rng.beta(1.6, 0.4, n)) / 3, 0.8


SHAPES = {
    "TempAffect mean .60": beta_binomial(0.6, 0.1),
    "TempAffect mean .90": beta_binomial(0.9, 0.1),
    "means of three epochs, rate .80": three_epochs,
    "mean .92, one answer in 50 lost (hard)": rare_failures,
}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@cache
def draws(n: int) -> list[list[int]]:
    return percentile_resamples(n, DRAWS, f"coverage-{n}")


def mean_of_scenarios(
    name: str, shape: Callable[[np.random.Generator, int], tuple[np.ndarray, float]], n: int, runs: int
) -> Row:
    """BCa as it is shown, the bounded mean as gates use it."""
    rng = np.random.default_rng(1)
    ids = tuple(map(str, range(n)))
    covers = floor = ceiling = 0
    for _ in range(runs):
        values, truth = shape(rng, n)
        units = Clusters("scenario", ids, tuple(values.tolist()))
        shown = bca(units, mean, draws(n), scale=(0.0, 1.0))
        gate = bounded_mean(units, (0.0, 1.0), GATE, resamples=DRAWS)
        covers += shown.low <= truth <= shown.high
        floor += gate.low >= truth
        ceiling += gate.high <= truth
    return name, n, covers / runs, floor / runs, ceiling / runs


def paired_rates(n: int, runs: int) -> Row:
    """Non-inferiority at the margin: .80 against .90 on the same scenarios, correlated answers, margin .10."""
    rng = random.Random(2)
    ids = tuple(map(str, range(n)))
    covers = floor = ceiling = 0
    # Only the first right, both or neither, only the second.
    differing, weights = (1.0, 0.0, -1.0), (0.04, 0.82, 0.14)
    for _ in range(runs):
        differences = Clusters("scenario", ids, tuple(rng.choices(differing, weights, k=n)))
        gate = bounded_mean(differences, (-1.0, 1.0), GATE, resamples=DRAWS)
        covers += gate.low <= -0.10 <= gate.high
        floor += gate.low >= -0.10
        ceiling += gate.high <= -0.10
    return "difference of two rates, paired", n, covers / runs, floor / runs, ceiling / runs


# A Spiral-like run: twenty turns a conversation, strength points per turn Poisson around a gamma-distributed leaning of
# the conversation, so that its turns correlate by .4; categories differ; five metrics, one of them rare.
ICC = 0.4
TURNS = 20
MEANS = {"pushback": 1.0, "sycophancy_or_praise": 1.5, "delusion_reinforcement": 1.0, "harmful_advice": 0.3}
FINAL = "off_rails"
CATEGORY_FACTORS = (0.6, 0.8, 1.0, 1.0, 1.2, 1.4)


def spiral_protocol() -> Protocol:
    whole = load_protocol("per-chunk")
    kept = {name: metric for name, metric in whole.metrics.items() if name in MEANS or name == FINAL}
    return Protocol.model_validate({**dict(whole), "metrics": {n: m.model_dump() for n, m in kept.items()}})


def simulated_means(rng: np.random.Generator, factor: float, count: int) -> dict[str, np.ndarray]:
    """Per conversation the mean of each metric."""
    found = {}
    for name, base in MEANS.items():
        level = base * factor
        variance = ICC / (1 - ICC) * level
        leaning = rng.gamma(level**2 / variance, variance / level, count)
        found[name] = np.minimum(rng.poisson(leaning[:, None], (count, TURNS)), 5).mean(axis=1)
    raised = 4 + 1.5 * (found["delusion_reinforcement"] - factor)
    found[FINAL] = np.clip(np.round(raised + rng.normal(0, 1.5, count)), 0, 10)
    return found


def composite(n: int, runs: int) -> Row:
    """The composite of a whole run, resampled by prompts within categories."""
    protocol = spiral_protocol()
    metrics = weighted_metrics(protocol)
    names = [metric.name for metric in metrics]
    factors = CATEGORY_FACTORS if n % 6 == 0 else CATEGORY_FACTORS[:5]
    truth_rng = np.random.default_rng(3)
    populations = [simulated_means(truth_rng, factor, 100_000) for factor in factors]
    truth = JudgedSample(protocol, metrics, ()).composite(
        [float(np.mean([part[name].mean() for part in populations])) for name in names]
    )
    assert truth is not None
    rng = np.random.default_rng(4)
    each = n // len(factors)
    covers = floor = ceiling = 0
    for run in range(runs):
        items = []
        for place, factor in enumerate(factors):
            found = simulated_means(rng, factor, each)
            for index in range(each):
                values = tuple(float(found[name][index]) for name in names)
                items.append(PromptItem(("", "", f"{place}-{index:03}"), str(place), values, (1.0,) * len(names)))
        sample = JudgedSample(protocol, metrics, tuple(items))
        shown, gate = (sample.resampled(run, level).estimate(sample.composite) for level in (0.95, GATE))
        assert shown.low is not None
        assert shown.high is not None
        assert gate.low is not None
        assert gate.high is not None
        covers += shown.low <= truth <= shown.high
        floor += gate.low >= truth
        ceiling += gate.high <= truth
    return f"Spiral composite {truth:.0f}, turns of ICC .4", n, covers / runs, floor / runs, ceiling / runs


# Risk of a prompt, 0..1: fitted by moments to the conversations of two public files, and two skewed ones. Shares of the
# prompts with no risk at all, and the Beta distribution of the others.
RISKS = {
    "as kimi-k2": (0.0, 0.52, 1.31),
    "as llama-4-maverick": (0.0, 6.46, 3.0),
    "none in 3 of 5": (0.6, 1.5, 3.0),
    "none in 9 of 10": (0.9, 2.0, 2.0),
}


def risk(name: str, n: int, runs: int) -> Row:
    """The risk that leads a score: the mean over prompts of a value from 0 to 100."""
    none, alpha, beta = RISKS[name]
    truth = 100 * (1 - none) * alpha / (alpha + beta)
    rng = np.random.default_rng(5)
    ids = tuple(map(str, range(n)))
    covers = floor = ceiling = 0
    for _ in range(runs):
        values = 100 * rng.beta(alpha, beta, n) * (rng.random(n) >= none)
        sample = Clusters("prompt", ids, tuple(map(float, values)))
        shown, gate = (bounded_mean(sample, (0.0, 100.0), level, resamples=DRAWS) for level in (0.95, GATE))
        covers += shown.low <= truth <= shown.high
        floor += gate.low >= truth
        ceiling += gate.high <= truth
    return f"risk {truth:.0f}, {name}", n, covers / runs, floor / runs, ceiling / runs


if __name__ == "__main__":
    sys.exit(main())
