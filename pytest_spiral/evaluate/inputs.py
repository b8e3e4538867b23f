"""What an evaluation is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_spiral.compare.recording import Recording
from pytest_spiral.gates import Gate, Policy
from pytest_spiral.labelling.files import LabelFile
from pytest_spiral.report.model import Anchors, Run, Usage
from pytest_spiral.report.model.floor import Floor
from pytest_spiral.report.model.judges import CalibrationReport
from pytest_spiral.report.model.run import SpiralIntegrity
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.tempaffect.records import CardContext, Item, Mode
from pytest_spiral.tempaffect.self_check import SelfCheck
from pytest_spiral.tempaffect.suite import Suite

EVALUATED = "evaluated model"
"""Name of the role in `SpiralContext`."""
Actors = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class SpiralContext:
    """The circumstances of conversations, as far as their score depends on them.

    Attributes:
        protocol: How conversations are scored.
        seed: Of the bootstrap.
        judges: Names in the judgements; empty for whoever judged.
        foreign: Why the conversations are not those of the bundled suite, None where they are.
        actors: Role and name of every model.
        built_in: Those of them that are built in.
        small: Those of them that are too small for their role.
        calibrated: What their calibration found, by judge; empty where there is none.
        anchors: What the judges said about the anchors; None where there are none.
        moved: Judges who are not the same in all shards, one clause each.
        unknown_fields: Of evaluated models, request fields that may carry instructions.
        served_models: Names under which endpoints served each evaluated model.
    """

    protocol: Protocol
    seed: int
    judges: Sequence[str] = ()
    foreign: str | None = None
    actors: Actors = ()
    built_in: Actors = ()
    small: Actors = ()
    calibrated: Mapping[str, CalibrationReport] = field(default_factory=dict)
    anchors: Anchors | None = None
    moved: Sequence[str] = ()
    unknown_fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    served_models: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GivenLabels:
    """A label file as it was given. name: its path; hash: SHA-256 of its content."""

    name: str
    hash: str
    file: LabelFile

    @property
    def suite(self) -> SuiteName:
        """Of the replies that it labels."""
        return self.file.header.suite


@dataclass(frozen=True, slots=True)
class RunResults:
    """All results of a run, finished or cut short. What is missing is listed as missing, never left out.

    Attributes:
        run: The report's `run`; its seed is the one of all intervals.
        usage: The report's `usage`.
        gates: The gates to decide, by `policy`.
        baseline: The recorded run that relative gates compare with.
        suite: TempAffect's scenarios; None where the suite did not run, like `self_check`.
        items: TempAffect's items by model and prompting mode, each with its `contexts`.
        spiral: Circumstances of the conversations; None where the suite did not run, like `spiral_integrity`.
        conversations: By model.
        stand_ins: Conversations of models that do nothing, likewise.
        floor: What is known of the floor before these are scored; None where there is none.
        labels: Label files of its replies, at most one of a suite.
    """

    run: Run
    usage: Usage
    gates: Sequence[Gate] = ()
    policy: Policy = "bound"
    baseline: Recording | None = None
    suite: Suite | None = None
    self_check: SelfCheck | None = None
    items: Mapping[tuple[str, Mode], Sequence[Item]] = field(default_factory=dict)
    contexts: Mapping[tuple[str, Mode], CardContext] = field(default_factory=dict)
    spiral: SpiralContext | None = None
    spiral_integrity: SpiralIntegrity | None = None
    conversations: Mapping[str, Sequence[Conversation]] = field(default_factory=dict)
    stand_ins: Mapping[str, Sequence[Conversation]] = field(default_factory=dict)
    floor: Floor | None = None
    labels: Sequence[GivenLabels] = ()
