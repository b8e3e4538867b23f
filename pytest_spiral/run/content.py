"""The content of a run: what its suites ask, loaded once per process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_spiral.errors import ConfigError
from pytest_spiral.hashing import digest
from pytest_spiral.resources import read_text
from pytest_spiral.settings import DEFAULT_PROTOCOL, Settings
from pytest_spiral.spiral.clone import check_version, read_clone
from pytest_spiral.spiral.content import (
    OPENINGS_FILE,
    PREFIXES_FILE,
    OpeningPrompt,
    load_openings,
    load_persona,
    load_prefixes,
    load_rubric,
    load_twins,
    openings_hash,
    short_twin_turns,
)
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.evidence import load_quote_limits
from pytest_spiral.spiral.protocol import V1_2, Protocol, load_protocol
from pytest_spiral.spiral.public_judge import public_setting
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.setting import Setting, own_setting
from pytest_spiral.spiral.simulator import load_limits
from pytest_spiral.spiral.suspicion import load_signs
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.tempaffect.suite import Suite, load_suite

if TYPE_CHECKING:
    from pytest_spiral.compare.recording import Recording
    from pytest_spiral.spiral.labels import LabelledSet


@dataclass(frozen=True)
class SpiralContent:
    """What Spiral-Bench asks.

    foreign: why the openings are not the bundled ones, None where they are. prompt_file: the name of their file. twins:
    harmless twins of openings, where conversations are held on them as well. twin_turns: replies of the evaluated model
    in each of those.
    """

    openings: tuple[OpeningPrompt, ...]
    foreign: str | None
    prompt_file: str
    setting: Setting
    protocol: Protocol
    system_hash: str | None
    twins: tuple[OpeningPrompt, ...] = ()
    twin_turns: int = 0

    @property
    def held(self) -> tuple[OpeningPrompt, ...]:
        """All openings of conversations."""
        return (*self.openings, *self.twins)

    @cached_property
    def by_id(self) -> Mapping[str, OpeningPrompt]:
        """Openings by prompt id."""
        return {opening.prompt_id: opening for opening in self.held}

    @cached_property
    def hashes(self) -> Mapping[str, str | None]:
        """Hashes of everything that must be the same for two scores to be comparable."""
        # Loads much of the report, which workers have no use for.
        from pytest_spiral.spiral.judge_health import load_judge_limits
        from pytest_spiral.spiral.over_correction import load_over_correction

        # The limits by which simulations are given up, replies suspected, judges refused, quotes located, twins read.
        limits = (load_limits(), load_signs(), load_judge_limits(), load_quote_limits(), load_over_correction())
        instruments = [part.model_dump(mode="json") for part in limits]
        return {
            "protocol": self.protocol.name,
            "protocol_hash": self.protocol.hash,
            "prompts_hash": openings_hash(self.openings),
            **({"twins_hash": openings_hash(self.twins)} if self.twins else {}),
            "persona_hash": self.setting.persona_hash,
            "rubric_hash": self.setting.rubric_hash,
            "instruments_hash": digest(instruments),
            "system_prompt_hash": self.system_hash,
        }


@dataclass(frozen=True)
class Content:
    """Both suites for a run started in `folder`, each loaded when first asked for."""

    settings: Settings
    folder: Path

    @cached_property
    def suite(self) -> Suite:
        """TempAffect's scenarios: the bundled ones, or those of a file of the user's. Raises `DataError`."""
        own = self.settings.tempaffect_scenarios
        return load_suite([self.folder / own] if own else None)

    def calibration_labels(self) -> LabelledSet:
        """What judges are calibrated on: turns that people labelled, where the run is given any, else the shipped ones.

        Raises `DataError` for labels that cannot be read or do not fit the protocol.
        """
        # Only a calibration loads what it needs.
        from pytest_spiral.labelling.files import read_labels
        from pytest_spiral.spiral.labels import load_labels

        headers = {path: read_labels(path).header for path in (self.folder / name for name in self.settings.labels)}
        people = (path for path, header in headers.items() if (header.suite, header.whose) == ("spiral", "people"))
        return load_labels(next(people, None), self.spiral.protocol.behaviours)

    @cached_property
    def recording(self) -> Recording | None:
        """What is replayed; None for a run that calls the evaluated model. Raises `DataError`."""
        if not self.settings.replay:
            return None
        from pytest_spiral.compare.recording import load_recording

        return load_recording(self.folder / self.settings.replay)

    @cached_property
    def system(self) -> str | None:
        """The user's system prompt for the evaluated model. Raises `DataError` or `ConfigError`."""
        if self.settings.system_prompt is None:
            return None
        path = self.folder / self.settings.system_prompt
        if not (system := read_text(path).strip()):
            raise ConfigError(f"{path}: the system prompt is empty; write one, or leave --system-prompt out")
        return system

    @cached_property
    def system_hash(self) -> str | None:
        """Hash of the system prompt that the evaluated model was given; of a recording, the recorded one."""
        if self.recording is not None:
            integrity = self.recording.report.integrity if self.recording.report else None
            hashes = integrity and (integrity.tempaffect or integrity.spiral)
            return hashes.system_prompt_hash if hashes else None
        return None if self.system is None else digest(self.system)

    @cached_property
    def spiral(self) -> SpiralContent:
        """Spiral-Bench's openings, persona, rubric and protocol. Raises `DataError` or `ConfigError`."""
        if self.recording is not None and not self.settings.protocol:
            protocol = self.recording.protocol()
        else:
            protocol = load_protocol(self.settings.protocol)
        if self.settings.spiral_upstream:
            return self._public(self.folder / self.settings.spiral_upstream, protocol)
        rubric = protocol.rubric
        if rubric is None and self.settings.replay and not self.settings.redo_judging:
            # Nobody is told anything.
            rubric = load_protocol(DEFAULT_PROTOCOL).rubric
        if rubric is None:
            raise ConfigError(
                f"--protocol {protocol.name}: what its judges are told belongs to the public repository and is not "
                "part of this package; name a clone of it with --spiral-upstream DIR, or score a result file: "
                f"pytest-spiral rescore FILE --protocol {protocol.name}"
            )
        own, turns = self.settings.spiral_prompts, self.settings.num_turns
        load, name = (load_prefixes, PREFIXES_FILE) if self.settings.prefixes else (load_openings, OPENINGS_FILE)
        return SpiralContent(
            openings=load(self.folder / own if own else None),
            foreign="custom prompts: not comparable with other runs" if own else None,
            prompt_file=Path(own).name if own else name,
            setting=own_setting(load_persona(), load_rubric(rubric)),
            protocol=protocol,
            system_hash=self.system_hash,
            twins=load_twins() if self.settings.benign_twins != "off" else (),
            twin_turns=min(turns, short_twin_turns()) if self.settings.benign_twins == "short" else turns,
        )

    def _public(self, folder: Path, protocol: Protocol) -> SpiralContent:
        if protocol.name not in V1_2:
            raise ConfigError(f"--protocol {protocol.name}: with --spiral-upstream, choose one of {', '.join(V1_2)}")
        clone = read_clone(folder)
        check_version(clone, protocol, folder)
        return SpiralContent(
            openings=clone.openings,
            foreign="content of a clone of the public repository: comparable with runs on the same files only",
            prompt_file=clone.prompt_file,
            setting=public_setting(clone),
            protocol=protocol,
            system_hash=None,
        )

    def unheld(self, unit: ConversationUnit) -> Conversation:
        """A conversation that was never started, with what its prompt says of it."""
        prompt = self.recording.conversations[unit] if self.recording else self.spiral.by_id[unit.prompt_id]
        names = (unit.prompt_id, prompt.category, unit.model, unit.index)
        reason = Reason(ReasonCode.NOT_STARTED)
        twin_of = prompt.twin_of or ""
        return Conversation(*names, Status.NOT_RUN, reason, twin_of=twin_of, beginning=prompt.beginning)
