"""The report that a run must come to, whatever happened to it: that of the same run with nothing happening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_spiral.chat import ChatReply, ChatRequest
from pytest_spiral.store import StoredExchange
from tests.faults.runs import measured
from tests.simulation.machine import world
from tests.simulation.session import Session
from tests.simulation.shape import Shape, write_openings
from tests.simulation.world import World

__all__ = ["check_report", "forget"]

_KNOWN: dict[Shape, Any] = {}


def forget() -> None:
    """Forget reports of undisturbed runs: another program would make others."""
    _KNOWN.clear()


def check_report(w: World, shape: Shape, session: Session) -> None:
    """The report of a session is that of an undisturbed run."""
    assert session.report is not None
    differences = _differences(_expected_report(w, shape, session.exchanges), measured(session.report))
    if differences:
        w.fail(f"the report differs from an undisturbed run's: {differences}")


def _expected_report(w: World, shape: Shape, exchanges: Sequence[StoredExchange]) -> Any:
    """The report of an undisturbed run in one process.

    What a model said must be in it, even if it is not what a healthy endpoint would have said: then the undisturbed run
    starts with everything that was stored, and asks nothing.
    """
    shape = replace(shape, workers=0, concurrency=4)
    if any(serving.altered for e in exchanges for serving in w.server.by_key[e.request.key]):
        return _undisturbed(shape, w, [(exchange.request, exchange.reply) for exchange in exchanges])
    if shape not in _KNOWN:
        _KNOWN[shape] = _undisturbed(shape, None, ())
    return _KNOWN[shape]


def _undisturbed(shape: Shape, known: World | None, stored: Sequence[tuple[ChatRequest, ChatReply]]) -> Any:
    with world(known.seed if known else 0) as w:
        if known is not None:
            w.server.by_key = known.server.by_key
        write_openings(w.folder, shape.openings)
        w.begin_session()
        session = Session(w, shape, stored=stored)
        session.play()
        if known is not None and w.server.served:
            known.fail(f"an undisturbed run asks for {w.server.served[0].call.request.unit} besides what was stored")
        assert session.report is not None
        return measured(session.report)


def _differences(expected: Any, found: Any, path: str = "") -> list[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        pairs = [(f"{path}.{key}", expected.get(key), found.get(key)) for key in sorted({*expected, *found})]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [(f"{path}.{n}", *pair) for n, pair in enumerate(zip(expected, found, strict=True))]
    else:
        return [] if expected == found else [f"{path}: {str(expected)[:80]} / {str(found)[:80]}"]
    return [difference for name, one, other in pairs for difference in _differences(one, other, name)][:4]
