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
from pytest_spiral.report.read import document_of, is_report, load_report
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.upstream import load_upstream
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.contract import FINISH_REASONS
from pytest_spiral.tempaffect.records import CARD_MODES, ItemResult, Mode
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
    """Read a run directory, its `report.json` or `run.sqlite`, or a result file in upstream's format.

    Raises:
        DataError: For a file that cannot be read; the message names the file and the key.
    """
    if path.is_dir() or path.name == "run.sqlite":
        path = (path if path.is_dir() else path.parent) / "report.json"
    report = load_report(path) if is_report(path) else None
    if report is None:
        outputs: Mapping[ScenarioUnit, Output] = {}
        talks, own = load_upstream(path), False
    else:
        outputs = dict(map(_output, report.tempaffect.items))
        talks = tuple(record.conversation() for record in report.spiral.conversations)
        own = report.run.config.tempaffect_scenarios is not None
    if not outputs and not talks:
        raise DataError(f"{path}: nothing is recorded in it")
    document = None if report is None else document_of(report)
    return Recording(path, hashlib.sha256(path.read_bytes()).hexdigest(), outputs, talks, document, own)


def _output(item: ItemResult) -> tuple[ScenarioUnit, Output]:
    text = item.output if item.status in (Status.MEASURED, Status.MODEL_FAILED) else None
    finish = "stop" if item.reason is None else _FINISH.get(item.reason.code, "stop")
    unit = ScenarioUnit(item.model, _MODES[item.prompting_mode], item.id, item.epoch)
    return unit, Output(text, finish, item.reason)
