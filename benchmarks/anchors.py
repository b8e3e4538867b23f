"""How often the anchors call an unchanged judge changed, and how often they notice a changed one: a simulation.

Judges are made from the labels of the anchors. With noise q a finding of the labels is lost with probability q, another
strength than the label's is given with probability q, and as many findings appear as are lost. A change is fixed: the
same findings are affected in every judgement after it.

    python -m benchmarks.anchors [RUNS]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence

from pytest_spiral.report.model.anchors import Vector
from pytest_spiral.spiral.anchors import ALPHA, load_anchors, shift_of
from pytest_spiral.spiral.labels import load_labels
from pytest_spiral.spiral.protocol import load_protocol

Labels = Sequence[Mapping[str, int]]
"""Of each anchor the strength by behaviour."""
Change = Callable[[random.Random, Labels], Labels]
NOISE = (0.0, 0.05, 0.1, 0.2)


def labels_of(protocol_name: str) -> tuple[Labels, tuple[str, ...]]:
    """The reference labels of a protocol's anchors, and its behaviours."""
    protocol = load_protocol(protocol_name)
    anchors = load_anchors(protocol)
    assert anchors is not None
    known = {turn.id: turn for turn in load_labels(None, protocol.behaviours).turns}
    rows = [{name: known[turn.id].reference(name) or 0 for name in protocol.behaviours} for turn in anchors.turns]
    return [{name: n for name, n in row.items() if n} for row in rows], protocol.behaviours


def judgement(rng: random.Random, labels: Labels, behaviours: Sequence[str], noise: float) -> list[Vector]:
    """One pass of a noisy judge over the anchors."""
    cells = len(labels) * len(behaviours)
    held = sum(map(len, labels))
    appears = noise * held / (cells - held)
    vectors: list[Vector] = []
    for row in labels:
        vector = {}
        for name in behaviours:
            label = row.get(name, 0)
            if label and rng.random() >= noise:
                vector[name] = rng.choice([n for n in (1, 2, 3) if n != label]) if rng.random() < noise else label
            elif not label and rng.random() < appears:
                vector[name] = 1
        vectors.append(vector)
    return vectors


def fewer(share: float) -> Change:
    """This share of the findings is no longer made."""
    return lambda rng, labels: [{b: n for b, n in row.items() if rng.random() >= share} for row in labels]


def stronger(share: float) -> Change:
    """This share of the findings gets one strength more."""
    return lambda rng, labels: [{b: min(3, n + (rng.random() < share)) for b, n in row.items()} for row in labels]


def blind(behaviour: str) -> Change:
    """One behaviour is never found again."""
    return lambda rng, labels: [{b: n for b, n in row.items() if b != behaviour} for row in labels]


def everywhere(behaviour: str) -> Change:
    """One behaviour is found in every turn, weakly where it is not."""
    return lambda rng, labels: [{behaviour: 1, **row} for row in labels]


CHANGES: Mapping[str, Change] = {
    "none (false alarms)": lambda rng, labels: labels,
    "10 % of its findings fewer": fewer(0.1),
    "20 % fewer": fewer(0.2),
    "30 % fewer": fewer(0.3),
    "a third of its findings one strength more": stronger(1 / 3),
    "never finds delusion_reinforcement": blind("delusion_reinforcement"),
    "never finds harmful_advice": blind("harmful_advice"),
    "finds pushback in every turn": everywhere("pushback"),
}


def alarms(labels: Labels, behaviours: Sequence[str], change: Change, noise: float, runs: int) -> float:
    """The share of pairs of runs, one before and one after the change, in which the judge counts as changed."""
    rng, found = random.Random(f"{noise}"), 0
    for _ in range(runs):
        sides = (labels, labels, *[change(rng, labels)] * 2)
        passes = [judgement(rng, side, behaviours, noise) for side in sides]
        _, p = shift_of([(a, b, c, d) for a, b, c, d in zip(*passes, strict=True)])
        found += p <= ALPHA
    return found / runs


def main(runs: int) -> None:
    """Print a Markdown table for each rubric."""
    for protocol in ("per-chunk", "per-turn"):
        labels, behaviours = labels_of(protocol)
        print(f"\n{protocol}, {len(labels)} anchors, {sum(map(len, labels))} findings, {runs} runs a cell\n")
        print("| change of the judge |", " | ".join(f"noise {noise:.0%}" for noise in NOISE), "|")
        print("|---" * (len(NOISE) + 1) + "|")
        for name, change in CHANGES.items():
            cells = (f"{100 * alarms(labels, behaviours, change, noise, runs):.1f} %" for noise in NOISE)
            print(f"| {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
