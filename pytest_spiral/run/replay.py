"""Recorded runs: outputs and conversations of an earlier run or a public result file, to be scored without the model.

A recording is data from outside: it is read within bounds and validated, and nothing in it is executed or followed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_spiral.errors import DataError
from pytest_spiral.evaluate.spiral import conversation_from_report
from pytest_spiral.resources import read_json
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.upstream import load_upstream
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.tempaffect.contract import FINISH_REASONS
from pytest_spiral.tempaffect.records import CARD_MODES, Mode
from pytest_spiral.tempaffect.unit import Output, ScenarioUnit

__all__ = ["Recording", "load_recording"]

_MODES: Mapping[str, Mode] = {name: mode for mode, name in CARD_MODES.items()}
_FINISH = {reason: finish for finish, reason in FINISH_REASONS.items()}


@dataclass(frozen=True)
class Recording:
    """What was recorded. hash: hex SHA-256 of the file. talks: conversations in the order of the file.

    report: the report as it was read, None for a result file in upstream's format. own_scenarios: those of TempAffect
    were the user's, not the bundled ones.
    """

    path: Path
    hash: str
    outputs: Mapping[ScenarioUnit, Output]
    talks: tuple[Conversation, ...]
    report: Mapping[str, Any] | None = None
    own_scenarios: bool = False

    @cached_property
    def conversations(self) -> Mapping[ConversationUnit, Conversation]:
        """Conversations by unit. Raises `DataError` for a file that holds several runs on the same prompts."""
        try:
            found = {ConversationUnit(talk.model, talk.prompt_id, talk.index): talk for talk in self.talks}
        except ValueError as error:
            raise DataError(f"{self.path}: {str(error)[:200]}") from None
        if len(found) < len(self.talks):
            raise DataError(
                f"{self.path}: several runs on the same prompts; use `pytest-spiral rescore`, which keeps them apart"
            )
        return found

    @cached_property
    def groups(self) -> Mapping[tuple[str, str], Sequence[Conversation]]:
        """Conversations by run id and model."""
        found: dict[tuple[str, str], list[Conversation]] = {}
        for talk in self.talks:
            found.setdefault((talk.origin.run_id, talk.model), []).append(talk)
        return found

    @cached_property
    def models(self) -> Mapping[str, tuple[str, ...]]:
        """Recorded models with the suites they are recorded in, in order of name."""
        found: dict[str, list[str]] = {}
        for scenario_unit in self.outputs:
            found.setdefault(scenario_unit.model, [])
        for talk in self.conversations:
            found.setdefault(talk.model, [])
        for model, suites in found.items():
            if any(unit.model == model for unit in self.outputs):
                suites.append("tempaffect")
            if any(unit.model == model for unit in self.conversations):
                suites.append("spiral")
        return {model: tuple(found[model]) for model in sorted(found)}


def load_recording(path: Path) -> Recording:
    """Read a run folder, its `report.json` or `run.sqlite`, or a result file in upstream's format.

    Raises `DataError` naming the file and the key.
    """
    if path.is_dir() or path.name == "run.sqlite":
        path = (path if path.is_dir() else path.parent) / "report.json"
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise DataError(f"{path}: neither a report of ours nor a result file in upstream's format")
    outputs: Mapping[ScenarioUnit, Output] = {}
    own = False
    if "schema_version" in raw:
        outputs, talks, own = _from_report(path, raw)
    else:
        talks = load_upstream(path)
    if not outputs and not talks:
        raise DataError(f"{path}: nothing is recorded in it")
    report = raw if "schema_version" in raw else None
    return Recording(path, hashlib.sha256(path.read_bytes()).hexdigest(), outputs, talks, report, own)


def _from_report(
    path: Path, raw: Mapping[str, Any]
) -> tuple[dict[ScenarioUnit, Output], tuple[Conversation, ...], bool]:
    try:
        outputs = {_scenario_unit(row): _output(row) for row in raw["tempaffect"]["items"]}
        talks = tuple(conversation_from_report(row) for row in raw["spiral"]["conversations"])
        own = bool(raw.get("run", {}).get("config", {}).get("tempaffect_scenarios"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: not a report of this version ({type(error).__name__} {error})") from None
    return outputs, talks, own


def _scenario_unit(row: Mapping[str, Any]) -> ScenarioUnit:
    model, name, epoch = row["model"], row["id"], row["epoch"]
    if not isinstance(model, str) or not isinstance(name, str) or not isinstance(epoch, int) or epoch < 0:
        raise TypeError(f"no unit: model {model!r:.60}, id {name!r:.60}, epoch {epoch!r:.60}")
    return ScenarioUnit(model, _MODES[row["prompting_mode"]], name, epoch)


def _output(row: Mapping[str, Any]) -> Output:
    measured = row["status"] in (Status.MEASURED, Status.MODEL_FAILED)
    text = row["output"] if measured else None
    for key, wanted in (("output", str | None), ("reason", str | None), ("detail", str)):
        if not isinstance(row[key], wanted):
            raise TypeError(f"{key} is a {type(row[key]).__name__}")
    if row["reason"] is None:
        return Output(text, "stop", None)
    reason = Reason(ReasonCode(row["reason"]), row["detail"])
    return Output(text, _FINISH.get(reason.code, "stop"), reason)
