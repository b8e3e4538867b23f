"""The plan of a run: everything that is decided before the first item, as plain data that travels to every worker."""

from __future__ import annotations

import platform
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from pytest_spiral.chat.dry import PREFIX as DRY_PREFIX
from pytest_spiral.chat.dry import check_dry_name
from pytest_spiral.chat.endpoint import normalise_base_url
from pytest_spiral.chat.local import is_local, locate
from pytest_spiral.chat.parameters import Price, resolve_parameters
from pytest_spiral.errors import ConfigError
from pytest_spiral.gates import Gate, check_metric, parse_gate
from pytest_spiral.records import Role
from pytest_spiral.session.units import ScenarioUnit
from pytest_spiral.settings import EndpointSettings, Settings, endpoint_settings
from pytest_spiral.tempaffect.card import metric_names
from pytest_spiral.tempaffect.suite import Suite

__all__ = ["ModelPlan", "RunPlan", "make_plan", "parse_gates", "run_name", "scenario_units", "versions"]


class ModelPlan(BaseModel):
    """How one evaluated model is reached and asked.

    kind: "dry" and "local" models live on this machine. model_id: what goes into the request.
    endpoint: None for dry models, and for local ones until their server runs.
    """

    model_config = ConfigDict(frozen=True)

    role: Role = "evaluated"
    spec: str
    kind: Literal["dry", "local", "remote"]
    model_id: str
    params: dict[str, Any]
    concurrency: int | None
    price: Price | None
    endpoint: EndpointSettings | None


class RunPlan(BaseModel):
    """One run. The same in the leading process and in every worker."""

    model_config = ConfigDict(frozen=True)

    settings: Settings
    run_id: str
    run_dir: str
    started_at: str
    models: tuple[ModelPlan, ...]
    workers: int = 1

    @property
    def store_path(self) -> Path:
        return Path(self.run_dir) / "run.sqlite"

    def model(self, spec: str) -> ModelPlan:
        return next(model for model in self.models if model.spec == spec)

    def identity(self, suite: Suite) -> dict[str, Any]:
        """What decides the measurements: a run with another identity is another run."""
        settings = self.settings
        return {
            "models": [
                {
                    "spec": model.spec,
                    "model_id": model.model_id,
                    "params": model.params,
                    # A local server's port differs from run to run.
                    "base_url": model.endpoint.base_url if model.endpoint and model.kind == "remote" else None,
                }
                for model in self.models
            ],
            "suites": list(settings.suite),
            "prompting": list(settings.prompting),
            "epochs": settings.epochs,
            "seed": settings.seed,
            "suite_hash": suite.suite_hash,
        }


def make_plan(settings: Settings, environ: Mapping[str, str], folder: Path, started_at: datetime) -> RunPlan:
    """Resolve every model. Raises `ConfigError` for whatever can be known to be wrong before anything is sent."""
    spiral_toml = folder / "spiral.toml"
    user_toml = spiral_toml if spiral_toml.is_file() else None
    run_id = settings.run_id or run_name(settings.model, started_at)
    report_dir = Path(settings.report_dir)
    return RunPlan(
        settings=settings,
        run_id=run_id,
        run_dir=str((report_dir if report_dir.is_absolute() else folder / report_dir) / run_id),
        started_at=started_at.astimezone(UTC).isoformat(timespec="seconds"),
        models=tuple(_model_plan(spec, environ, user_toml) for spec in settings.model),
    )


def _model_plan(spec: str, environ: Mapping[str, str], user_toml: Path | None) -> ModelPlan:
    kind: Literal["dry", "local", "remote"] = "remote"
    model_id = spec
    endpoint = None
    if spec.startswith(DRY_PREFIX):
        check_dry_name(spec)
        kind = "dry"
    elif is_local(spec):
        kind, model_id = "local", locate(spec).name
    elif spec.startswith(("dry", "local")) and spec.rstrip("/") in ("dry", "local"):
        raise ConfigError(f"--model {spec}: a name must follow, such as dry/perfect or local/smollm2-135m")
    else:
        endpoint = endpoint_settings("evaluated", environ)
        # Checked before it is written anywhere: a mistyped address may hold a password.
        endpoint = endpoint.model_copy(update={"base_url": normalise_base_url(endpoint.base_url)})
    parameters = resolve_parameters(spec, "evaluated", user_toml, suite="tempaffect")
    return ModelPlan(
        spec=spec,
        kind=kind,
        model_id=model_id,
        params=dict(parameters.request),
        concurrency=parameters.concurrency,
        price=parameters.price,
        endpoint=endpoint,
    )


def run_name(models: Sequence[str], at: datetime) -> str:
    """Default name of a run: UTC time and first model, fit for a folder."""
    slug = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in models[0])
    return f"{at.astimezone(UTC):%Y%m%d-%H%M%S}-{slug.strip('-.')[:60]}"


def scenario_units(settings: Settings, suite: Suite) -> list[ScenarioUnit]:
    """Every unit of a run, in the order in which its items are collected."""
    return [
        ScenarioUnit(model, mode, scenario.id, epoch)
        for model in settings.model
        for mode in settings.prompting
        for scenario in suite.scenarios
        for epoch in range(settings.epochs)
    ]


def parse_gates(settings: Settings) -> tuple[Gate, ...]:
    """The gates of a run. Raises `ConfigError` for a gate that cannot be read or names what does not exist."""
    gates = tuple(parse_gate(expr) for expr in settings.gate)
    for gate in gates:
        check_metric(gate, settings.suite, settings.prompting, metric_names())
    return gates


def versions() -> dict[str, str]:
    """What the numbers are made with."""
    found = {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
    for name in ("pytest-spiral", "pytest", "openai", "nltk", "jsonschema", "pydantic"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
