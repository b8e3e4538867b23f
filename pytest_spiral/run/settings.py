"""One frozen settings model from command line, ini and environment. Keys and base URLs stay out of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from pytest_spiral.chat import Role
from pytest_spiral.errors import ConfigError

__all__ = [
    "ENV_PREFIXES",
    "EndpointSettings",
    "Settings",
    "endpoint_settings",
    "load_environment",
    "make_settings",
]

OPENAI_URL = "https://api.openai.com/v1"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
ENV_PREFIXES: Mapping[Role, str] = {"evaluated": "EVALUATED_MODEL", "user": "USER_AGENT", "judge": "JUDGE"}
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


class EndpointSettings(BaseModel):
    """Where a role's requests go. The key is held apart, so that this may be printed."""

    model_config = ConfigDict(frozen=True)

    base_url: str
    key_variable: str | None
    """Name of the environment variable that holds the key, None where no key is sent."""


def load_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment, completed from a `.env` file in `folder`; what is set in the environment wins.

    Raises `ConfigError` where the file cannot be read.
    """
    path = folder / ".env"
    if not path.is_file():
        return dict(environ)
    from dotenv import dotenv_values

    try:
        found = dotenv_values(path)
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeError) else error
        raise ConfigError(f"{path}: cannot be read ({reason}); mend or remove it") from None
    return {**{name: value for name, value in found.items() if value is not None}, **environ}


def endpoint_settings(role: Role, environ: Mapping[str, str]) -> EndpointSettings:
    """Base URL and key variable of a role.

    Each of the role's two variables falls back to OPENAI_*, then to OPENROUTER_API_KEY with its own URL. A fallback key
    is sent neither to a server on this machine nor, if it is OpenRouter's, to anybody else.
    Raises `ConfigError` when an https endpoint has no key.
    """
    prefix = ENV_PREFIXES[role]
    url = environ.get(f"{prefix}_BASE_URL") or environ.get("OPENAI_BASE_URL") or ""
    names = [f"{prefix}_API_KEY"]
    if not _on_this_machine(url):
        names.append("OPENAI_API_KEY")
        if not url or "openrouter.ai" in url:
            names.append("OPENROUTER_API_KEY")
    variable = next((name for name in names if environ.get(name)), None)
    if not url:
        url = OPENROUTER_URL if variable == "OPENROUTER_API_KEY" else OPENAI_URL
    if variable is None and url.startswith("https:"):
        raise ConfigError(
            f"no API key for the {role} model at {url}: set {prefix}_API_KEY or OPENAI_API_KEY in the environment "
            f"or in .env, or {prefix}_BASE_URL for a server of your own"
        )
    return EndpointSettings(base_url=url, key_variable=variable)


def _on_this_machine(url: str) -> bool:
    return re.match(r"https?://(localhost|127\.\d+\.\d+\.\d+|\[::1\])([:/]|$)", url, re.IGNORECASE) is not None
