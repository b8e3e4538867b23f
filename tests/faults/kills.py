"""Runs that are killed at random moments and resumed until they are complete, with exact accounts of every request.

The server names its reply after the request, and the store keeps that name: so what was committed when a process died
can be told from what its successor asks.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.openai_server import FakeOpenAI, Reply
from tests.faults.catalogue import KEY
from tests.faults.runs import Run, cast, measured, patient

__all__ = ["Account", "kill_and_resume"]

_CONTEXT = multiprocessing.get_context("forkserver")
# Heavy imports happen once; every session is a fork of a process that has them.
_CONTEXT.set_forkserver_preload(["tests.faults.runs", "openai", "nltk.stem"])


@dataclass
class Account:
    """What happened to one run. lost: replies that were committed once and are no more. again: committed replies that
    were asked for again. repeated: requests sent more than once. open: per kill, requests sent whose reply was not
    committed. requests: of an undisturbed run."""

    kills: int = 0
    committed: list[int] = field(default_factory=list)
    lost: int = 0
    again: int = 0
    repeated: int = 0
    open: list[int] = field(default_factory=list)
    requests: int = 0
    identical: bool = False


class _Naming:
    """A handler whose replies carry the name of their request as the served model."""

    def __init__(self) -> None:
        self.answer = cast()
        self.asked: list[str] = []

    def __call__(self, body: dict[str, Any], number: int) -> Reply:
        name = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]
        self.asked.append(name)
        reply = self.answer(body, number)
        return Reply(reply, model=name) if isinstance(reply, str) else reply


def _one_session(folder: str, url: str, suite: str, turns: int, concurrency: int) -> None:
    """One session of a run, in a process of its own."""
    server = FakeOpenAI.__new__(FakeOpenAI)
    server._port, server._prefix = int(url.rpartition(":")[2].partition("/")[0]), "/v1"
    with patient(20, 60):
        Run(
            Path(folder),
            server,
            suite,
            KEY,
            turns=turns,
            openings=4,
            per_family=8,
            options={"concurrency": concurrency},
        ).go()
    # Without any clean-up, as if it had been killed.
    os._exit(0)


def _committed(folder: Path) -> set[str]:
    path = folder / "reports/r/run.sqlite"
    if not path.is_file():
        return set()
    try:
        with sqlite3.connect(path) as store:
            return {row[0] for row in store.execute("SELECT served_model FROM reply")}
    except sqlite3.OperationalError:
        # Killed before the tables were there.
        return set()


def kill_and_resume(suite: str, kills: int, seed: int, *, turns: int = 4, concurrency: int = 4) -> Account:
    """Kill a run so many times, then let it end, and compare it with an undisturbed one."""
    rng, account, naming = random.Random(f"{suite}-{seed}"), Account(), _Naming()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        with FakeOpenAI(naming, key=KEY, latency=0.004) as server:
            _complete(second, server, suite, turns, concurrency)
            total = len(naming.asked)
            naming.asked.clear()
            before: set[str] = set()
            for left in range(kills, 0, -1):
                room = max(1, (total - len(before)) // left)
                since = len(naming.asked)
                process = _start(first, server, suite, turns, concurrency)
                _wait(naming, since + rng.randint(0, room), process)
                time.sleep(rng.uniform(0, 0.01))
                if process.pid is not None and process.is_alive():
                    os.kill(process.pid, signal.SIGKILL)
                    account.kills += 1
                process.join()
                while server.in_flight:
                    time.sleep(0.002)
                after = _committed(Path(first))
                account.lost += len(before - after)
                account.again += len(before & set(naming.asked[since:]))
                account.committed.append(len(after))
                account.open.append(len(set(naming.asked[since:]) - after))
                before = after
            since = len(naming.asked)
            _complete(first, server, suite, turns, concurrency)
            account.again += len(before & set(naming.asked[since:]))
            account.lost += len(before - _committed(Path(first)))
        counts = Counter(naming.asked)
        account.requests, account.repeated = total, counts.total() - len(counts)
        account.identical = _report(first) == _report(second) and len(counts) == total
    return account


def _start(folder: str, server: FakeOpenAI, suite: str, turns: int, concurrency: int) -> Any:
    process = _CONTEXT.Process(target=_one_session, args=(folder, server.base_url, suite, turns, concurrency))
    process.start()
    return process


def _complete(folder: str, server: FakeOpenAI, suite: str, turns: int, concurrency: int) -> None:
    process = _start(folder, server, suite, turns, concurrency)
    process.join(120)
    if process.exitcode != 0:
        raise RuntimeError(f"a run ended with {process.exitcode}")


def _wait(naming: _Naming, until: int, process: Any) -> None:
    deadline = time.monotonic() + 60
    while len(naming.asked) < until and process.is_alive():
        if time.monotonic() > deadline:
            raise RuntimeError("a run makes no progress")
        time.sleep(0.001)


def _report(folder: str) -> str:
    report = json.loads((Path(folder) / "reports/r/report.json").read_text())
    traffic = {role: row["requests"] for role, row in report["usage"]["by_role"].items()}
    return json.dumps([measured(report), traffic], sort_keys=True)
