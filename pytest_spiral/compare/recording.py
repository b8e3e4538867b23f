"""Recorded runs: of a run directory, a report, or a result file in upstream's format, and what makes them comparable.

A recording is untrusted data: it is read within bounds and validated, and nothing in it is executed or followed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os.path import isdir
from pathlib import Path

from pydantic import JsonValue

from pytest_spiral.chat import Role
from pytest_spiral.errors import DataError
from pytest_spiral.grouping import grouped
from pytest_spiral.hashing import digest
from pytest_spiral.report.model import Anchors, Report, TempAffect
from pytest_spiral.report.read import find_report
from pytest_spiral.settings import DEFAULT_PROTOCOL
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.counting import count_conversations
from pytest_spiral.spiral.protocol import V1_2, Protocol, load_protocol, protocol_names
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.upstream import load_upstream
from pytest_spiral.tempaffect.records import Item, Mode
from pytest_spiral.tempaffect.unit import ScenarioUnit

Identity = Mapping[str, str | None]
"""What the measurements of a suite depend on, by name; None where it is not recorded."""
UNWRAPPED = "none"
"""Stands for the system prompt of a model that was given none."""
_BY_RUBRIC = (DEFAULT_PROTOCOL, "per-10k-chars", V1_2[0])
SPIRAL_HASHES = ("protocol_hash", "prompts_hash", "persona_hash", "rubric_hash")


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    Attributes:
        name: The path as the user gave it.
        path: The file.
        hash: Its SHA-256, hexadecimal.
        all_conversations: In the order of the file.
        report: The report; None for a result file in upstream's format.
    """

    name: str
    path: Path
    hash: str
    all_conversations: tuple[Conversation, ...]
    report: Report | None = None

    @property
    def id(self) -> str:
        """Of the run, or of the runs in the file."""
        return self.report.run.id if self.report else ", ".join(sorted({run for run, _ in self.groups}))

    def protocol(self, names: Sequence[str] = ()) -> Protocol:
        """The first of these protocols that scores most of the behaviours that were judged.

        Args:
            names: By default, the one that made the report; of a result file, the one that fits its version.

        Raises:
            ConfigError: For an unknown protocol.
            DataError: For judgements under another rubric than the protocol's, or a report by an unknown protocol.
        """
        shipped = [*map(load_protocol, protocol_names())]
        recorded = self.identity.get("spiral", {}).get("protocol_hash")
        made = [one for one in shipped if one.hash == recorded]
        if recorded and not names and not made:
            raise DataError(f"{self.path}: scored by a protocol that this version does not have; name one: --protocol")
        asked = {name for one in self.all_conversations for judged in one.judgements for name in judged.behaviours}
        protocols = [load_protocol(name) for name in names] or made or [load_protocol(name) for name in _BY_RUBRIC]
        protocol = max(protocols, key=lambda one: len(asked.intersection(one.behaviours)))
        try:
            for conversations in self.groups.values():
                count_conversations(conversations, protocol)
        except DataError as error:
            fit = max(shipped, key=lambda one: len(asked.intersection(one.behaviours)))
            hint = f" (--protocol {fit.name})" if fit.behaviours != protocol.behaviours else ""
            raise DataError(f"{self.path}: {error}{hint}") from None
        return protocol

    @property
    def anchors(self) -> Anchors | None:
        """What its judges said about the anchors; None where they were not asked."""
        return self.report.spiral.anchors if self.report else None

    @property
    def seed(self) -> int:
        """Of its resampling."""
        return self.report.run.seed if self.report else 1

    @property
    def tempaffect(self) -> TempAffect:
        """TempAffect's part of the report."""
        return self.report.tempaffect if self.report else TempAffect()

    @property
    def never_asked(self) -> frozenset[str]:
        """Ids of TempAffect scenarios that were to be asked and were not."""
        missing = {name for card in self.tempaffect.cards for name in card.missing.ids}
        return frozenset(missing - self.tempaffect.scenarios.keys())

    @cached_property
    def items(self) -> Mapping[tuple[str, Mode], Sequence[Item]]:
        """TempAffect items by model and mode.

        Raises:
            DataError: For a scored item whose scenario is not recorded.
        """
        for item in self.tempaffect.items:
            if item.score is not None and item.id not in self.tempaffect.scenarios:
                raise DataError(f"{self.path}: item {item.id}: unknown scenario; scored items need their scenario")
        return grouped(((item.model, item.mode), item) for item in self.tempaffect.items)

    @cached_property
    def outputs(self) -> Mapping[ScenarioUnit, Item]:
        """TempAffect items by unit."""
        return {ScenarioUnit.of(item): item for item in self.tempaffect.items}

    @cached_property
    def conversations(self) -> Mapping[ConversationUnit, Conversation]:
        """Conversations by unit.

        Raises:
            DataError: For a file that holds several runs of the same prompts.
        """
        try:
            by_unit = {ConversationUnit(one.model, one.prompt_id, one.index): one for one in self.all_conversations}
        except ValueError as error:
            raise DataError(f"{self.path}: {str(error)[:200]}") from None
        if len(by_unit) < len(self.all_conversations):
            raise DataError(
                f"{self.path}: several runs of the same prompts; use `pytest-spiral rescore`, which keeps them apart"
            )
        return by_unit

    @cached_property
    def by_model(self) -> Mapping[str, Sequence[Conversation]]:
        """Conversations by model, each prompt's in one run. Raises `DataError` as `conversations` does."""
        return grouped((unit.model, conversation) for unit, conversation in self.conversations.items())

    @cached_property
    def groups(self) -> Mapping[tuple[str, str], Sequence[Conversation]]:
        """Conversations by run id and model."""
        return grouped(((one.origin.run_id, one.model), one) for one in self.all_conversations)

    @cached_property
    def models(self) -> Mapping[str, tuple[str, ...]]:
        """Recorded models, sorted, with the suites they are recorded in."""
        by_suite = {"tempaffect": {unit.model for unit in self.outputs}, "spiral": self.by_model.keys()}
        models = sorted(set().union(*by_suite.values()))
        return {model: tuple(suite for suite, names in by_suite.items() if model in names) for model in models}

    def of_suite(self, suite: str) -> tuple[str, ...]:
        """Models measured in a suite, sorted."""
        return tuple(model for model, suites in self.models.items() if suite in suites)

    @cached_property
    def identity(self) -> Mapping[str, Identity]:
        """What the measurements depend on by suite; suites without measurements are absent."""
        report, conversations = self.report, self.all_conversations
        identity: dict[str, dict[str, str | None]] = {}
        if report is not None and (hashes := report.integrity.tempaffect) is not None:
            identity["tempaffect"] = {
                "suite_hash": hashes.suite_hash,
                "scorer_fingerprint": hashes.scorer_fingerprint,
                "system_prompt": hashes.system_prompt_hash or UNWRAPPED,
            }
        if conversations:
            judges = {judgement.judge for one in conversations for judgement in one.judgements} - {""}
            systems = {one.origin.evaluated_system_prompt for one in conversations if one.transcript}
            users = {one.origin.user_model for one in conversations} - {""}
            identity["spiral"] = {
                **dict.fromkeys(SPIRAL_HASHES),
                "judges": ", ".join(sorted(judges)) or None,
                "user_model": ", ".join(sorted(users)) or None,
                "system_prompt": ", ".join(digest(text) if text else UNWRAPPED for text in sorted(systems)) or None,
                "num_turns": str(max(len(one.replies) for one in conversations)),
                **_reported_identity(report),
            }
            if all(one.beginning for one in conversations):
                # Nobody writes messages there.
                del identity["spiral"]["user_model"]
        return identity


def load_recording(path: Path) -> Recording:
    """Read a run directory, its `report.json` or `run.sqlite`, or a result file in upstream's format.

    Raises:
        DataError: Naming the file and the key.
    """
    name = str(path)
    is_folder = isdir(path)  # noqa: PTH112  # `Path.is_dir` raises for names that are too long
    if is_folder or path.name == "run.sqlite":
        path = (path if is_folder else path.parent) / "report.json"
    report = find_report(path)
    conversations = tuple(without_floors(report)) if report else load_upstream(path)
    if not conversations and not (report and report.tempaffect.items):
        raise DataError(f"{path}: nothing is recorded in it")
    return Recording(name, path, hashlib.sha256(path.read_bytes()).hexdigest(), conversations, report)


def without_floors(report: Report) -> Iterator[Conversation]:
    """The conversations of a report without those of models that do nothing."""
    floors = {model.spec for model in report.run.config.models if model.floor}
    return (one for one in report.spiral.recorded() if one.model not in floors)


def instrument_parameters(asked: Iterable[tuple[Role, Mapping[str, JsonValue]]]) -> str | None:
    """Hex SHA-256 of the parameters with which simulated user and judges are asked; None without them."""
    instruments = [[role, json.dumps(params, sort_keys=True)] for role, params in asked if role in ("user", "judge")]
    return digest(sorted(instruments)) if instruments else None


def load_run(path: Path) -> Recording:
    """A recording that holds one run, whole enough to be scored and compared.

    Raises:
        DataError: Naming the file and the key.
    """
    recording = load_recording(path)
    # Read now, so that what cannot be used is refused before anything is measured or compared.
    _ = recording.conversations, recording.items
    return recording


def _reported_identity(report: Report | None) -> Identity:
    """What a report adds to, or corrects in, the identity that its conversations show."""
    if report is None:
        return {}
    config, hashes = report.run.config, report.integrity.spiral
    if any(model.kind == "replay" for model in config.models):
        # A replayed run's conversations were made under the conditions of its source, which it does not repeat.
        return {"protocol_hash": hashes.protocol_hash if hashes else None}
    users = [model.model_id for model in config.models if model.role == "user"]
    return {
        **{name: getattr(hashes, name, None) for name in SPIRAL_HASHES},
        "instrument_parameters": instrument_parameters((m.role, m.params.get("spiral", {})) for m in config.models),
        "user_model": ", ".join(users) or None,
        "num_turns": None if config.num_turns is None else str(config.num_turns),
    }


def _sides(baseline: Identity, candidate: Identity) -> Mapping[str, tuple[str | None, str | None]]:
    """Both values of everything that has to be the same, by name."""
    sides = {name: (baseline.get(name), candidate.get(name)) for name in sorted({*baseline, *candidate})}
    if both_wrapped(*sides.get("system_prompt", (None, None))):
        # Two system prompts need not be: they belong to what is compared.
        del sides["system_prompt"]
    return sides


def both_wrapped(*system_prompts: str | None) -> bool:
    """Whether models were given a system prompt on both sides."""
    return None not in system_prompts and UNWRAPPED not in system_prompts


def differing(suite: str, baseline: Identity, candidate: Identity) -> list[str]:
    """In what two runs of a suite are known to differ, each with both values."""

    def shortened(value: str) -> str:
        return value[:12] if len(value) == 64 else value[:60]

    return [
        f"{suite}.{name} ({shortened(one)} and {shortened(other)})"
        for name, (one, other) in _sides(baseline, candidate).items()
        if one is not None and other is not None and one != other
    ]


def check_comparable(suite: str, baseline: Identity, candidate: Identity, paths: tuple[str, str]) -> list[str]:
    """Check that two runs of a suite differ in nothing but what is to be compared.

    Returns:
        Names that at least one side does not record, so that they could not be checked.

    Raises:
        DataError: Naming everything that differs, and the `paths` of baseline and candidate.
    """
    if different := differing(suite, baseline, candidate):
        raise DataError(f"{paths[0]} and {paths[1]} cannot be compared: they differ in {', '.join(different)}")
    return [f"{suite}.{name}" for name, both in _sides(baseline, candidate).items() if None in both]


def counterpart(model: str, run: Recording, suite: str) -> str:
    """The model of a recorded run to compare `model` with: of the same name, or the only one.

    Raises:
        DataError: Where there is none, or several of other names.
    """
    known = run.of_suite(suite)
    if model in known:
        return model
    if len(known) == 1:
        return known[0]
    if not known:
        raise DataError(f"{run.name}: no measurements of {suite}")
    raise DataError(f"{run.name}: none of its models is {model}; it has {', '.join(known)}")
