"""Built-in evaluated models behind the same protocol as real ones: no network, no randomness."""

from __future__ import annotations

from pytest_spiral.errors import ConfigError
from pytest_spiral.records import ChatReply, ChatRequest
from pytest_spiral.tempaffect.dry import DRY_MODELS, dry_output
from pytest_spiral.tempaffect.suite import Suite

__all__ = ["PREFIX", "DryModel", "check_dry_name"]

PREFIX = "dry/"


def check_dry_name(spec: str) -> str:
    """The name behind `dry/`. Raises `ConfigError` listing the known names."""
    name = spec.removeprefix(PREFIX)
    if name not in DRY_MODELS:
        known = ", ".join(PREFIX + known for known in DRY_MODELS)
        raise ConfigError(f"--model {spec}: no built-in model of that name; tempaffect knows {known}")
    return name


class DryModel:
    """Answers a scenario the way the named stand-in does."""

    def __init__(self, spec: str, suite: Suite) -> None:
        self._spec = spec
        self._name = check_dry_name(spec)
        self._suite = suite

    async def complete(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text=dry_output(self._name, self._suite, self._suite[request.unit]), model=self._spec)

    async def aclose(self) -> None:
        return None
