"""Whole runs, played from a seed: sessions with any combination of faults until the run ends, and a last fair one.

Real: plan, controller, engine, runner, units, judges, client, retries, limits, store, evaluation. In place of pytest
and xdist: `worker` and `session`, which hand results over as they do.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.machine import installed, world
from tests.simulation.network import Weather
from tests.simulation.session import Session
from tests.simulation.shape import Shape, write_openings
from tests.simulation.troubles import damaged_session, troubled_session
from tests.simulation.undisturbed import check_report, forget
from tests.simulation.world import Violation, World

__all__ = ["Outcome", "forget", "installed", "play"]


@dataclass
class Outcome:
    """What became of one seed. violation: the broken promise, "" if none was. digest: equal for equal courses."""

    seed: int
    violation: str
    trace: Sequence[str]
    sessions: int
    requests: int
    kills: int
    faults: Counter[str]
    seconds: float
    lost: bool


def play(seed: int) -> Outcome:
    """One run, to its end."""
    rng = random.Random(f"play-{seed}")
    refuses = random.Random(f"refuses-{seed}").choice(("",) * 4 + ("temperature", "max_tokens"))
    shape = Shape.draw(rng, refuses)
    with world(seed) as w:
        write_openings(w.folder, shape.openings)
        w.note(f"seed {seed}: {shape}")
        outcome = Outcome(seed, "", w.trace, 0, 0, 0, Counter(), 0.0, False)
        try:
            _play(w, shape, rng, outcome)
        except Violation as violation:
            outcome.violation = str(violation)
        outcome.sessions, outcome.requests, outcome.seconds = w.session, len(w.server.served), w.clock.now
        outcome.faults = Counter(serving.what.partition(", never")[0] for serving in w.server.served) + w.troubles
    return outcome


def _play(w: World, shape: Shape, rng: random.Random, outcome: Outcome) -> None:
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        troubled_session(w, shape, rng)
        if w.committed and rng.random() < 0.25:
            damaged_session(w, shape, rng)
    w.begin_session()
    w.server.weather = Weather()
    w.clock.skew = 0.0
    last = Session(w, shape)
    last.play()
    w.learn_committed()
    if last.failures:
        w.fail(f"the last session failed: {last.failures[0]}")
    assert last.report is not None
    check_report(w, shape, last)
