"""The lead: prepares a run before its first item and knows, afterwards, what was measured.

One per run, in the process the user started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_spiral.compare.pairing import RecordedRun
from pytest_spiral.compare.recorded import check_baseline
from pytest_spiral.errors import ChatError, ConfigError, StoreError
from pytest_spiral.evaluate.inputs import EVALUATED, JudgeCalibration, RunResults, SpiralContext
from pytest_spiral.gates import Gate
from pytest_spiral.models.budget import Budget, Ledger
from pytest_spiral.models.endpoint import Secret
from pytest_spiral.models.environment import EndpointSettings
from pytest_spiral.models.limiter import starting_pace
from pytest_spiral.models.local_file import locate
from pytest_spiral.models.local_server import LocalServer
from pytest_spiral.models.openai_compatible import OpenAICompatible, Probe, probe
from pytest_spiral.models.parameters import local_models
from pytest_spiral.report.model import RequestLimit, Run, RunConfig, Usage
from pytest_spiral.report.model.run import LimitChange, SpiralIntegrity
from pytest_spiral.run.content import Content
from pytest_spiral.run.costs import paid_prices, usage_by_role
from pytest_spiral.run.models import endpoint_of, pace_name
from pytest_spiral.run.plan import OPTION_OF, ModelPlan, RunPlan, category_of, conversation_units, twin_of, versions
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.store import RunStore, StoredChat
from pytest_spiral.tempaffect.records import CardContext, Item, Mode
from pytest_spiral.tempaffect.self_check import Preflight, baselines, preflight
from pytest_spiral.tempaffect.suite import CANARY, load_suite, lock
from pytest_spiral.tempaffect.unit import ScenarioUnit, schema_is_enforced

if TYPE_CHECKING:
    from pytest_spiral.run.calibrate import Calibrated

__all__ = ["Lead"]


@dataclass
class Lead:
    """A run from its preparation to its results. `items` and `conversations` fill up as results arrive."""

    plan: RunPlan
    content: Content
    environ: Mapping[str, str]
    gates: Sequence[Gate] = ()
    baseline: RecordedRun | None = None
    store: RunStore | None = None
    preflight: Preflight | None = None
    enforcement: dict[str, bool] = field(default_factory=dict)
    items: dict[ScenarioUnit, Item] = field(default_factory=dict)
    conversations: dict[ConversationUnit, Conversation] = field(default_factory=dict)
    calibrated: Calibrated | None = None
    _local: dict[str, EndpointSettings] = field(default_factory=dict)
    _baselines: dict[str, dict[str, float]] | None = None
    _budget: Budget | None = None
    _servers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def prepare(self) -> None:
        """Make the run folder and its store, prove the scorer, start local models: all that workers build on.

        Raises `UserError`; nothing has been sent by then.
        """
        self.plan = self._with_folder()
        self.store = RunStore.create_or_resume(self.plan.store_path, self.plan.identity(self.content), alone=True)
        if "tempaffect" in self.plan.suites:
            # On the bundled scenarios whatever is asked: the limits are theirs, and one scorer has one fingerprint.
            self.preflight = preflight(load_suite())
            if self.baseline is not None:
                check_baseline(self.baseline, self.gates, self.plan, self.content, self.preflight.fingerprint)
        self._keep_accounts()
        user = self.plan.user
        self.plan = self.plan.model_copy(
            update={
                "models": tuple(map(self._started, self.plan.models)),
                "user": self._started(user) if user else None,
                "judges": tuple(map(self._started, self.plan.judges)),
            }
        )

    def reach(self) -> None:
        """Reach every model, before anything is asked of it. The plan stays as it is.

        Raises `UserError`; nothing that is scored has been sent by then.
        """
        assert self.store is not None
        remote = [model for model in self.plan.everybody if model.endpoint is not None]
        if not self.store.has_replies():
            for model, found in zip(remote, asyncio.run(self._probe(remote)), strict=True):
                if isinstance(found, BaseException):
                    raise _unreachable(model, found) from None
        if "tempaffect" in self.plan.suites and "schema" in self.plan.settings.prompting:
            for model in self.plan.models:
                self._try_schema(model)
        if self.plan.settings.calibrate and self.plan.judges:
            from pytest_spiral.run.calibrate import calibrate

            self.calibrated = calibrate(self.plan, self.content, self.store, self.environ)
        # Whatever an earlier session of this run was throttled to.
        for model in remote:
            name = pace_name(model)
            self.store.set_pace(name, self.store.pace(name), starting_pace(self.plan.most_in_flight(model)))

    def _keep_accounts(self) -> None:
        """With --max-cost: check that it can be kept, and take over what earlier sessions have spent."""
        if self.plan.settings.max_cost is not None:
            prices = paid_prices(self.plan.everybody)
            ledger = Ledger(self.plan.store_path)
            ledger.begin(self.usage().cost_usd or 0.0)
            self._budget = Budget(ledger, self.plan.settings.max_cost, prices)

    def _with_folder(self) -> RunPlan:
        """The plan with its run folder made; a default name that another run has just taken gets a number."""
        plan = self.plan
        for number in itertools.count(2):
            folder = Path(plan.run_dir)
            try:
                folder.mkdir(parents=True, exist_ok=plan.settings.run_id is not None)
                break
            except FileExistsError:
                if not folder.is_dir():
                    raise StoreError(f"{folder}: a file is in the way; move it or give another --report-dir") from None
                run_id = f"{self.plan.run_id}-{number}"
                plan = plan.model_copy(update={"run_id": run_id, "run_dir": str(folder.parent / run_id)})
            except OSError as error:
                raise StoreError(
                    f"{folder}: the run folder cannot be made ({error.strerror}); give a writable --report-dir"
                ) from None
        return plan

    def _started(self, model: ModelPlan) -> ModelPlan:
        return model.model_copy(update={"endpoint": self._served(model.spec)}) if model.kind == "local" else model

    def _served(self, spec: str) -> EndpointSettings:
        """The server of a local model; one for all roles and workers."""
        if spec not in self._local:
            server = self._servers.enter_context(LocalServer(locate(spec)))
            self._local[spec] = EndpointSettings(base_url=server.base_url, key_variable=None)
        return self._local[spec]

    async def _probe(self, models: Sequence[ModelPlan]) -> list[Probe | BaseException]:
        """All at once: they may be far away. What failed stands in its place, so that the first one named is told."""
        probes = (probe(endpoint_of(model, self.environ), model.model_id) for model in models)
        return await asyncio.gather(*probes, return_exceptions=True)

    def _try_schema(self, model: ModelPlan) -> None:
        if model.kind == "dry":
            # A stand-in answers with what the schema asks for or, on purpose, does not.
            self.enforcement[model.spec] = True
        elif model.endpoint is not None and "tempaffect" in model.params:
            try:
                self.enforcement[model.spec] = asyncio.run(self._enforces_schema(model))
            except ChatError as error:
                raise _unreachable(model, error) from None

    async def _enforces_schema(self, model: ModelPlan) -> bool:
        assert self.store is not None
        chat = StoredChat(OpenAICompatible(endpoint_of(model, self.environ), budget=self._budget), self.store)
        try:
            return await schema_is_enforced(model.model_id, model.params["tempaffect"], chat)
        finally:
            await chat.aclose()

    def context(self, model: str, mode: Mode) -> CardContext:
        """What the card of a model and mode says about this run."""
        assert self.preflight is not None
        pinned = lock()
        plan = self.plan.model(model)
        return CardContext(
            suite_hash=self.content.suite.suite_hash,
            pinned_suite_hash=pinned.get("suite_hash"),
            scorer_fingerprint=self.preflight.fingerprint,
            pinned_scorer_fingerprint=pinned.get("scorer_fingerprint"),
            preflight_faults=self.preflight.faults,
            baselines=self.baselines(),
            expected={scenario.id: scenario.family.value for scenario in self.content.suite.scenarios},
            canary=CANARY,
            seed=self.plan.settings.seed,
            stand_in=plan.kind == "dry",
            served_models=self.served_models(plan),
            enforcement_verified=self.enforcement.get(model) if mode == "schema" else None,
            archived=True,
            partner_present=len(self.plan.settings.prompting) == 2,
            own=self.plan.settings.tempaffect_scenarios is not None,
        )

    def served_models(self, model: ModelPlan) -> tuple[str, ...]:
        """Names under which endpoints served an evaluated model, sorted."""
        assert self.store is not None
        return self.store.served_models(model.model_id)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Scores of models that do not think, computed once."""
        if self._baselines is None:
            self._baselines = baselines(self.content.suite)
        return self._baselines

    def result(self, unit: ScenarioUnit | ConversationUnit) -> Item | Conversation | None:
        """What has arrived for a unit so far."""
        return self.items.get(unit) if isinstance(unit, ScenarioUnit) else self.conversations.get(unit)

    def usage(self) -> Usage:
        """Requests, tokens and cost by role, from the store: the whole life of the run, interruptions included."""
        assert self.store is not None
        # Where nothing but the budget stands in the way a result arrives all the same, to say so.
        results: list[Item | Conversation] = [*self.items.values(), *self.conversations.values()]
        not_run = sum(result.status is Status.NOT_RUN for result in results)
        return usage_by_role(map(asdict, self.store.usage()), self.plan.everybody, self.plan.settings.max_cost, not_run)

    def _limits(self) -> list[RequestLimit]:
        """How many requests each endpoint was found to bear: every start and every halving, lowest and last limit."""
        assert self.store is not None
        return [
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
        ]

    def results(self, *, argv: Sequence[str], finished_at: datetime, complete: bool) -> RunResults:
        """All that the report needs, as it stands now."""
        settings = self.plan.settings
        spiral = "spiral" in self.plan.suites
        keys = [(model, mode) for model in self.plan.of_suite("tempaffect") for mode in settings.prompting]
        return RunResults(
            run=Run(
                id=self.plan.run_id,
                started_at=self.plan.started_at,
                finished_at=finished_at.astimezone(UTC).isoformat(timespec="seconds"),
                complete=complete,
                argv=tuple(_redacted(argument, self.environ) for argument in argv),
                config=self._config(),
                versions=versions(),
                seed=settings.seed,
                limits=tuple(self._limits()),
            ),
            usage=self.usage(),
            gates=self.gates,
            policy=settings.gate_policy,
            baseline=self.baseline,
            suite=self.content.suite if keys else None,
            preflight=self.preflight,
            contexts={key: self.context(*key) for key in keys},
            items={key: [item for unit, item in self.items.items() if (unit.model, unit.mode) == key] for key in keys},
            spiral=self._spiral_context() if spiral else None,
            spiral_integrity=SpiralIntegrity.model_validate(self.content.spiral.hashes()) if spiral else None,
            conversations={model: self._conversations(model) for model in self.plan.of_suite("spiral")},
        )

    def _config(self) -> RunConfig:
        return RunConfig.model_validate(
            {
                **self.plan.model_dump(mode="json", include={"settings"})["settings"],
                "model": [model.spec for model in self.plan.models],
                "models": [_public(model) for model in self.plan.everybody],
            }
        )

    def _conversations(self, model: str) -> list[Conversation]:
        """All conversations that were to be held, those not run as such."""
        return [
            self.conversations.get(unit)
            or Conversation(
                unit.prompt_id,
                category_of(unit, self.content),
                model,
                unit.index,
                Status.NOT_RUN,
                Reason(ReasonCode.NOT_STARTED),
                twin_of=twin_of(unit, self.content),
            )
            for unit in conversation_units(self.plan, self.content)
            if unit.model == model
        ]

    def _spiral_context(self) -> SpiralContext:
        actors = {
            EVALUATED: self.plan.models,
            "simulated user": (self.plan.user,) if self.plan.user else (),
            "judge": self.plan.judges,
        }
        judges = tuple(judge.spec if judge.kind == "dry" else judge.model_id for judge in self.plan.judges)
        return SpiralContext(
            protocol=self.content.spiral.protocol,
            seed=self.plan.settings.seed,
            stand_ins=[(role, m.spec) for role, models in actors.items() for m in models if m.kind == "dry"],
            small=[(role, m.spec) for role, models in actors.items() for m in models if m.model_id in local_models()],
            judges=judges,
            foreign=self._foreign(),
            actors=[(role, m.spec) for role, models in actors.items() for m in models],
            calibrated=JudgeCalibration(self.calibrated.together, self.calibrated.drift) if self.calibrated else None,
        )

    def _foreign(self) -> str | None:
        if self.content.recording is not None:
            return "replayed: prompts, seeker and, unless judged again, judges are those of the recording"
        return "prompts of one's own: comparable with nothing but themselves" if self.content.spiral.own else None

    def close(self) -> None:
        """Stop local servers and close the store."""
        self._servers.close()
        if self._budget is not None:
            self._budget.close()
        if self.store is not None:
            self.store.close()


def _unreachable(model: ModelPlan, error: BaseException) -> BaseException:
    """What to tell the user about a model; what is no `ChatError` is a fault of ours, and stays what it is."""
    if not isinstance(error, ChatError):
        return error
    advice = "; or leave schema mode out with --prompting raw" if error.code == ReasonCode.BAD_REQUEST else ""
    return ConfigError(f"{OPTION_OF[model.role]} {model.spec}: {error}{advice}")


def _redacted(argument: str, environ: Mapping[str, str]) -> str:
    """A command-line argument without anything that is or looks like a key."""
    for name, value in environ.items():
        if name.endswith("_API_KEY") and value.strip():
            argument = argument.replace(value.strip(), "[redacted]")
    return Secret().redact(argument)


def _public(model: ModelPlan) -> dict[str, Any]:
    found = model.model_dump(mode="json")
    if model.kind == "local":
        # A loopback port says nothing about the measurement and differs from run to run.
        found["endpoint"] = None
    return found
