"""Trying every model before anything that counts is sent: can it be reached, and does it enforce a JSON schema?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.models.budget import Budget
from pytest_spiral.models.openai_compatible import OpenAICompatible, probe
from pytest_spiral.run.models import endpoint_of
from pytest_spiral.run.plan import OPTION_OF, ModelPlan
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import RunStore, StoredChat
from pytest_spiral.tempaffect.unit import schema_is_enforced


def reach_models(models: Sequence[ModelPlan], environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless every model with an endpoint can be reached."""

    async def probe_all() -> list[object]:
        # All at once: each may be far away. Failures stand in their places, so the first one named is reported.
        probes = (probe(endpoint_of(model, environ), model.model_id) for model in models)
        return await asyncio.gather(*probes, return_exceptions=True)

    for model, answer in zip(models, asyncio.run(probe_all()), strict=True):
        if isinstance(answer, BaseException):
            raise _unreachable(model, answer) from None


def verify_schemas(
    models: Sequence[ModelPlan], store: RunStore, environ: Mapping[str, str], budget: Budget | None
) -> dict[str, bool]:
    """Whether the endpoint of each evaluated model enforces JSON schemas, as far as there is an endpoint to ask.

    Raises:
        ConfigError: If an endpoint refuses the request.
    """
    verified = {}
    for model in models:
        if model.kind == "dry":
            # A built-in model answers as the schema says or, on purpose, does not.
            verified[model.spec] = True
        elif model.endpoint is not None and "tempaffect" in model.params:
            try:
                verified[model.spec] = asyncio.run(_enforces_schema(model, store, environ, budget))
            except ChatError as error:
                raise _unreachable(model, error) from None
    return verified


async def _enforces_schema(
    model: ModelPlan, store: RunStore, environ: Mapping[str, str], budget: Budget | None
) -> bool:
    chat = StoredChat(OpenAICompatible(endpoint_of(model, environ), budget=budget), store)
    try:
        return await schema_is_enforced(model.model_id, model.params["tempaffect"], chat)
    finally:
        await chat.aclose()


def _unreachable(model: ModelPlan, error: BaseException) -> BaseException:
    """The error for the user; anything but a `ChatError` is a fault of this package and stays what it is."""
    if not isinstance(error, ChatError):
        return error
    advice = "; or leave schema mode out with --prompting raw" if error.code == ReasonCode.BAD_REQUEST else ""
    return ConfigError(f"{OPTION_OF[model.role]} {model.spec}: {error}{advice}")
