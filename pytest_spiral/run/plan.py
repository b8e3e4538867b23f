"""The plan of a run: everything that is decided before the first item, as plain data that travels to every worker.

Its units, in collection order, are every scenario to be asked and every conversation to be held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from pytest_spiral.chat import Role
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.dry import FLOORS, known_suites
from pytest_spiral.models.dry import PREFIX as DRY_PREFIX
from pytest_spiral.models.endpoint import OPTION_OF, host_of
from pytest_spiral.models.environment import EndpointSettings, endpoint_settings, provider_name
from pytest_spiral.models.local_file import is_local, locate
from pytest_spiral.models.parameters import Freedom, Price, resolve_parameters
from pytest_spiral.models.prices import list_price
from pytest_spiral.models.providers import GENERIC
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.run.content import Content
from pytest_spiral.settings import OPTIONS, Settings, SuiteName
from pytest_spiral.spiral.content import short_twin_turns
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import build_messages
from pytest_spiral.tempaffect.unit import ScenarioUnit

if TYPE_CHECKING:
    from pytest_spiral.compare.recording import Recording

T = TypeVar("T")
Unit = ScenarioUnit | ConversationUnit
CUSTOM = "custom"
"""The name of endpoints of no known provider that have no name of their own."""


class ModelPlan(BaseModel):
    """How one model is reached and asked in one role; `model_id` and the `params` of each suite go into its requests.

    kind: "dry" and "local" models run on this machine; of a "replay" there are only recorded outputs.
    longest_string: characters of a string of enforced JSON, where a model would not stop by itself; None for no bound.
    patience: seconds to wait for an endpoint that answers nothing. timeouts: deadlines in seconds, where not the usual.
    freedom: what may be changed about the parameters of each suite. negotiated: what is sent instead of `params`, and
    schemaless: whether JSON schemas are left out of requests, as the endpoint was found to need it.
    reasoning_tokens: of a typical reply, for plans. floor: an evaluated model that does nothing, and no candidate.
    endpoint: None for dry models, and for local ones until their server runs. endpoint_name: stands for it in the run's
    identity; "" where nothing is sent to another machine.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    role: Role = "evaluated"
    spec: str
    kind: Literal["dry", "local", "remote", "replay"]
    model_id: str
    params: dict[SuiteName, dict[str, Any]]
    concurrency: int | None = None
    longest_string: int | None = None
    patience: float = 600.0
    timeouts: dict[str, float] = {}
    price: Price | None = None
    reasoning_tokens: int = 0
    floor: bool = False
    endpoint: EndpointSettings | None = None
    endpoint_name: str = ""
    freedom: dict[SuiteName, Freedom] = {}
    negotiated: dict[SuiteName, dict[str, Any]] = {}
    schemaless: bool = False

    def sent(self, suite: SuiteName) -> dict[str, Any]:
        """The request parameters as they are sent."""
        return self.negotiated[suite] if suite in self.negotiated else self.params[suite]

    @property
    def reported_name(self) -> str:
        """The name under which reports list what it has answered."""
        return self.spec if self.kind == "dry" else self.model_id

    def identity(self) -> dict[str, Any]:
        """Without the address: the same model behind another host or port is still the same measurement.

        What was negotiated with an endpoint follows from the parameters and the endpoint: it is in the store.
        """
        named = {"endpoint": self.endpoint_name} if self.endpoint_name else {}
        return self.model_dump(include={"spec", "model_id", "params"}) | named


class RunPlan(BaseModel):
    """One run. The same in the controller and in every worker, but for `rank`: its number among `workers`, from 0.

    everybody: the models of all roles, those that do nothing among the evaluated ones.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    settings: Settings
    run_id: str
    run_dir: str
    started_at: str
    everybody: tuple[ModelPlan, ...]
    workers: int = 1
    rank: int = 0

    @property
    def models(self) -> tuple[ModelPlan, ...]:
        """The evaluated models; none in a session in which only judges are called."""
        return tuple(model for model in self.everybody if model.role == "evaluated" and not model.floor)

    @property
    def floors(self) -> tuple[str, ...]:
        """Specs of the models that do nothing, with which conversations are held as well."""
        return tuple(model.spec for model in self.everybody if model.floor)

    @property
    def user(self) -> ModelPlan | None:
        return next((model for model in self.everybody if model.role == "user"), None)

    @property
    def judges(self) -> tuple[ModelPlan, ...]:
        return tuple(model for model in self.everybody if model.role == "judge")

    @property
    def reply_judges(self) -> tuple[ModelPlan, ...]:
        return tuple(model for model in self.everybody if model.role == "reply_judge")

    @property
    def store_path(self) -> Path:
        return Path(self.run_dir) / "run.sqlite"

    def model(self, spec: str) -> ModelPlan:
        return next(model for model in self.everybody if model.role == "evaluated" and model.spec == spec)

    def most_in_flight(self, model: ModelPlan) -> int:
        """Requests to a model that may be in flight at once, over all processes together."""
        return min(self.settings.concurrency, model.concurrency or self.settings.concurrency)

    def active_workers(self, workers: int) -> int:
        """How many of so many workers run items: each must be allowed one request in flight at least."""
        asked = (model for model in self.everybody if model.kind in ("remote", "local"))
        return min([workers, *(self.most_in_flight(model) for model in asked)])

    def of_suite(self, suite: SuiteName) -> tuple[str, ...]:
        """Specs of the evaluated models that take part in a suite."""
        return tuple(model.spec for model in self.models if suite in model.params)

    @property
    def suites(self) -> tuple[SuiteName, ...]:
        """The suites in which at least one model takes part."""
        return tuple(suite for suite in self.settings.suites if self.of_suite(suite))

    @property
    def suite_names(self) -> tuple[str, ...]:
        """The same as the user calls them."""
        names = zip(self.settings.suite, self.settings.suites, strict=True)
        return tuple(name for name, suite in names if self.of_suite(suite))

    def left_out(self) -> list[str]:
        """One sentence per built-in model that does not know a suite that was asked for."""
        return [
            f"{model.spec} does not support {suite}; skipping it"
            for model in self.models
            for suite in self.settings.suites
            if suite not in model.params
        ]

    def identity(self, content: Content) -> dict[str, Any]:
        """What decides the measurements: every option that affects them, and the data files. A run is resumed only with
        the same identity."""
        # What an option stands for, where that is not its value: a file may move, and a model has parameters.
        stands_for: dict[str, Any] = {
            "model": [model.identity() for model in self.models],
            "suite": self.suites,
            "system_prompt": content.system_hash,
            "replay": content.recording.hash if content.recording is not None else None,
        }
        data: dict[str, str | None] = {}
        if "tempaffect" in self.suites:
            stands_for["tempaffect_scenarios"] = content.suite.suite_hash
            # Runs from before there were any can be resumed: what is not there is the same as null.
            stands_for["reply_judge"] = None
            if self.reply_judges:
                # Workers without them load nothing of labels and reports.
                from pytest_spiral.labelling.reply_judge import rating_hash

                stands_for["reply_judge"] = [*(judge.identity() for judge in self.reply_judges), rating_hash()]
        if "spiral" in self.suites:
            hashes = content.spiral.hashes
            data = {name: hashes[name] for name in ("persona_hash", "rubric_hash", "instruments_hash")}
            stands_for |= {
                "user_model": self.user.identity() if self.user else None,
                "judge_model": [judge.identity() for judge in self.judges],
                "protocol": hashes["protocol_hash"],
                "spiral_prompts": hashes["prompts_hash"],
                "spiral_upstream": dict(content.spiral.setting.files),
                # The short form is shorter still where --num-turns says so, which is an entry of its own.
                "benign_twins": [hashes.get("twins_hash"), self.settings.benign_twins, short_twin_turns()],
            }
        options = {
            option.key: stands_for.get(option.key, getattr(self.settings, option.key))
            for option in OPTIONS
            if option.affects == "measurement" and (option.suite is None or option.suite in self.suites)
        }
        return options | data


def make_plan(settings: Settings, content: Content, environ: Mapping[str, str], started_at: datetime) -> RunPlan:
    """Resolve every model. Raises `ConfigError` for whatever can be known to be wrong before anything is sent.

    Without an evaluated model or a recording it is the plan of a calibration, in which only judges are called.
    """
    folder = content.folder
    spiral_toml = folder / "spiral.toml"
    user_toml = spiral_toml if spiral_toml.is_file() else None
    unreachable: list[str] = []
    resolve = partial(_resolve, environ=environ, user_toml=user_toml, settings=settings, unreachable=unreachable)
    if content.recording:
        models = _recorded(settings, content.recording)
        settings = _with_recorded_modes(settings, content.recording)
    else:
        models = [resolve(spec, "evaluated", settings.suites) for spec in settings.model]
    everybody = list(models)
    if "tempaffect" in settings.suites:
        _check_scenarios(models, content)
        everybody += [resolve(spec, "reply_judge", ("tempaffect",)) for spec in settings.reply_judge]
    if content.system is not None and (deaf := [model.spec for model in models if model.kind == "dry"]):
        raise ConfigError(f"--system-prompt: {deaf[0]} is built in and reads no prompt; leave one of the two out")
    if settings.floors and "spiral" in settings.suites:
        if own := [spec for spec in settings.model if spec in FLOORS]:
            raise ConfigError(f"--model {own[0]}: is what --floors compares with; leave one of them out")
        everybody += [resolve(spec, "evaluated", ("spiral",)).model_copy(update={"floor": True}) for spec in FLOORS]
    if "spiral" in settings.suites and (settings.redo_judging or not settings.replay):
        # Never silently the evaluated model: what is not named comes from the shipped defaults.
        defaults = default_models()
        offline = bool(settings.model) and all(spec.startswith(DRY_PREFIX) or is_local(spec) for spec in settings.model)
        if settings.model and not settings.replay and not settings.prefixes:
            default = defaults["stand_in_user"] if offline else _default("user", environ)
            everybody.append(resolve(settings.user_model or default, "user", ("spiral",)))
        named = settings.judge_model or (defaults["stand_in_judge"] if offline else _default("judge", environ),)
        everybody += [resolve(spec, "judge", ("spiral",)) for spec in named]
        if settings.calibrate:
            # Labels that do not fit the protocol are an error before any call.
            content.calibration_labels()
        if settings.spiral_upstream and (deaf := [spec for spec in named if spec.startswith(DRY_PREFIX)]):
            raise ConfigError(
                f"--judge-model {deaf[0]}: is built in and reads no rubric; with --spiral-upstream name another judge"
            )
    # No key is needed to learn what a run would cost.
    if unreachable and not settings.plan:
        raise ConfigError("\n".join(dict.fromkeys(unreachable)))
    started_at = started_at.astimezone(UTC)
    run_id = _run_id(settings, models, started_at)
    return RunPlan(
        settings=settings,
        run_id=run_id,
        # An absolute --report-dir replaces the folder.
        run_dir=str(folder / settings.report_dir / run_id),
        started_at=started_at.isoformat(timespec="seconds"),
        everybody=tuple(everybody),
    )


def _run_id(settings: Settings, models: Sequence[ModelPlan], started_at: datetime) -> str:
    """The name of the run: as it was given, or of when it was started and whom it is about."""
    run_id = settings.run_id
    if run_id is None and not models:
        run_id = f"calibration-{started_at:%Y%m%d-%H%M%S}"
    elif run_id is None:
        slug = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in models[0].spec)
        run_id = f"{started_at:%Y%m%d-%H%M%S}-{slug.strip('-.')[:60]}"
    if settings.shard_number is not None:
        # Shards of one run that are on the same machine need directories of their own.
        run_id += "-shard{}of{}".format(*settings.shard_number)
    return run_id


def default_models() -> dict[str, Any]:
    """Who plays a role where nobody is named, as `data/spiral/defaults.toml` has it."""
    return read_toml(data_root() / "spiral" / "defaults.toml")


def _default(role: Literal["user", "judge"], environ: Mapping[str, str]) -> str:
    """The model that has a role where none is named, by its name at the endpoint of the role."""
    host = ""
    with suppress(ConfigError):
        # What is wrong about the endpoint is told when the model is resolved.
        host = host_of(endpoint_settings(role, environ).base_url)
    defaults, key = default_models(), f"{role}_model"
    return str(defaults.get(host, {}).get(key, defaults[key]))


def _recorded(settings: Settings, recording: Recording) -> list[ModelPlan]:
    """The recorded models: all, or those that --model names."""
    for spec in settings.model:
        if spec not in recording.models:
            raise ConfigError(f"--model {spec}: not in {recording.path}, which has {', '.join(recording.models)}")
    models = [
        ModelPlan(
            spec=spec, kind="replay", model_id=spec, params={suite: {} for suite in settings.suites if suite in suites}
        )
        for spec, suites in recording.models.items()
        if not settings.model or spec in settings.model
    ]
    if not any(model.params for model in models):
        raise ConfigError(f"{recording.path} has nothing of {', '.join(settings.suite)}")
    if "spiral" in settings.suites and not settings.redo_judging:
        # Judgements that it cannot score are refused now.
        recording.protocol([settings.protocol] if settings.protocol else ())
        judges = recording.identity.get("spiral", {}).get("judges")
        if settings.judge_model and judges and set(settings.judge_model) != set(judges.split(", ")):
            raise ConfigError(f"--judge-model needs --redo-judging here: {recording.path} was judged by {judges}")
    return [model for model in models if model.params]


def _with_recorded_modes(settings: Settings, recording: Recording) -> Settings:
    """The settings with those prompting modes that are recorded: the others were not lost, nobody asked in them."""
    recorded = {unit.mode for unit in recording.outputs}
    modes = tuple(mode for mode in settings.prompting if mode in recorded)
    if modes or not recorded or "tempaffect" not in settings.suites:
        return replace(settings, prompting=modes or settings.prompting)
    raise ConfigError(
        f"--prompting {', '.join(settings.prompting)}: {recording.path} was prompted otherwise; "
        f"use --prompting={min(recorded)}"
    )


def _check_scenarios(models: Sequence[ModelPlan], content: Content) -> None:
    """Raise `UserError` where models cannot answer the scenarios of this run, or a recording is of others."""
    own = content.settings.tempaffect_scenarios
    recording = content.recording
    if recording is not None and recording.outputs:
        suite, asked = content.suite.by_id, recording.tempaffect.scenarios
        changed = any(name in suite and build_messages(asked[name]) != build_messages(suite[name]) for name in asked)
        if changed or suite.keys().isdisjoint(unit.scenario_id for unit in recording.outputs):
            # Answers to one text must not be scored by the key of another that has its id.
            raise ConfigError(
                f"{recording.path}: recorded on other scenarios; name their file with --tempaffect-scenarios "
                "(those of TempAffect 1.0: benchmarks/field_trial/scenarios_1.0.json in the repository)"
            )
    for model in models:
        if own is not None and model.kind == "dry" and "tempaffect" in model.params:
            # Some built-in models quote what a custom file may leave out.
            for scenario in content.suite.scenarios:
                dry_output(model.spec.removeprefix(DRY_PREFIX), content.suite, scenario)


def _resolve(
    spec: str,
    role: Role,
    suites: Sequence[SuiteName],
    *,
    environ: Mapping[str, str],
    user_toml: Path | None,
    settings: Settings,
    unreachable: list[str],
) -> ModelPlan:
    kind: Literal["dry", "local", "remote"] = "remote"
    model_id = spec
    if spec.startswith(DRY_PREFIX):
        suites = known_suites(spec, role, suites)
        kind = "dry"
    elif is_local(spec):
        kind, model_id = "local", locate(spec).name
    elif spec in ("dry", "local"):
        raise ConfigError(f"{OPTION_OF[role]} {spec}: a name must follow, such as dry/perfect or local/smollm2-135m")
    by_suite = {suite: resolve_parameters(spec, role, user_toml, suite=suite) for suite in suites}
    parameters = next(iter(by_suite.values()))
    given, endpoint, provider, price = parameters.connection, None, "", parameters.price
    if kind == "remote":
        try:
            endpoint = endpoint_settings(role, environ, given)
        except ConfigError as error:
            unmatched = f"; no [[model]] table of {user_toml} matches this name" if user_toml else ""
            unreachable.append(f"{parameters.place}: {error}" if parameters.place else f"{error}{unmatched}")
        provider = endpoint.provider if endpoint is not None else provider_name(role, environ, given)
    defaults = (given.preset or (endpoint.preset if endpoint else GENERIC)).defaults
    if price is None:
        price = (
            Price(input=0, output=0)
            if defaults.free
            else list_price(spec, provider if endpoint else given.provider or "")
        )
    return ModelPlan(
        role=role,
        spec=spec,
        kind=kind,
        model_id=model_id,
        params={suite: dict(resolved.request) for suite, resolved in by_suite.items()},
        concurrency=parameters.concurrency or defaults.concurrency,
        longest_string=parameters.longest_string,
        patience=parameters.patience or settings.patience,
        timeouts=given.timeouts(defaults),
        price=price,
        reasoning_tokens=parameters.reasoning_tokens,
        endpoint=endpoint,
        endpoint_name=given.endpoint or provider or CUSTOM if kind == "remote" else "",
        freedom={suite: resolved.freedom for suite, resolved in by_suite.items()},
    )


def scenario_units(plan: RunPlan, content: Content) -> list[ScenarioUnit]:
    """Every TempAffect unit of a run."""
    models, modes = plan.of_suite("tempaffect"), plan.settings.prompting
    if content.recording is not None:
        known = (unit for unit in content.recording.outputs if unit.scenario_id in content.suite.by_id)
        return sorted((u for u in known if u.model in models and u.mode in modes), key=lambda u: u.id)
    return [
        ScenarioUnit(model, mode, scenario.id, epoch)
        for model in models
        for mode in modes
        for scenario in content.suite.scenarios
        for epoch in range(plan.settings.epochs)
    ]


def conversation_units(plan: RunPlan, content: Content) -> list[ConversationUnit]:
    """Every conversation of a run."""
    models = plan.of_suite("spiral")
    if content.recording is not None:
        return sorted((unit for unit in content.recording.conversations if unit.model in models), key=lambda u: u.id)
    floors = [
        ConversationUnit(model, opening.prompt_id) for model in plan.floors for opening in content.spiral.openings
    ]
    return floors + [
        ConversationUnit(model, opening.prompt_id, index)
        for model in models
        for opening in content.spiral.held
        for index in range(plan.settings.convos_per_prompt)
    ]


def all_units(plan: RunPlan, content: Content) -> list[Unit]:
    """The units of all suites that run."""
    scenarios = scenario_units(plan, content) if "tempaffect" in plan.suites else []
    return [*scenarios, *(conversation_units(plan, content) if "spiral" in plan.suites else [])]


def shard_of(units: Sequence[T], shard: tuple[int, int]) -> list[T]:
    """The units of shard (k, n), k from 1: every n-th, so that families and categories are spread evenly."""
    k, n = shard
    return list(units[k - 1 :: n])
