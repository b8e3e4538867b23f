"""How a gate on a rate is decided, by the true rate of the model. Exact, no simulation.

    python benchmarks/gate_threshold.py [--n 75] [--threshold 0.75] [--svg docs/reference/gate-threshold.svg]

Prints the chances of PASS, INCONCLUSIVE and FAIL, and the table of thresholds; writes the figure of the documentation.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_spiral.gates import Gate, Measured, Outcome, outcome_of
from pytest_spiral.stats import Tally, binomial_tail, clopper_pearson, hits_needed, least_passing_rate

OUTCOMES: tuple[Outcome, ...] = ("pass", "inconclusive", "fail")
WIDTH, HEIGHT, LEFT, TOP = 640, 300, 60, 20
COLOURS = {"pass": "#2e7d32", "inconclusive": "#c9a227", "fail": "#b3261e"}


def main() -> None:
    """Print both tables, write the figure where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=75)
    parser.add_argument("--threshold", type=float, default=0.75)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    print(f"gate: rate >= {options.threshold:g}, {options.n} scenarios\n")
    print("true rate   PASS   INCONCLUSIVE   FAIL   point pass")
    for step in range(50, 101, 5):
        rate = step / 100
        found = chances(rate, options.n, options.threshold)
        point = binomial_tail(math.ceil(options.threshold * options.n - 1e-9), options.n, rate)
        print(f"{rate:>9.2f}{found['pass']:>7.1%}{found['inconclusive']:>15.1%}{found['fail']:>7.1%}{point:>13.1%}")
    print("\nthreshold   hits needed   passes 4 of 5 runs from   passes at the threshold")
    for threshold in (0.50, 0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95):
        needed, rate_needed = hits_needed(options.n, threshold), least_passing_rate(options.n, threshold)
        at_threshold = chances(threshold, options.n, threshold)["pass"]
        rate_text = "never" if rate_needed is None else f"{rate_needed:.3f}"
        print(f"{threshold:>9.2f}{needed or '-':>14}{rate_text:>26}{at_threshold:>25.1%}")
    if options.svg:
        options.svg.write_text(figure(options.n, options.threshold), encoding="utf-8")


def chances(rate: float, n: int, threshold: float) -> Mapping[Outcome, float]:
    """Probability of each outcome for a model of this true rate."""
    gate = Gate("", "tempaffect", None, "rate", ">=", threshold)
    found = dict.fromkeys(OUTCOMES, 0.0)
    for k in range(n + 1):
        bounds = clopper_pearson(Tally(k, n, "scenario"), 0.90)
        outcome = outcome_of(gate, Measured(k / n, bounds.low, bounds.high, ""), "bound")
        found[outcome] += math.comb(n, k) * rate**k * (1 - rate) ** (n - k)
    return found


def figure(n: int, threshold: float) -> str:
    """Stacked areas of the three outcomes over the true rate."""
    rates = [0.5 + step / 200 for step in range(101)]
    table = [chances(rate, n, threshold) for rate in rates]
    reliable = least_passing_rate(n, threshold)

    def x(rate: float) -> float:
        return LEFT + (rate - 0.5) * 2 * WIDTH

    def y(share: float) -> float:
        return TOP + (1 - share) * HEIGHT

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEFT + 20} {HEIGHT + TOP + 60}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f"<title>What a gate of rate &gt;= {threshold:g} on {n} scenarios answers, by the true rate</title>",
    ]
    below = [0.0] * len(rates)
    for outcome in OUTCOMES:
        above = [low + row[outcome] for low, row in zip(below, table, strict=True)]
        parts.append(_area([(x(r), y(a), y(b)) for r, a, b in zip(rates, above, below, strict=True)], COLOURS[outcome]))
        below = above
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<text x="{LEFT - 8}" y="{y(share) + 4:.0f}" text-anchor="end">{share:.0%}</text>')
    for rate in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        parts.append(f'<text x="{x(rate):.0f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{rate:.1f}</text>')
    parts += _marker(x(threshold), "threshold")
    if reliable is not None:
        parts += _marker(x(reliable), "passes 4 of 5")
    labels = (("FAIL", 0.56, 0.5), ("INCONCLUSIVE", threshold, 0.5), ("PASS", 0.95, 0.5))
    style = 'text-anchor="middle" fill="#fff" font-weight="600"'
    for text, rate, share in labels:
        parts.append(f'<text x="{x(rate):.0f}" y="{y(share):.0f}" {style}>{text}</text>')
    middle = LEFT + WIDTH / 2
    parts.append(f'<text x="{middle:.0f}" y="{TOP + HEIGHT + 44}" text-anchor="middle">true rate of the model</text>')
    return "\n".join([*parts, "</svg>", ""])


def _area(points: Sequence[tuple[float, float, float]], colour: str) -> str:
    there = " ".join(f"{px:.1f},{top:.1f}" for px, top, _ in points)
    back = " ".join(f"{px:.1f},{bottom:.1f}" for px, _, bottom in reversed(points))
    return f'<polygon fill="{colour}" points="{there} {back}"/>'


def _marker(at: float, text: str) -> list[str]:
    return [
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="#000" stroke-dasharray="4 3"/>',
        f'<text x="{at:.0f}" y="{TOP - 6}" text-anchor="middle">{text}</text>',
    ]


if __name__ == "__main__":
    main()
