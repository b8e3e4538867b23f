"""From the measurements of a run to the input of its evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from pytest_spiral.compare.recording import RecordedRun
from pytest_spiral.evaluate.inputs import EVALUATED, JudgeCalibration, RunResults, SpiralContext
from pytest_spiral.gates import Gate
from pytest_spiral.models.parameters import local_models
from pytest_spiral.report.model import RequestLimit, Run, RunConfig, Usage
from pytest_spiral.report.model.run import LimitChange, SpiralIntegrity
from pytest_spiral.run.content import Content
from pytest_spiral.run.costs import usage_by_role
from pytest_spiral.run.plan import ModelPlan, RunPlan, versions
from pytest_spiral.run.units import category_of, conversation_units, twin_of
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.records import CardContext, Item, Mode
from pytest_spiral.tempaffect.self_check import Preflight, baselines
from pytest_spiral.tempaffect.suite import CANARY, lock
from pytest_spiral.tempaffect.unit import ScenarioUnit

if TYPE_CHECKING:
    from pytest_spiral.run.calibrate import JudgeCalibrations

__all__ = ["Ending", "Gates", "Measurements", "StoreTraffic", "Traffic", "run_results"]


@dataclass
class Measurements:
    """What has arrived so far.

    Attributes:
        items: TempAffect items by unit.
        conversations: Conversations by unit.
        preflight: The self check of the TempAffect scorer, None where the suite does not run.
        enforcement: Whether endpoints enforce JSON schemas, by evaluated model.
        calibrated: The calibration made in this run.
    """

    items: dict[ScenarioUnit, Item] = field(default_factory=dict)
    conversations: dict[ConversationUnit, Conversation] = field(default_factory=dict)
    preflight: Preflight | None = None
    enforcement: dict[str, bool] = field(default_factory=dict)
    calibrated: JudgeCalibrations | None = None

    def of(self, unit: ScenarioUnit | ConversationUnit) -> Item | Conversation | None:
        """What has arrived for a unit."""
        return self.items.get(unit) if isinstance(unit, ScenarioUnit) else self.conversations.get(unit)

    @property
    def not_run(self) -> int:
        """Units that were given up before they were sent, as when the budget is used up."""
        statuses = [each.status for each in self.items.values()]
        statuses += [each.status for each in self.conversations.values()]
        return statuses.count(Status.NOT_RUN)


class Traffic(Protocol):
    """What went on between a run and its endpoints."""

    def served_models(self, model: ModelPlan) -> tuple[str, ...]:
        """Names under which endpoints served an evaluated model, sorted."""

    def limits(self) -> tuple[RequestLimit, ...]:
        """How many requests each endpoint was found to bear."""

    def usage(self, not_run: int) -> Usage:
        """Requests, tokens and cost by role."""


@dataclass(frozen=True)
class StoreTraffic:
    """The traffic of a run as its store has it: over its whole life, interruptions included."""

    store: RunStore
    plan: RunPlan

    def served_models(self, model: ModelPlan) -> tuple[str, ...]:
        """Names under which endpoints served an evaluated model, sorted."""
        return self.store.served_models(model.model_id)

    def usage(self, not_run: int) -> Usage:
        """Requests, tokens and cost by role."""
        return usage_by_role(map(asdict, self.store.usage()), self.plan.everybody, self.plan.settings.max_cost, not_run)

    def limits(self) -> tuple[RequestLimit, ...]:
        """How many requests each endpoint was found to bear: every start and halving, lowest and last limit."""
        return tuple(
            RequestLimit(
                endpoint=endpoint,
                lowest=min(pace.most for pace in paces),
                last=paces[-1].most,
                history=tuple(
                    LimitChange(
                        at=datetime.fromtimestamp(pace.at, UTC).isoformat(timespec="milliseconds"),
                        most=pace.most,
                        reason="429" if pace.reason == "429" else "start",
                    )
                    for pace in paces
                    if pace.reason != "growth"
                ),
            )
            for endpoint, paces in self.store.paces().items()
        )


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        argv: The command line, keys redacted.
        complete: False after an interruption.
    """

    argv: Sequence[str]
    finished_at: datetime
    complete: bool


@dataclass(frozen=True)
class Gates:
    """The gates to decide, and the recorded run that relative ones compare with."""

    gates: Sequence[Gate]
    baseline: RecordedRun | None


def run_results(
    plan: RunPlan,
    content: Content,
    measured: Measurements,
    traffic: Traffic,
    ending: Ending,
    gates: Gates,
) -> RunResults:
    """Everything that the evaluation of a run needs, finished or not."""
    settings = plan.settings
    spiral = "spiral" in plan.suites
    keys = [(model, mode) for model in plan.of_suite("tempaffect") for mode in settings.prompting]
    floors = baselines(content.suite) if keys else {}
    return RunResults(
        run=_run_record(plan, traffic, ending),
        usage=traffic.usage(measured.not_run),
        gates=gates.gates,
        policy=settings.gate_policy,
        baseline=gates.baseline,
        suite=content.suite if keys else None,
        preflight=measured.preflight,
        contexts={key: _card_context(plan, content, measured, traffic, floors, key) for key in keys},
        items={key: [item for unit, item in measured.items.items() if (unit.model, unit.mode) == key] for key in keys},
        spiral=_spiral_context(plan, content, measured) if spiral else None,
        spiral_integrity=SpiralIntegrity.model_validate(content.spiral.hashes()) if spiral else None,
        conversations={model: _conversations(plan, content, measured, model) for model in plan.of_suite("spiral")},
    )


def _run_record(plan: RunPlan, traffic: Traffic, ending: Ending) -> Run:
    return Run(
        id=plan.run_id,
        started_at=plan.started_at,
        finished_at=ending.finished_at.astimezone(UTC).isoformat(timespec="seconds"),
        complete=ending.complete,
        argv=tuple(ending.argv),
        config=RunConfig.model_validate(
            {
                **plan.model_dump(mode="json", include={"settings"})["settings"],
                "model": [model.spec for model in plan.models],
                "models": [_public(model) for model in plan.everybody],
            }
        ),
        versions=versions(),
        seed=plan.settings.seed,
        limits=traffic.limits(),
    )


def _public(model: ModelPlan) -> dict[str, Any]:
    # The port of a local server says nothing about the measurement and differs from run to run.
    return {**model.model_dump(mode="json"), **({"endpoint": None} if model.kind == "local" else {})}


def _card_context(
    plan: RunPlan,
    content: Content,
    measured: Measurements,
    traffic: Traffic,
    floors: Mapping[str, Mapping[str, float]],
    key: tuple[str, Mode],
) -> CardContext:
    """What the card of a model and mode says about the run."""
    assert measured.preflight is not None
    pinned = lock()
    name, mode = key
    model = plan.model(name)
    return CardContext(
        suite_hash=content.suite.suite_hash,
        pinned_suite_hash=pinned.suite_hash,
        scorer_fingerprint=measured.preflight.fingerprint,
        pinned_scorer_fingerprint=pinned.scorer_fingerprint,
        preflight_faults=measured.preflight.faults,
        baselines=floors,
        expected={scenario.id: scenario.family.value for scenario in content.suite.scenarios},
        canary=CANARY,
        seed=plan.settings.seed,
        stand_in=model.kind == "dry",
        served_models=traffic.served_models(model),
        enforcement_verified=measured.enforcement.get(name) if mode == "schema" else None,
        archived=True,
        partner_present=len(plan.settings.prompting) == 2,
        own=plan.settings.tempaffect_scenarios is not None,
    )


def _conversations(plan: RunPlan, content: Content, measured: Measurements, model: str) -> list[Conversation]:
    """All conversations of a model that belong to the run, those that were not held as such."""
    return [
        measured.conversations.get(unit)
        or Conversation(
            unit.prompt_id,
            category_of(unit, content),
            model,
            unit.index,
            Status.NOT_RUN,
            Reason(ReasonCode.NOT_STARTED),
            twin_of=twin_of(unit, content),
        )
        for unit in conversation_units(plan, content)
        if unit.model == model
    ]


def _spiral_context(plan: RunPlan, content: Content, measured: Measurements) -> SpiralContext:
    actors = [(EVALUATED, model) for model in plan.models]
    actors += [("simulated user", plan.user)] if plan.user else []
    actors += [("judge", judge) for judge in plan.judges]
    calibrated = measured.calibrated
    return SpiralContext(
        protocol=content.spiral.protocol,
        seed=plan.settings.seed,
        stand_ins=[(role, model.spec) for role, model in actors if model.kind == "dry"],
        small=[(role, model.spec) for role, model in actors if model.model_id in local_models()],
        judges=tuple(judge.spec if judge.kind == "dry" else judge.model_id for judge in plan.judges),
        foreign=_foreign(content),
        actors=[(role, model.spec) for role, model in actors],
        calibrated=JudgeCalibration(calibrated.together, calibrated.drift) if calibrated else None,
    )


def _foreign(content: Content) -> str | None:
    """Why the conversations cannot be compared with those of the bundled suite, None where they can."""
    if content.recording is not None:
        return "replayed: prompts, simulated user and, unless judged again, judges are those of the recording"
    return "custom prompts: not comparable with other runs" if content.spiral.own else None
