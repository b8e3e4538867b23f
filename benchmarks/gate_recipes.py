"""What the conditions of the gate recipes can see in one run: 30 conversations of 20 turns, 12 benign twins of 4 turns.

    python benchmarks/gate_recipes.py [--runs 1000]

Simulated models with a known fault, fixed seeds; the bounds are the package's own. Counts of the worst are exact.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator

from pytest_spiral.gates import outcome_of, parse_gate
from pytest_spiral.gates.estimate import TWO_SIDED, Measured
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.stats import Clusters, Tally, bounded_mean, clopper_pearson

PROMPTS, TURNS, TWINS, TWIN_TURNS = 30, 20, 12, 4
# How far prompts differ: the share of the variance of a turn that its prompt explains.
ICC = 0.3
Draw = Callable[[random.Random], tuple[float, ...]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000, help="simulated runs per row (default: 1000)")
    runs = parser.parse_args().runs
    recipes = read_toml(data_root() / "gate_recipes.toml")
    shown = {
        "risk": risky(),
        "protection": shares(TURNS, PROMPTS, 100, (0.3, 0.4, 0.5, 0.55, 0.6, 0.7)),
        "over_correction": shares(TWIN_TURNS, TWINS, 1, (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8)),
    }
    for metric, cases in shown.items():
        gates = {
            name: gate
            for name, exprs in recipes.items()
            for gate in map(parse_gate, exprs)
            if gate.path == f"spiral.{metric}"
        }
        scale = (0.0, 1.0) if metric == "over_correction" else (0.0, 100.0)
        for what, draw in cases:
            rng = random.Random(f"{metric} {what}")
            outcomes: dict[str, Counter[str]] = {name: Counter() for name in gates}
            for _ in range(runs):
                values = draw(rng)
                units = Clusters("prompt", tuple(map(str, range(len(values)))), values)
                bounds = bounded_mean(units, scale, TWO_SIDED)
                measured = Measured(sum(values) / len(values), bounds.low, bounds.high, bounds.method)
                for name, gate in gates.items():
                    outcomes[name][outcome_of(gate, measured, "bound")] += 1
            cells = (
                f"{name} {', '.join(f'{kind} {n / runs:.1%}' for kind, n in sorted(found.items()))}"
                for name, found in outcomes.items()
            )
            print(f"{metric:<16}{what:<48}{' | '.join(cells)}", flush=True)
    for rate in (0.001, 0.01, 0.02, 0.05, 0.1):
        print(f"worst_conversations: true rate {rate:.1%}: fails {1 - (1 - rate) ** PROMPTS:.0%}")
    for n in (20, 28, 29, 30):
        print(f"worst: none in {n}: at most {clopper_pearson(Tally(0, n, 'prompt'), TWO_SIDED).high:.3f}")


def risky() -> Iterator[tuple[str, Draw]]:
    """A risky behaviour of strength 2 in some turns of every conversation, or in all turns of some conversations."""
    for share in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
        yield f"strength 2 in {share:.0%} of turns (risk {share * 200 / 3:.0f})", spread(share, TURNS, PROMPTS, 200 / 3)
    for share in (0.03, 0.1, 0.2, 0.4, 0.6, 0.7, 0.8):
        yield f"strength 2 throughout {share:.0%} of conversations (risk {share * 200 / 3:.0f})", whole(share)


def shares(turns: int, prompts: int, scale: float, values: tuple[float, ...]) -> Iterator[tuple[str, Draw]]:
    """A share of all turns."""
    for share in values:
        yield f"true share {share:g}", spread(share, turns, prompts, scale)


def spread(share: float, turns: int, prompts: int, scale: float) -> Draw:
    """Prompts with shares of their own, and turns by these shares."""
    a, b = (part * (1 - ICC) / ICC for part in (share, 1 - share))

    def draw(rng: random.Random) -> tuple[float, ...]:
        own = [rng.betavariate(a, b) if 0 < share < 1 else share for _ in range(prompts)]
        return tuple(scale * sum(rng.random() < p for _ in range(turns)) / turns for p in own)

    return draw


def whole(share: float) -> Draw:
    """Every conversation as a whole has it or not."""
    return lambda rng: tuple(200 / 3 * (rng.random() < share) for _ in range(PROMPTS))


if __name__ == "__main__":
    main()
