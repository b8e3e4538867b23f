"""Faults that earlier versions had, put back one at a time: the simulator has to find each of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from pytest_spiral.chat import ChatReply
from pytest_spiral.models import budget, completion, openai_compatible
from pytest_spiral.models.attempt import AttemptError
from pytest_spiral.models.call import Call
from pytest_spiral.run import models as run_models
from pytest_spiral.run import preflight
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import RunStore, database, run_store, texts
from tests.simulation.play import forget, play

__all__ = ["MUTATIONS", "Found", "find"]

_read = completion.read_completion
_lock = database.lock_run


def _reading(change: Callable[[dict[str, Any]], object]) -> AbstractContextManager[object]:
    """Answers with choices are changed before they are read."""

    def read(body: bytes, **options: Any) -> ChatReply:
        with suppress(ValueError, AttributeError, KeyError, TypeError, RecursionError):
            data = json.loads(body)
            if data.get("choices"):
                change(data)
                body = json.dumps(data).encode()
        return _read(body, **options)

    return mock.patch.object(openai_compatible, "read_completion", read)


def _end(data: dict[str, Any]) -> None:
    for choice in data["choices"]:
        if choice["finish_reason"] in (None, "abort"):
            choice["finish_reason"] = "stop"


def _raw_name(body: bytes, **options: Any) -> ChatReply:
    """The model's name is kept as it came."""
    read = _read(body, **options)
    name = json.loads(body).get("model")
    return replace(read, model=name) if isinstance(name, str) else read


@contextmanager
def _kept(self: texts.Texts) -> Iterator[None]:
    """Ids of texts are kept in memory, whatever becomes of the transaction."""
    yield


def _waits(change: Callable[[AttemptError, float | None], float | None]) -> AbstractContextManager[object]:
    owner = Call
    real = owner.wait_after
    return mock.patch.object(owner, "wait_after", lambda self, error: change(error, real(self, error)))


def _as_told(error: AttemptError, wait: float | None) -> float | None:
    return wait if wait is None or error.retry_after is None else max(0.0, error.retry_after)


def _not_garbled(error: AttemptError, wait: float | None) -> float | None:
    return None if error.code is ReasonCode.BAD_RESPONSE else wait


def _impatient() -> AbstractContextManager[object]:
    real = run_models.endpoint_of
    return mock.patch.object(run_models, "endpoint_of", lambda *args: replace(real(*args), patience=8.0))


def _booked(change: Callable[[Any], Any]) -> AbstractContextManager[object]:
    return mock.patch.object(budget.Ledger, "reserve", change(budget.Ledger.reserve))


@contextmanager
def _lock_and_tidy(path: Path) -> Iterator[None]:
    """An empty file is taken for one that is still to be made."""
    with _lock(path):
        if path.exists() and not path.stat().st_size:
            path.unlink()
        yield


MUTATIONS: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "token counts are stored as they come": lambda: mock.patch.object(completion, "_MAX_TOKENS", 10**40),
    "the model's name is stored as it comes": lambda: mock.patch.object(
        openai_compatible, "read_completion", _raw_name
    ),
    "ids of texts outlive a rollback": lambda: mock.patch.object(texts.Texts, "kept", _kept),
    "Retry-After: 0 is obeyed": lambda: _waits(_as_told),
    "patience lasts 8 s": _impatient,
    "an error beside choices is a reply": lambda: _reading(lambda data: data.pop("error", None)),
    "an answer that broke off is a reply": lambda: _reading(_end),
    "token counts break the sums": lambda: mock.patch.object(completion, "_MAX_TOKENS", 2**63 - 1),
    "a garbled body is not asked for again": lambda: _waits(_not_garbled),
    "checksums are not verified": lambda: mock.patch.multiple(
        run_store, _verified=lambda row: row, verify_rows=lambda connection, table: None
    ),
    "an empty store is a new one": lambda: mock.patch.object(database, "lock_run", _lock_and_tidy),
    "a second controller may enter": lambda: mock.patch.object(database, "lock_run", nullcontext),
    "a store that is taken away is not missed": lambda: mock.patch.object(RunStore, "check_file", return_value=None),
    "the limit on the cost is not kept": lambda: _booked(
        lambda reserve: lambda self, amount, _: reserve(self, amount, math.inf)
    ),
    "a parameter that is refused is sent again": lambda: mock.patch.object(
        preflight._Examination, "_concedes", return_value=False
    ),
    "a rest of a reservation is waited for": lambda: mock.patch.object(budget, "_NOTHING", 0.0),
}


@dataclass(frozen=True)
class Found:
    """How many seeds a mutation needed, and what was noticed; seeds 0: it was not found."""

    mutation: str
    seeds: int
    seed: int
    violation: str


def find(mutation: str, first: int = 1, most: int = 200) -> Found:
    """Play seeds until the mutation is noticed."""
    with MUTATIONS[mutation]():
        forget()
        try:
            for number, seed in enumerate(range(first, first + most), 1):
                outcome = play(seed)
                if outcome.violation:
                    return Found(mutation, number, seed, outcome.violation)
        finally:
            forget()
    return Found(mutation, 0, 0, "")
