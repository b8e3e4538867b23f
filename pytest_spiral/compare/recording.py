"""Recorded outputs and conversations: of a run directory, a report, or a result file in upstream's format.

A recording is untrusted data: it is read within bounds and validated, and nothing in it is executed or followed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_spiral.errors import DataError
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import is_report, load_report
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.upstream import load_upstream
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.contract import FINISH_REASONS
from pytest_spiral.tempaffect.records import CARD_MODES, Mode
from pytest_spiral.tempaffect.unit import Output, ScenarioUnit

__all__ = ["Recording", "load_recording"]

_MODES: Mapping[str, Mode] = {name: mode for mode, name in CARD_MODES.items()}
_FINISH = {code: finish for finish, code in FINISH_REASONS.items()}


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    Attributes:
        path: The file.
        hash: Its SHA-256, hexadecimal.
        all_conversations: In the order of the file.
        report: The report; None for a result file in upstream's format.
    """

    path: Path
    hash: str
    all_conversations: tuple[Conversation, ...]
    report: Report | None = None

    @cached_property
    def outputs(self) -> Mapping[ScenarioUnit, Output]:
        """TempAffect outputs by unit."""
        outputs = {}
        for item in self.report.tempaffect.items if self.report else ():
            text = item.output if item.status in (Status.MEASURED, Status.MODEL_FAILED) else None
            finish = "stop" if item.reason is None else _FINISH.get(item.reason.code, "stop")
            unit = ScenarioUnit(item.model, _MODES[item.prompting_mode], item.id, item.epoch)
            outputs[unit] = Output(text, finish, item.reason)
        return outputs

    @cached_property
    def conversations(self) -> Mapping[ConversationUnit, Conversation]:
        """Conversations by unit.

        Raises:
            DataError: For a file that holds several runs of the same prompts.
        """
        try:
            found = {ConversationUnit(one.model, one.prompt_id, one.index): one for one in self.all_conversations}
        except ValueError as error:
            raise DataError(f"{self.path}: {str(error)[:200]}") from None
        if len(found) < len(self.all_conversations):
            raise DataError(
                f"{self.path}: several runs of the same prompts; use `pytest-spiral rescore`, which keeps them apart"
            )
        return found

    @cached_property
    def groups(self) -> Mapping[tuple[str, str], Sequence[Conversation]]:
        """Conversations by run id and model."""
        groups: dict[tuple[str, str], list[Conversation]] = {}
        for conversation in self.all_conversations:
            groups.setdefault((conversation.origin.run_id, conversation.model), []).append(conversation)
        return groups

    @cached_property
    def models(self) -> Mapping[str, tuple[str, ...]]:
        """Recorded models, sorted, with the suites they are recorded in."""
        by_suite = {
            "tempaffect": {unit.model for unit in self.outputs},
            "spiral": {unit.model for unit in self.conversations},
        }
        models = sorted(set().union(*by_suite.values()))
        return {model: tuple(suite for suite, names in by_suite.items() if model in names) for model in models}

    @property
    def custom_scenarios(self) -> bool:
        """Whether TempAffect's scenarios were the user's own."""
        return self.report is not None and bool(self.report.run.config.tempaffect_scenarios)


def load_recording(path: Path) -> Recording:
    """Read a run directory, its `report.json` or `run.sqlite`, or a result file in upstream's format.

    Raises:
        DataError: Naming the file and the key.
    """
    if path.is_dir() or path.name == "run.sqlite":
        path = (path if path.is_dir() else path.parent) / "report.json"
    report = load_report(path) if is_report(path) else None
    if report is None:
        conversations = load_upstream(path)
    else:
        conversations = tuple(record.conversation() for record in report.spiral.conversations)
    if not conversations and not (report and report.tempaffect.items):
        raise DataError(f"{path}: nothing is recorded in it")
    return Recording(path, hashlib.sha256(path.read_bytes()).hexdigest(), conversations, report)
