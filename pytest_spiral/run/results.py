"""From the measurements of a run to the input of its evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pytest_spiral.chat import Role
from pytest_spiral.compare.recording import Recording
from pytest_spiral.errors import UserError
from pytest_spiral.evaluate.inputs import EVALUATED, RunResults, SpiralContext
from pytest_spiral.models.dry import PREFIX as DRY_PREFIX
from pytest_spiral.models.endpoint import host_of, is_loopback
from pytest_spiral.models.parameters import local_models, unknown_fields
from pytest_spiral.report.circumstances import text_hashes, versions
from pytest_spiral.report.model import Anchors, Report, RequestLimit, Run, RunConfig, Usage
from pytest_spiral.report.model.floor import Floor
from pytest_spiral.report.model.judges import CalibrationReport
from pytest_spiral.report.model.run import EarlierVerdict, LimitChange, ModelConfig, Preflight, SpiralIntegrity
from pytest_spiral.report.read import find_report
from pytest_spiral.run.baseline import Gates
from pytest_spiral.run.content import Content
from pytest_spiral.run.costs import usage_by_role
from pytest_spiral.run.floors import floor_key
from pytest_spiral.run.plan import ModelPlan, RunPlan, conversation_units
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.chunks import cut_replies
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.records import CardContext, Item, Mode
from pytest_spiral.tempaffect.self_check import SelfCheck, baselines
from pytest_spiral.tempaffect.suite import lock
from pytest_spiral.tempaffect.unit import ScenarioUnit

_THIS_MACHINE = "this machine"
_ACTORS: Mapping[Role, str] = {"evaluated": EVALUATED, "user": "simulated user", "judge": "judge"}


@dataclass
class Measurements:
    """What has been measured so far. self_check: of the scorer, None where TempAffect does not run. enforcement: by
    evaluated model. learned: about each model, before anything was measured. moved: judges who are not the same in all
    shards, one clause each. floor: measured in another run."""

    items: dict[ScenarioUnit, Item] = field(default_factory=dict)
    conversations: dict[ConversationUnit, Conversation] = field(default_factory=dict)
    self_check: SelfCheck | None = None
    enforcement: dict[str, bool] = field(default_factory=dict)
    learned: tuple[Preflight, ...] = ()
    calibrated: Mapping[str, CalibrationReport] = field(default_factory=dict)
    anchors: Anchors | None = None
    moved: tuple[str, ...] = ()
    floor: Floor | None = None

    def add(self, result: Item | Conversation) -> bool:
        """Keep the result of a unit, in place of an earlier one; whether there was none."""
        known = len(self.items) + len(self.conversations)
        if isinstance(result, Item):
            self.items[ScenarioUnit.of(result)] = result
        else:
            self.conversations[ConversationUnit(result.model, result.prompt_id, result.index)] = result
        return len(self.items) + len(self.conversations) > known

    def of(self, unit: ScenarioUnit | ConversationUnit) -> Item | Conversation | None:
        """The result of a unit, None as long as there is none."""
        return self.items.get(unit) if isinstance(unit, ScenarioUnit) else self.conversations.get(unit)


@dataclass(frozen=True)
class Traffic:
    """What a run and its endpoints exchanged. served_models: names that endpoints gave, by evaluated model."""

    served_models: Mapping[str, tuple[str, ...]]
    limits: tuple[RequestLimit, ...]
    usage: Usage


def stored_traffic(store: RunStore, plan: RunPlan, measured: Measurements) -> Traffic:
    """The traffic of a run over its whole life, interruptions included."""
    # Units that were given up before they were sent, as when the budget is used up.
    results: list[Item | Conversation] = [*measured.items.values(), *measured.conversations.values()]
    not_run = sum(result.status is Status.NOT_RUN for result in results)
    limits = []
    for endpoint, paces in store.paces().items():
        history = tuple(
            LimitChange(
                at=datetime.fromtimestamp(pace.at, UTC).isoformat(timespec="milliseconds"),
                most=pace.most,
                reason="429" if pace.reason == "429" else "start",
            )
            for pace in paces
            if pace.reason != "growth"
        )
        lowest = min(pace.most for pace in paces)
        limits.append(RequestLimit(endpoint=endpoint, lowest=lowest, last=paces[-1].most, history=history))
    return Traffic(
        {model.spec: store.served_models(model.model_id) for model in plan.models},
        tuple(limits),
        usage_by_role(store, plan, not_run),
    )


def run_results(
    plan: RunPlan,
    content: Content,
    measured: Measurements,
    traffic: Traffic,
    gates: Gates,
    *,
    argv: Sequence[str],
    finished_at: datetime,
    complete: bool,
) -> RunResults:
    """Everything that the evaluation of a run needs.

    Args:
        argv: The command line, keys redacted.
        complete: False after an interruption.
    """
    settings = plan.settings
    spiral = "spiral" in plan.suites
    keys = [(model, mode) for model in plan.of_suite("tempaffect") for mode in settings.prompting]
    strategies = baselines(content.suite) if keys else {}
    conversations = _conversations(plan, content, measured, plan.of_suite("spiral"))
    cut = sum(cut_replies(own, content.spiral.protocol) for own in conversations.values())
    earlier = _earlier(plan)
    # Without a calibration of its own, a session has that of an earlier one: the judges are the same.
    measured.calibrated = measured.calibrated or calibrations_of(earlier)
    decided = tuple(_decided_before(earlier, plan, gates)) if earlier else ()
    told = (_told(each, settings.gate_policy) for each in decided)
    return RunResults(
        run=Run(
            id=plan.run_id,
            started_at=plan.started_at,
            finished_at=finished_at.astimezone(UTC).isoformat(timespec="seconds"),
            complete=complete,
            argv=tuple(argv),
            config=_config(plan),
            versions=versions(),
            seed=settings.seed,
            limits=traffic.limits,
            served_models=traffic.served_models,
            enforcement_verified=measured.enforcement,
            preflight=measured.learned,
            notes=(*_notes(plan, traffic.limits, cut, gates.baseline), *told),
            decided_before=decided,
        ),
        usage=traffic.usage,
        gates=gates.gates,
        policy=settings.gate_policy,
        baseline=gates.baseline,
        labels=gates.labels,
        suite=content.suite if keys else None,
        self_check=measured.self_check,
        contexts={key: _card_context(plan, content, measured, traffic, strategies, key) for key in keys},
        items={key: [item for unit, item in measured.items.items() if (unit.model, unit.mode) == key] for key in keys},
        spiral=_spiral_context(plan, content, measured, traffic) if spiral else None,
        spiral_integrity=_spiral_integrity(plan, content) if spiral else None,
        conversations=conversations,
        stand_ins=_conversations(plan, content, measured, plan.floors),
        floor=_floor(plan, content, measured) if spiral else None,
    )


def _config(plan: RunPlan) -> RunConfig:
    models = [
        # The port of a local server says nothing about the measurement and differs from run to run.
        model.model_copy(
            update={"endpoint": model.endpoint.shown() if model.endpoint and model.kind != "local" else None}
        ).model_dump(mode="json")
        for model in plan.everybody
    ]
    config = plan.model_dump(mode="json", include={"settings"})["settings"]
    return RunConfig.model_validate({**config, "model": [model.spec for model in plan.models], "models": models})


def calibrations_of(report: Report | None) -> Mapping[str, CalibrationReport]:
    """What a report tells of its judges' calibration, by judge; empty for none."""
    return report.spiral.scores[0].judges.calibration or {} if report and report.spiral.scores else {}


def _floor(plan: RunPlan, content: Content, measured: Measurements) -> Floor | None:
    """The floor of this run before its conversations are scored, or that of another run, None for none."""
    recording = content.recording
    if recording is not None and recording.report is not None and not plan.judges:
        # Of the same judgements, with the anchors that are this report's as well.
        floor, hashes = recording.report.spiral.floor, recording.report.integrity.spiral
        same = hashes is not None and hashes.protocol_hash == content.spiral.protocol.hash
        update = {"reused": True, "anchors": recording.report.spiral.anchors}
        return floor.model_copy(update=update) if floor and same and not floor.refused else None
    if plan.floors:
        return Floor(key=floor_key(plan, content), run=plan.run_id, measured_at="", stand_ins={}, value=None)
    return measured.floor


def _earlier(plan: RunPlan) -> Report | None:
    """What an earlier session of this run has reported."""
    path = Path(plan.run_dir) / "report.json"
    # A damaged one is about to be replaced.
    with suppress(UserError):
        return find_report(path) if path.is_file() else None
    return None


def _decided_before(earlier: Report, plan: RunPlan, gates: Gates) -> Iterator[EarlierVerdict]:
    """Verdicts of this run by other gates: whoever chooses gates when the numbers are known, chooses the verdict."""
    yield from dict.fromkeys(earlier.run.decided_before)
    decided = tuple(dict.fromkeys(row.expr for row in earlier.gates))
    policy = earlier.run.config.gate_policy
    kept = policy == plan.settings.gate_policy and set(decided) <= {gate.expr for gate in gates.gates}
    if earlier.verdict in ("fail", "inconclusive") and not kept:
        yield EarlierVerdict(verdict=earlier.verdict, gates=decided, policy=policy)


def _told(earlier: EarlierVerdict, policy: str) -> str:
    estimates = "point estimates" if earlier.policy == "point" else "bounds"
    how = "by other gates" if earlier.policy == policy else f"on {estimates}"
    return f"decided before {how}: {earlier.verdict.upper()} by {'; '.join(earlier.gates)}"


def _notes(
    plan: RunPlan, limits: Sequence[RequestLimit], cut: int = 0, baseline: Recording | None = None
) -> Iterator[str]:
    """What is to be known of the run as a whole. cut: replies of which judges do not see the end."""
    if cut:
        yield f"judges did not see the end of {cut} replies, which are too long; gates take them at their worst"
    if baseline is not None and baseline.report is not None and baseline.report.verdict in ("fail", "inconclusive"):
        yield f"the baseline {plan.settings.baseline} did not pass its own gates: {baseline.report.verdict.upper()}"
    here = {_place(model.endpoint.base_url) for model in plan.everybody if model.endpoint is not None}
    here |= {_THIS_MACHINE for model in plan.everybody if model.kind == "local"}
    # Those of earlier sessions and of other shards. After an address comes the name of a model that has its own limit.
    elsewhere = {_place(limit.endpoint.partition(" ")[0]) for limit in limits} - here
    unnamed = {
        f"{model.spec} ({model.endpoint_name})"
        for model in plan.everybody
        if model.endpoint_name and model.endpoint is not None and model.endpoint.alias is None
    }
    if elsewhere and unnamed:
        yield (
            f"sessions or shards of this run used different hosts: {', '.join(sorted(here | elsewhere))}. Whether they "
            f"serve the same models is not known; if so, name the endpoint of {', '.join(sorted(unnamed))} in "
            'spiral.toml, such as endpoint = "my-gateway"'
        )


def _place(url: str) -> str:
    return _THIS_MACHINE if is_loopback(url) else host_of(url)


def _card_context(
    plan: RunPlan,
    content: Content,
    measured: Measurements,
    traffic: Traffic,
    strategies: Mapping[str, Mapping[str, float]],
    key: tuple[str, Mode],
) -> CardContext:
    """What the card of a model and mode says about the run."""
    assert measured.self_check is not None
    pinned = lock()
    name, mode = key
    return CardContext(
        suite_hash=content.suite.suite_hash,
        pinned_suite_hash=pinned.suite_hash,
        scorer_fingerprint=measured.self_check.fingerprint,
        pinned_scorer_fingerprint=pinned.scorer_fingerprint,
        preflight_faults=measured.self_check.faults,
        baselines=strategies,
        scenarios=content.suite.by_id,
        seed=plan.settings.seed,
        built_in=name.startswith(DRY_PREFIX),
        served_models=traffic.served_models[name],
        enforcement_verified=measured.enforcement.get(name) if mode == "schema" else None,
        partner_present=len(plan.settings.prompting) == 2,
        own=plan.settings.tempaffect_scenarios is not None,
        system_prompt_hash=content.system_hash,
        unknown_fields=_unknown_fields(plan, content, "tempaffect").get(name, ()),
    )


def _unknown_fields(plan: RunPlan, content: Content, suite: SuiteName) -> Mapping[str, tuple[str, ...]]:
    """Of evaluated models, fields of their requests that may carry instructions; of a replay, the recorded ones."""
    recorded = content.recording.report if content.recording else None
    asked: Iterable[ModelPlan | ModelConfig] = recorded.run.config.models if recorded else plan.models
    return {
        model.spec: fields
        for model in asked
        if model.role == "evaluated" and model.kind == "remote"
        if (fields := unknown_fields(model.params.get(suite, {})))
    }


def _conversations(
    plan: RunPlan, content: Content, measured: Measurements, models: Sequence[str]
) -> dict[str, list[Conversation]]:
    """All conversations of these models that belong to the run, including those that were never started."""
    conversations: dict[str, list[Conversation]] = {model: [] for model in models}
    for unit in conversation_units(plan, content) if models else ():
        if unit.model in conversations:
            conversations[unit.model].append(measured.conversations.get(unit) or content.unheld(unit))
    return conversations


def _spiral_integrity(plan: RunPlan, content: Content) -> SpiralIntegrity:
    """Hashes of what the conversations were made and judged with; those of a recording are the recorded ones."""
    integrity = SpiralIntegrity.model_validate({**content.spiral.hashes, "files": content.spiral.setting.files})
    recording = content.recording
    if recording is None:
        return integrity
    if recording.report is not None and (recorded := recording.report.integrity.spiral):
        made = ["prompts_hash", "twins_hash", "persona_hash", "rubric_hash", "files"]
        found = {name: getattr(recorded, name) for name in made}
    else:
        found = {**text_hashes(recording.all_conversations), "twins_hash": None, "rubric_hash": None, "files": {}}
    own = {"rubric_hash", "files"} if plan.settings.redo_judging else set()
    return integrity.model_copy(update={name: value for name, value in found.items() if name not in own})


def _spiral_context(plan: RunPlan, content: Content, measured: Measurements, traffic: Traffic) -> SpiralContext:
    actors = [(_ACTORS[model.role], model) for model in plan.everybody if model.role in _ACTORS]
    # Why the conversations cannot be compared with those of the bundled suite.
    foreign, anchors, calibrated = content.spiral.foreign, measured.anchors, measured.calibrated
    if content.recording is not None:
        if not plan.judges and content.recording.report is not None:
            # Who judged the conversations judged these, and is as reliable as was found.
            anchors = content.recording.report.spiral.anchors
            calibrated = calibrations_of(content.recording.report)
        foreign = "replayed: prompts, simulated user and, unless judged again, judges are those of the recording"
    return SpiralContext(
        protocol=content.spiral.protocol,
        seed=plan.settings.seed,
        built_in=[(role, model.spec) for role, model in actors if model.kind == "dry"],
        small=[(role, model.spec) for role, model in actors if model.model_id in local_models()],
        judges=tuple(judge.reported_name for judge in plan.judges),
        foreign=foreign,
        actors=[(role, model.spec) for role, model in actors],
        calibrated=calibrated,
        anchors=anchors,
        moved=measured.moved,
        unknown_fields=_unknown_fields(plan, content, "spiral"),
        served_models=traffic.served_models,
    )
