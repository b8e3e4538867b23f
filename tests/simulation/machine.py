"""The simulated machine in the place of the real one."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from pytest_spiral.chat import ChatReply, ChatRequest
from pytest_spiral.errors import ChatError
from pytest_spiral.models import budget
from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.models.limiter import Limiter
from pytest_spiral.run import controller as run_controller
from pytest_spiral.run import models as run_models
from pytest_spiral.run import preflight as run_preflight
from pytest_spiral.run import results as run_results
from pytest_spiral.spiral import agreement
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import StoredChat
from pytest_spiral.tempaffect import card_metrics, unit
from pytest_spiral.tempaffect.self_check import baselines, check_scorer
from tests.faults import runs as fault_runs
from tests.simulation import disk as disks
from tests.simulation.network import Model
from tests.simulation.world import Process, World

__all__ = ["installed", "world"]

_HERE = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # a folder in memory, with a random name


class _Stored(StoredChat):
    """The real one, observed."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        made = _WORLD[-1]
        try:
            reply = await super().complete(request)
        except ChatError as error:
            made.book(request, "answered" if error.code is ReasonCode.STORE_FAILED else "failed", "booked")
            raise
        made.check_stored(request, reply)
        made.book(request, "answered", "stored")
        return reply


_WORLD: list[World] = []


def _number(process: Process | None) -> int:
    return id(process) % 2**31


def _few_draws(interval: Callable[..., Any], *args: Any, **_: Any) -> Any:
    return interval(*args, resamples=20)


@contextmanager
def installed() -> Iterator[None]:
    """Put the simulated machine in the place of the real one, for as many worlds as are played inside."""

    def connect(database: Any, **options: Any) -> sqlite3.Connection:
        process = _WORLD[-1].current if _WORLD else None
        if process is None:
            connection: sqlite3.Connection = disks._connect(database, **options)
            return connection
        return disks.connect(process.disk, database, **options)

    def model(endpoint: Endpoint, **options: Any) -> Model:
        world = _WORLD[-1]
        return Model(endpoint, server=world.server, begin=world.begin_call, end=world.end_call, **options)

    async def unlisted(*_: object, **__: object) -> frozenset[str]:
        return frozenset()

    def now() -> float:
        return _WORLD[-1].clock.now

    every_task = asyncio.all_tasks

    def all_tasks(loop: asyncio.AbstractEventLoop | None = None) -> list[asyncio.Task[Any]]:
        # In a set their order would be another one in every real process.
        return sorted(every_task(loop), key=lambda task: int(task.get_name().rpartition("-")[2]))

    real_score, scores = vars(unit)["score_output"], dict[tuple[str, str, str], Any]()

    def score(scenario: Any, text: str, finish: str = "stop") -> Any:
        key = (scenario.id, text, finish)
        if key not in scores:
            scores[key] = real_score(scenario, text, finish)
        return scores[key]

    known = check_scorer(fault_runs._few_scenarios(1))
    versions = vars(run_results)["versions"]()
    patches: list[tuple[Any, str, Any]] = [
        (asyncio, "all_tasks", all_tasks),
        (asyncio, "run", lambda work: _WORLD[-1].run(work)),
        (sqlite3, "connect", connect),
        (time, "time", lambda: _WORLD[-1].clock.wall()),
        (time, "monotonic", now),
        (time, "perf_counter", now),
        (secrets, "token_hex", lambda _: f"{_WORLD[-1].seed:032x}"),
        (run_models, "OpenAICompatible", model),
        (run_models, "StoredChat", _Stored),
        (run_models, "Limiter", partial(Limiter, clock=now)),
        (run_preflight, "StoredChat", _Stored),
        (run_preflight, "list_models", unlisted),
        # All simulated processes are one real one.
        (budget, "os", SimpleNamespace(getpid=lambda: _number(_WORLD[-1].current))),
        (budget, "_is_alive", lambda pid: pid in {_number(each) for each in _WORLD[-1].processes if each.alive}),
        # The same in every run, and slow.
        (run_controller, "check_scorer", lambda _: known),
        (run_results, "versions", lambda: versions),
        (unit, "score_output", score),
        (card_metrics, "percentile_resamples", cache(vars(card_metrics)["percentile_resamples"])),
        (agreement, "agreement_interval", partial(_few_draws, vars(agreement)["agreement_interval"])),
        (run_results, "baselines", cache(lambda suite: baselines(suite))),
    ]
    with ExitStack() as stack, warnings.catch_warnings():
        # Work of processes that were killed before it began.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


@contextmanager
def world(seed: int) -> Iterator[World]:
    """A world of its own, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"simulation-{seed}-", dir=_HERE))
    made = World(seed, folder)
    _WORLD.append(made)
    try:
        yield made
    finally:
        made.end()
        _WORLD.pop()
        shutil.rmtree(folder, ignore_errors=True)
