"""Having judges label fixed turns: those with known labels, and anchors, which tell whether a judge has changed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pytest_spiral.hashing import digest
from pytest_spiral.report.model import Anchors, Drift
from pytest_spiral.report.write import write_atomically
from pytest_spiral.run.content import Content
from pytest_spiral.run.models import Chats, Connections
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.spiral.anchors import Judged, judge_anchors, load_anchors
from pytest_spiral.spiral.calibration import CalibrationResult, calibration_result, drift, read_calibration
from pytest_spiral.spiral.judges import Judge
from pytest_spiral.spiral.labels import LabelledSet, LabelledTurn
from pytest_spiral.spiral.records import ChunkJudgement
from pytest_spiral.store import RunStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JudgeCalibrations:
    """The calibrations of one session, by judge.

    Attributes:
        judges: What was found.
        drift: Against the last calibration of this judge; without those that have none.
        paths: The files that keep them.
    """

    judges: Mapping[str, CalibrationResult]
    drift: Mapping[str, Drift]
    paths: Sequence[Path]


async def judge_labelled_turns(judges: Sequence[Judge], labelled: LabelledSet) -> dict[str, list[ChunkJudgement]]:
    """Every turn judged by every judge, by turn. The judges' own limits bound how many calls are in flight."""

    async def judged(turn: LabelledTurn) -> list[ChunkJudgement]:
        name, opening = _unit(turn), turn.opening or turn.user
        return await asyncio.gather(*(judge.chunk(name, opening, turn.chunk) for judge in judges))

    results = await asyncio.gather(*(judged(turn) for turn in labelled.turns))
    return {turn.id: judgements for turn, judgements in zip(labelled.turns, results, strict=True)}


def _unit(turn: LabelledTurn) -> str:
    return f"calibration-{turn.id}"


async def judge_twice(chats: Chats, anchors: LabelledSet) -> tuple[Judged, Judged]:
    """Every anchor judged as all turns are, and once more with another fence, at the same time.

    The first request is the one that a calibration makes: neither pays for what the other has in the store.
    """
    fences = (chats.judges(other_fence=other) for other in (False, True))
    first, again = await asyncio.gather(*(judge_labelled_turns(judges, anchors) for judges in fences))
    return first, again


def judged_anchors(plan: RunPlan, content: Content, store: RunStore, environ: Mapping[str, str]) -> Anchors | None:
    """The anchors of a run that is prepared, judged by its judges; None where its protocol has none."""
    protocol = content.spiral.protocol
    anchors = load_anchors(protocol)
    if anchors is None or not plan.judges:
        return None
    judged = _asked(plan, content, store, environ, lambda chats: judge_twice(chats, anchors))
    judges = {}
    for number, judge in enumerate(plan.judges):
        asked = (store.last_exchange(_unit(turn), "judge", judge.model_id) for turn in anchors.turns)
        # A resumed run has its judgements from the store. Built-in judges store nothing.
        times = [datetime.fromtimestamp(exchange.at, UTC) for exchange in asked if exchange]
        at = max(times).isoformat(timespec="seconds") if times else ""
        judges[judge.reported_name] = judge_anchors(judged, number, at)
    return Anchors(rubric=protocol.rubric or "", hash=anchors.hash, of=len(anchors.turns), judges=judges)


def _asked(
    plan: RunPlan, content: Content, store: RunStore, environ: Mapping[str, str], ask: Callable[[Chats], Awaitable[T]]
) -> T:
    """What the judges of a run answer, before anything else is asked."""

    async def work() -> T:
        chats = Chats(plan, content, store, Connections(plan, content, store, environ))
        try:
            return await ask(chats)
        finally:
            await chats.aclose()

    return asyncio.run(work())


def calibrate(
    plan: RunPlan, content: Content, store: RunStore, environ: Mapping[str, str], labelled: LabelledSet
) -> JudgeCalibrations:
    """Calibrate the judges of a run that is prepared on labelled turns.

    A judge that cannot be reached leaves unread turns.

    Raises:
        DataError: For a calibration of an earlier run that cannot be read.
    """
    names = [judge.reported_name for judge in plan.judges]
    paths = {}
    for name in names:
        # Readable, and another one for other judges or labels.
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80]
        file_name = f"{readable}-{digest([[name], labelled.name])[:8]}.json"
        paths[name] = Path(plan.run_dir).parent / "calibrations" / file_name
    # Before any call is paid for: a kept calibration that cannot be read is an error.
    before = {name: read_calibration(path) for name, path in paths.items() if path.is_file()}

    judged = _asked(plan, content, store, environ, lambda chats: judge_labelled_turns(chats.judges(), labelled))
    found = {}
    for number, (name, path) in enumerate(paths.items()):
        own = {turn: judgements[number] for turn, judgements in judged.items()}
        rubric_hash, behaviours = content.spiral.setting.rubric_hash, content.spiral.protocol.behaviours
        found[name] = calibration_result(labelled, own, name, rubric_hash, behaviours)
        write_atomically(path, json.dumps(found[name].model_dump(mode="json"), indent=1, ensure_ascii=True) + "\n")
    drifts = {name: drift(earlier, found[name]) for name, earlier in before.items()}
    return JudgeCalibrations(found, drifts, [*paths.values()])
