"""Floors that were measured: kept under the report directory, and reused by runs with the same instruments."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.gates import parse_gate
from pytest_spiral.hashing import digest
from pytest_spiral.report.model import Report
from pytest_spiral.report.model.floor import Floor
from pytest_spiral.report.write import write_atomically
from pytest_spiral.resources import data_root, naming_faults, read_json
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import ModelPlan, RunPlan


def floor_key(plan: RunPlan, content: Content) -> str:
    """Hash of everything that a floor depends on. Built-in judges are other judges than any model."""
    hashes = content.spiral.hashes
    names = ("protocol_hash", "rubric_hash", "prompts_hash", "persona_hash", "instruments_hash")

    def identity(model: ModelPlan | None) -> str:
        # With fractions among its parameters, which are not hashed as numbers.
        return json.dumps(model.identity() if model else None, sort_keys=True)

    return digest(
        {
            "judges": sorted(map(identity, plan.judges)),
            "user": identity(plan.user),
            "num_turns": plan.settings.num_turns,
            "stand_ins": read_json(data_root() / "spiral" / "dry" / "assistants.json"),
            **{name: hashes[name] for name in names},
        }
    )


def with_floors(plan: RunPlan, content: Content) -> tuple[RunPlan, Floor | None]:
    """The plan without stand-ins that an earlier run has measured under the same conditions, and that floor.

    Shards measure their own, so that all of them do the same.

    Raises:
        ConfigError: For a gate on the skill of a run that will have no floor, or on a difference of skills.
        DataError: For a kept floor that cannot be read.
    """
    settings, kept = plan.settings, None
    if settings.shard is None and content.recording is None and "spiral" in plan.suites:
        kept = read_floor(plan, content)
        # A resumed run measures what it has measured, where it is asked for again.
        kept = None if kept is None or (kept.run == plan.run_id and settings.floors) else kept
    has_floor = kept or plan.floors or content.recording
    for gate in (gate for gate in map(parse_gate, settings.gate) if (gate.suite, gate.metric) == ("spiral", "skill")):
        if gate.relative:
            raise ConfigError(f"--gate {gate.expr}: skills have no difference; compare spiral.score with the baseline")
        if not has_floor:
            raise ConfigError(f"--gate {gate.expr}: needs a floor, and none is kept for these judges; add --floors")
    if kept is not None:
        plan = plan.model_copy(update={"everybody": tuple(model for model in plan.everybody if not model.floor)})
    return plan, kept


def _path(plan: RunPlan, key: str) -> Path:
    return Path(plan.run_dir).parent / "floors" / f"{key[:32]}.json"


def read_floor(plan: RunPlan, content: Content) -> Floor | None:
    """The floor that is kept for the conditions of a run, None for none. Raises `DataError`."""
    key = floor_key(plan, content)
    path = _path(plan, key)
    if not path.is_file():
        return None
    with naming_faults(path, hint="; delete the file and measure it anew with --floors"):
        floor = Floor.model_validate_json(json.dumps(read_json(path)))
    length = len(content.spiral.protocol.metrics) + 1
    rows = [row for own in floor.stand_ins.values() for judge in own.judges for row in judge.prompts]
    if floor.key != key or not rows or any(not len(row.sums) == len(row.counts) == length for row in rows):
        raise DataError(f"{path}: not a floor of these judges; delete the file and measure it anew with --floors")
    return floor.model_copy(update={"reused": True})


def keep_floor(plan: RunPlan, report: Report) -> None:
    """Keep the floor that a whole run has measured, with the anchors by which changed judges are noticed later."""
    floor, anchors = report.spiral.floor, report.spiral.anchors
    if floor and anchors and report.run.complete and not (floor.reused or floor.refused or plan.settings.shard):
        kept = floor.model_copy(update={"anchors": anchors})
        path = _path(plan, floor.key)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(path, kept.model_dump_json(indent=1) + "\n")
