"""One frozen settings model from command line, ini and environment. Keys and base URLs stay out of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from pytest_spiral.errors import ConfigError

__all__ = ["Settings", "make_settings"]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Settings(BaseModel):
    """What a run is asked to do. The same object in the leading process and in every worker."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: tuple[str, ...]
    user_model: str | None
    judge_model: tuple[str, ...]
    suite: tuple[Literal["tempaffect", "spiral"], ...]
    prompting: tuple[Literal["schema", "raw"], ...]
    epochs: int
    num_turns: int
    convos_per_prompt: int
    protocol: str
    tempaffect_scenarios: str | None
    spiral_prompts: str | None
    system_prompt: str | None
    seed: int
    concurrency: int
    run_id: str | None
    report_dir: str
    replay: str | None
    baseline: str | None
    redo_judging: bool
    retest_share: int
    calibrate: bool
    benign_twins: bool
    gate: tuple[str, ...]
    gate_policy: Literal["bound", "point"]
    shard: str | None
    plan: bool
    max_cost: float | None
    strict_items: bool

    @field_validator("epochs", "num_turns", "convos_per_prompt", "concurrency")
    @classmethod
    def _positive(cls, value: int) -> int:
        if not 1 <= value <= 10_000:
            raise ValueError(f"must lie between 1 and 10000, got {value}")
        return value

    @field_validator("shard")
    @classmethod
    def _a_share(cls, value: str | None) -> str | None:
        found = value is not None and re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", value)
        if value is not None and not (found and int(found[1]) <= int(found[2])):
            raise ValueError(f"{value!r} is no shard; write K/N with 1 <= K <= N, such as 2/5")
        return value

    @property
    def share(self) -> tuple[int, int] | None:
        """Number and count of shards, None for a whole run."""
        if self.shard is None:
            return None
        k, _, n = self.shard.partition("/")
        return int(k), int(n)

    @field_validator("max_cost")
    @classmethod
    def _an_amount(cls, value: float | None) -> float | None:
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"must be a number of USD above 0, got {value}")
        return value

    @field_validator("retest_share")
    @classmethod
    def _percent(cls, value: int) -> int:
        if not 0 <= value <= 100:
            raise ValueError(f"must lie between 0 and 100 percent, got {value}")
        return value

    @field_validator("user_model")
    @classmethod
    def _clean_user_model(cls, value: str | None) -> str | None:
        return value if value is None else cls._clean_models((value,))[0]

    @field_validator("model", "judge_model")
    @classmethod
    def _clean_models(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for spec in value:
            if not spec.strip() or any(char.isspace() or not char.isprintable() for char in spec):
                raise ValueError(f"{spec!r} is no model name: it is empty or holds white space")
        return tuple(dict.fromkeys(value))

    @field_validator("run_id")
    @classmethod
    def _clean_run_id(cls, value: str | None) -> str | None:
        if value is not None and (not _RUN_ID.fullmatch(value) or value == "latest"):
            raise ValueError(
                f"{value!r} is no run name; use up to 100 letters, digits, dots, dashes, underscores, and not 'latest'"
            )
        return value

    @field_validator("suite", "prompting")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value))


def make_settings(options: Mapping[str, Any]) -> Settings:
    """Validated settings. Raises `ConfigError` naming the option."""
    if options["redo_judging"] and not options["replay"]:
        raise ConfigError("--redo-judging judges recorded conversations: name them with --replay reports/RUN-ID")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        name = str(fault["loc"][0]).replace("_", "-")
        raise ConfigError(f"--{name}: {str(fault['msg']).removeprefix('Value error, ')}") from None
