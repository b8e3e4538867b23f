"""Sessions with anything in them, drawn from a seed."""

from __future__ import annotations

import math
import random
import shutil
from dataclasses import replace
from pathlib import Path

from tests.simulation.disk import DAMAGES, ERRORS, DiskFault, damage, lose_unsynced
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
    w.troubles[trouble] += 1
    more = random.Random(f"more-{w.seed}-{w.session}")
    besides = more.choice((None,) * 6 + (_delivered_twice, _taken_away, _limited, _powerless))
    if besides is not None:
        w.troubles[besides.__name__.strip("_").replace("_", " ")] += 1
        besides(w, session, more)
    session.play(faults, dies_at)
    if w.remains is not None:
        w.note(f"lost: {lose_unsynced(w.remains, more)}")
        # What was lost may be asked for again, and nobody knows what it has cost.
        w.committed.clear()
        w.met, w.cost = True, -math.inf
    elif w.lost_at is not None:
        _tidy(w)
    w.learn_committed()


def _delivered_twice(w: World, _: Session, rng: random.Random) -> None:
    w.server.weather = replace(w.server.weather, twice=rng.choice((0.1, 0.5, 1.0)))


def _limited(w: World, session: Session, rng: random.Random) -> None:
    """`--max-cost`. The limit can only be kept for counts of tokens that are possible."""
    w.server.weather = replace(w.server.weather, odd=0.0, honest=True)
    session.max_cost = 10 ** rng.uniform(-1.5, 0.5)


def _powerless(w: World, _: Session, rng: random.Random) -> None:
    w.cut_at = w.steps + int(2 ** rng.uniform(0, 10))


def _taken_away(w: World, session: Session, rng: random.Random) -> None:
    session.vandal, session.intruder_at = rng.choice(_VANDALS), None
    session.vandal_at = w.steps + int(2 ** rng.uniform(0, 9))


def _delete_directory(run_dir: Path) -> str:
    shutil.rmtree(run_dir)
    return "the run directory is deleted"


def _move_directory(run_dir: Path) -> str:
    run_dir.rename(_elsewhere(run_dir))
    return "the run directory is moved away"


def _delete_store(run_dir: Path) -> str:
    (run_dir / "run.sqlite").unlink()
    return "the store is deleted"


def _replace_store(run_dir: Path) -> str:
    path = run_dir / "run.sqlite"
    shutil.copy(path, copy := run_dir / "copy")
    copy.replace(path)
    return "the store is replaced by a copy"


_VANDALS = (_delete_directory, _move_directory, _delete_store, _replace_store)


def _elsewhere(run_dir: Path) -> Path:
    return run_dir.with_name("elsewhere")


def _tidy(w: World) -> None:
    """What a user does after a session whose directory was taken away: move it back, or begin anew."""
    if (moved := _elsewhere(w.run_dir)).exists():
        if w.run_dir.exists():
            w.fail("something was written where the run directory had been")
        moved.rename(w.run_dir)
        return
    if not (w.run_dir / "run.sqlite").exists():
        shutil.rmtree(w.run_dir, ignore_errors=True)
    # Nothing that was stored is left, or what an older copy has.
    w.committed.clear()
    w.cost = -math.inf


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
