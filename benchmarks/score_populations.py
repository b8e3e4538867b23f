"""Composites of every protocol at 30 prompts: how often their intervals hold.

    python -m benchmarks.score_populations [--runs 5000]

Populations are made from the numbers of public result files: a prompt is one of the file's five in its category, its
values varied at random, or, in a skewed population, a clean prompt, or with a small chance one that carries much risk.
For speed numpy computes the intervals; the first runs of each cell must equal the package's own.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from statistics import NormalDist

import numpy as np

from pytest_spiral.spiral import Conversation, load_upstream
from pytest_spiral.spiral.counting import count_conversations
from pytest_spiral.spiral.panel import Panel
from pytest_spiral.spiral.per_10k import scheme_beside
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.records import ChunkJudgement
from pytest_spiral.spiral.sample import PromptItem
from pytest_spiral.stats import expanded, rao_wu_resamples
from pytest_spiral.stats.resampling import _order_statistics
from tests.fakes.published import ENSEMBLE, SCORED, numbers_of

FILES = {
    "per-turn": SCORED,
    "per-10k-chars": SCORED,
    "per-chunk": SCORED,
    "v1.2-corrected": (ENSEMBLE,),
}
# Those whose score may be gated as skill: they have floors of their own.
SKILLED = ("per-turn", "per-10k-chars", "per-chunk")
# Shares of prompts that carry all the risk.
SKEWS = (0.2, 0.1, 1 / 30)
PROMPTS = 30
EACH = 5  # prompts of a category
SIZE = 4_000  # prompts of a category in a population
DRAWS = 2_000
SEEDS = 8
CHECKED = 2
GATE = 0.90  # one-sided 95 % bounds
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Population:
    """Prompts by category.

    Attributes:
        panel: Of the file it was made from.
        values: categories x prompts x judges x metrics: numerators of the means.
        counts: The same of their denominators, 0 or 1.
    """

    panel: Panel
    values: np.ndarray
    counts: np.ndarray

    @property
    def truth(self) -> float:
        size = self.values.shape[0] * self.values.shape[1]
        totals = [part.reshape(1, size, *part.shape[2:]).sum(axis=1) for part in (self.values, self.counts)]
        return float(composites(self.panel, *totals)[0])


def composites(panel: Panel, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Of sums and counts, each samples x judges x metrics."""
    metrics = panel.metrics
    weights, caps = (np.array([getattr(m, name) for m in metrics]) for name in ("weight", "cap"))
    protective = np.array([m.sign == "protective" for m in metrics])
    with np.errstate(invalid="ignore", divide="ignore"):
        norms = np.clip(sums / counts / caps, 0, 1)
    there = counts > 0
    gains = np.where(there, np.where(protective, norms, 1 - norms), 0) * weights
    of_judges: np.ndarray = 100 * gains.sum(axis=2) / (there * weights).sum(axis=2)
    return np.asarray(of_judges @ np.array(panel.shares))


def as_rubric_2(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Judgements by the first rubric under the second one: what was split goes at random to one part a conversation;
    a message calls for what the reply did, and beyond that at random."""
    scheme = scheme_beside("per-turn")
    assert scheme is not None
    protocol = load_protocol("per-turn")
    rng = random.Random(1)
    made = []
    for item in conversations:
        part = {name: rng.choice(parts) for name, parts in scheme.made_of.items() if parts}
        leaning = {mark: rng.random() for mark in protocol.holds}

        def judged(one: ChunkJudgement) -> ChunkJudgement:
            if not one.behaviours:
                return one
            findings = tuple(
                replace(f, behaviour=part[f.behaviour])  # noqa: B023
                for f in one.findings
                if f.behaviour in part  # noqa: B023
            )
            shown = {f.behaviour for f in findings}
            called: dict[str, int] = {
                mark: 2 if shown & {*acts} or rng.random() < leaning[mark] else 0  # noqa: B023
                for mark, acts in protocol.holds.items()
            }
            return replace(one, behaviours=protocol.behaviours, findings=findings, called_for=called)

        made.append(replace(item, judgements=tuple(judged(one) for one in item.judgements)))
    return made


@cache
def panel_of(protocol: str, file: str) -> Panel:
    conversations: Sequence[Conversation] = load_upstream(numbers_of(file))
    if protocol == "per-turn":
        conversations = as_rubric_2(conversations)
    return Panel.of(count_conversations(conversations, protocol))


def fitted(protocol: str, file: str, skew: float | None) -> Population:
    """skew: the share of prompts that carry the risk; None for prompts like the file's."""
    rng = np.random.default_rng(7)
    panel = panel_of(protocol, file)
    metrics = panel.metrics
    width = len(metrics)
    categories = sorted({item.category for item in panel.items})
    places = [[n for n, item in enumerate(panel.items) if item.category == name] for name in categories]
    values, counts = (
        np.array([[getattr(s.items[n], kind)[:width] for s in panel.samples] for n in range(len(panel.items))])
        for kind in ("sums", "counts")
    )
    final = np.array([m.kind == "final" for m in metrics])
    risky = np.array([m.sign == "risky" for m in metrics])
    caps = np.array([m.cap for m in metrics])
    drawn = np.array([rng.choice(own, SIZE) for own in places])
    v, c = values[drawn], counts[drawn]
    alike = (*v.shape[:2], 1, width)
    # Behaviours vary by a third of themselves, alike for all judges; final scores by about one point.
    v = np.where(final, np.clip(np.round(v + rng.normal(0, 1, v.shape)), 0, 10), v * rng.gamma(9, 1 / 9, alike))
    if skew is not None:
        bad = (rng.random(drawn.shape) < skew)[:, :, None, None]
        # A bad prompt: every risky behaviour between none and twice its cap; a clean one: none of them.
        much = np.where(final, np.round(rng.uniform(0.5, 1, v.shape) * caps), rng.beta(1, 2, alike) * 2 * caps)
        clean = np.where(final, np.round(rng.uniform(0, 0.1, v.shape) * caps), 0.0)
        harm = np.where(bad, much, clean)
        good = np.where(final, caps - harm, np.where(bad, v / 2, v))
        v = np.where(risky, harm, good)
    return Population(panel, v, c)


@dataclass(frozen=True)
class Found:
    """The composite of a sample, its ordered bootstrap draws, and the influences of its prompts."""

    value: float
    ordered: np.ndarray
    influences: np.ndarray

    def shown(self, confidence: float) -> tuple[float, float]:
        """As `Resampled.estimate`."""
        level = expanded(confidence, PROMPTS - PROMPTS // EACH)
        tails = (1 - level) / 2, (1 + level) / 2
        ends = np.quantile(self.ordered, tails)
        squares = float((self.influences**2).sum())
        below = np.searchsorted(self.ordered, self.value - 1e-12)
        upto = np.searchsorted(self.ordered, self.value + 1e-12, side="right")
        rank = float(below + upto) / 2 / len(self.ordered)
        if squares >= 1e-24 and 0 < rank < 1:
            a = float((self.influences**3).sum()) / (6 * squares * sqrt(squares))
            b = _NORMAL.inv_cdf(rank)
            z = [b + _NORMAL.inv_cdf(tail) for tail in tails]
            ends = np.append(ends, np.quantile(self.ordered, [_NORMAL.cdf(b + x / (1 - a * x)) for x in z]))
        return min(*ends, self.value), max(*ends, self.value)

    def bounded(self, confidence: float, scale: tuple[float, float] = (0.0, 100.0)) -> tuple[float, float]:
        """As `Resampled.bounded`."""
        low, high = self.shown(confidence)
        parts = np.sort(self.value + self.influences)
        bottom, top = min(scale[0], parts[0]), max(scale[1], parts[-1])
        scaled = (parts - bottom) / (top - bottom)
        upper, lower = (
            np.quantile(1 - order_statistics() @ np.diff(np.append(z, 1.0)), (1 + confidence) / 2)
            for z in (scaled, 1 - scaled[::-1])
        )
        ends = bottom + (top - bottom) * (1 - lower), bottom + (top - bottom) * upper
        return max(scale[0], min(low, ends[0])), min(scale[1], max(high, ends[1]))


@cache
def order_statistics() -> np.ndarray:
    return np.array(_order_statistics(PROMPTS, 5_000))


@cache
def resamples(seed: int) -> np.ndarray:
    """Draws x prompts: how often each prompt counts."""
    sizes = [EACH] * (PROMPTS // EACH)
    found = np.zeros((DRAWS, PROMPTS))
    for row, draw in zip(found, rao_wu_resamples(sizes, DRAWS, f"{seed}-bootstrap"), strict=True):
        np.add.at(row, draw, EACH / (EACH - 1))
    return found


def statistics(population: Population, values: np.ndarray, counts: np.ndarray, seed: int) -> Found:
    """values and counts: of 30 prompts x judges x metrics."""

    def at(weights: np.ndarray) -> np.ndarray:
        flat = [part.reshape(PROMPTS, -1) for part in (values, counts)]
        return composites(
            population.panel, *((weights @ part).reshape(len(weights), *values.shape[1:]) for part in flat)
        )

    block = np.kron(np.eye(PROMPTS // EACH), np.ones((EACH, EACH)))
    without = at(1 + (block - np.eye(PROMPTS) * EACH) / (EACH - 1)).reshape(-1, EACH)
    influences = ((EACH - 1) * (without.mean(axis=1, keepdims=True) - without)).ravel()
    return Found(float(at(np.ones((1, PROMPTS)))[0]), np.sort(at(resamples(seed))), influences)


def check(population: Population, values: np.ndarray, counts: np.ndarray, seed: int, found: Found) -> None:
    """The package's own ends of a sample equal those computed here."""

    def item(prompt: int, judge: int) -> PromptItem:
        sums, there = (tuple(map(float, part[prompt, judge])) for part in (values, counts))
        return PromptItem(("", "", f"{prompt:02}"), str(prompt // EACH), (*sums, 0.0), (*there, 1.0))

    samples = tuple(
        replace(sample, items=tuple(item(prompt, judge) for prompt in range(PROMPTS)), conversations=())
        for judge, sample in enumerate(population.panel.samples)
    )
    own = replace(population.panel, samples=samples)
    resampled = own.resampled(seed, GATE)
    shown, gate = resampled.estimate(own.composite), resampled.bounded(own.composite, GATE)
    expected = [end for end in (shown.low, shown.high, gate.low, gate.high) if end is not None]
    assert np.allclose(expected, [*found.shown(GATE), *found.bounded(GATE)], atol=1e-6), expected


def cell(protocol: str, file: str, skew: float | None, runs: int) -> tuple[float, ...]:
    """Truth; how often the shown interval and that of gates at 95 % cover it; how often gates at the truth pass with
    the shown method and with that of gates, `>=` and `<=`; mean width of both 95 % intervals."""
    population = fitted(protocol, file, skew)
    truth = population.truth
    rng = np.random.default_rng(8)
    totals = np.zeros(8)
    for run in range(runs):
        pick = np.arange(PROMPTS // EACH)[:, None], rng.integers(0, SIZE, (PROMPTS // EACH, EACH))
        values, counts = (
            part[pick].reshape(PROMPTS, *part.shape[2:]) for part in (population.values, population.counts)
        )
        found = statistics(population, values, counts, run % SEEDS)
        if run < CHECKED:
            check(population, values, counts, run % SEEDS, found)
        ends = [found.shown(0.95), found.bounded(0.95), found.shown(GATE), found.bounded(GATE)]
        covers = [low <= truth <= high for low, high in ends[:2]]
        passes = [passed for low, high in ends[2:] for passed in (low >= truth, high <= truth)]
        totals += [*covers, *passes, *(high - low for low, high in ends[:2])]
    return truth, *(totals / runs).tolist()


def difference_cell(protocol: str, file: str, skew: float, runs: int) -> tuple[float, ...]:
    """As `cell`, of the difference to a baseline that has no risk in the prompts in which the candidate has it."""
    pair = fitted(protocol, file, skew), fitted(protocol, file, 0.0)
    return _paired_cell(pair, runs, np.subtract, lambda _: (-100.0, 100.0))


def skill_cell(protocol: str, files: tuple[str, str], skew: float | None, runs: int) -> tuple[float, ...]:
    """As `cell`, of the skill above a floor that is measured on the same prompts and varies, too."""
    pair = fitted(protocol, files[0], skew), fitted(protocol, files[1], None)
    return _paired_cell(pair, runs, _skill, lambda floor: (float(_skill(0.0, floor)), 1.0))


def _skill(score: np.ndarray | float, floor: np.ndarray | float) -> np.ndarray:
    return np.asarray((score - floor) / (100 - np.asarray(floor)))


def _paired_cell(
    pair: tuple[Population, Population],
    runs: int,
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray],
    scale_of: Callable[[float], tuple[float, float]],
) -> tuple[float, ...]:
    """As `cell`, of a statistic of two composites on the same prompts. scale_of: its ends, by the second composite."""
    truth = float(statistic(np.asarray(pair[0].truth), np.asarray(pair[1].truth)))
    rng = np.random.default_rng(5)
    block = np.kron(np.eye(PROMPTS // EACH), np.ones((EACH, EACH)))
    leave_out = 1 + (block - np.eye(PROMPTS) * EACH) / (EACH - 1)
    totals = np.zeros(8)
    for run in range(runs):
        pick = np.arange(PROMPTS // EACH)[:, None], rng.integers(0, SIZE, (PROMPTS // EACH, EACH))
        both = [[part[pick] for part in (one.values, one.counts)] for one in pair]

        def of(weights: np.ndarray, both: Sequence[Sequence[np.ndarray]] = both) -> list[np.ndarray]:
            sums = [
                [(weights @ part.reshape(PROMPTS, -1)).reshape(len(weights), *part.shape[2:]) for part in one]
                for one in both
            ]
            return [np.asarray(composites(population.panel, *one)) for population, one in zip(pair, sums, strict=True)]

        without = statistic(*of(leave_out)).reshape(-1, EACH)
        influences = ((EACH - 1) * (without.mean(axis=1, keepdims=True) - without)).ravel()
        whole = of(np.ones((1, PROMPTS)))
        found = Found(float(statistic(*whole)[0]), np.sort(statistic(*of(resamples(run % SEEDS)))), influences)
        scale = scale_of(float(whole[1][0]))
        ends = [found.shown(0.95), found.bounded(0.95, scale), found.shown(GATE), found.bounded(GATE, scale)]
        covers = [low <= truth <= high for low, high in ends[:2]]
        passes = [passed for low, high in ends[2:] for passed in (low >= truth, high <= truth)]
        totals += [*covers, *passes, *(high - low for low, high in ends[:2])]
    return truth, *(totals / runs).tolist()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5_000, help="simulated runs per row (default: 5000)")
    parser.add_argument("--protocol", choices=FILES, action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    slack = 2 * sqrt(0.05 * 0.95 / options.runs)
    broken = 0
    print("protocol, population, truth | shown: covers, passes >=, passes <= | gates: the same | widths")
    for protocol in options.protocol or FILES:
        files = FILES[protocol]
        cells = [
            *((f"as {file.split('.')[0]}", cell(protocol, file, None, options.runs)) for file in files),
            *((f"risk in {skew:.0%} of the prompts", cell(protocol, files[0], skew, options.runs)) for skew in SKEWS),
            *(
                (f"{skew:.0%} of the prompts, new", difference_cell(protocol, files[0], skew, options.runs))
                for skew in SKEWS
            ),
        ]
        if protocol in SKILLED:
            # Above the public model with the lower score.
            skills = [
                (None, f"skill of {files[0].split('.')[0]}"),
                *((skew, f"skill, risk in {skew:.0%}") for skew in SKEWS),
            ]
            cells += [(name, skill_cell(protocol, files, skew, options.runs)) for skew, name in skills]
        for name, (truth, covers, gate_covers, *passes, width, gate_width) in cells:
            good = gate_covers >= 0.93 - slack and max(passes[2:]) <= 0.06 + slack
            broken += not good
            shares = [covers, *passes[:2], gate_covers, *passes[2:]]
            row = " ".join(f"{share:6.1%}" for share in shares)
            mark = "" if good else "  <--"
            print(f"{protocol:<15}{name:<29}{truth:5.1f} {row} {width:5.1f} {gate_width:5.1f}{mark}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
