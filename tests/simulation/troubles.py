"""Sessions with anything in them, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.disk import DAMAGES, ERRORS, DiskFault, damage
from tests.simulation.network import Weather, draw_weather
from tests.simulation.session import Session
from tests.simulation.shape import Shape
from tests.simulation.undisturbed import check_report
from tests.simulation.world import World

__all__ = ["damaged_session", "troubled_session"]


def troubled_session(w: World, shape: Shape, rng: random.Random) -> None:
    """One session with anything in it."""
    w.begin_session()
    w.clock.skew = rng.choice((0.0, 0.0, 86_400.0, -172_800.0))
    w.server.weather = draw_weather(rng, w.clock.now)
    w.note(f"weather: {w.server.weather}")
    session = Session(w, replace(shape, workers=rng.choice((shape.workers, 0))))
    # Half of the time of a run is spent on its reports.
    session.reports = (w.seed + w.session) % 3 == 0
    dies_at = None
    faults = []
    trouble = rng.choice(("none", "kill", "kill in a statement", "workers", "interrupt", "disk", "disk", "disk"))
    number = int(2 ** rng.uniform(0, 10))
    if trouble == "kill":
        dies_at = w.steps + number
    elif trouble == "interrupt":
        session.interrupt_at = w.steps + number
    elif trouble == "workers":
        session.deaths = [int(2 ** rng.uniform(0, 8)) for _ in range(rng.choice((1, 2, 4)))]
    elif trouble == "kill in a statement":
        faults = [DiskFault(number, "kill", rng.choice(("before", "after")))]
    elif trouble == "disk":
        lasting = rng.random() < 0.2
        writing = rng.random() < 0.7
        number = int(2 ** rng.uniform(0, 7 if writing else 10))
        faults = [DiskFault(number, rng.choice(list(ERRORS)), rng.choice(("before", "after")), lasting, writing)]
    if rng.random() < 0.15:
        session.intruder_at = w.steps + int(2 ** rng.uniform(0, 8))
    session.play(faults, dies_at)
    w.learn_committed()


def damaged_session(w: World, shape: Shape, rng: random.Random) -> None:
    """Damage the store and resume: the run is refused, or goes on as if nothing had been. Then restore the store."""
    before = {path: path.read_bytes() for path in w.store_files()}
    kind = rng.choice(DAMAGES)
    what = damage(w.run_dir, kind, rng)
    w.note(f"damage: {what}")
    if not what:
        return
    if kind in ("bit", "value"):
        # What cannot be found any more is asked for again; what is found must be right.
        w.committed.clear()
    w.damaged = True
    w.begin_session()
    w.server.weather = Weather()
    session = Session(w, shape)
    session.play()
    refused = bool(session.failures)
    w.note("it was refused" if refused else "it was not noticed")
    if kind in ("emptied", "cut", "foreign") and not refused:
        w.fail(f"a store that was {kind} was taken as a good one")
    if refused:
        for path in w.store_files():
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
    elif session.report is not None:
        check_report(w, shape, session)
    w.committed.clear()
    w.learn_committed()
