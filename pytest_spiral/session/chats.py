"""From a plan to the models of this process: who answers for which spec, every reply kept."""

from __future__ import annotations

import random
from collections.abc import Mapping

from pytest_spiral.chat import ChatModel
from pytest_spiral.chat.dry import DryModel
from pytest_spiral.chat.endpoint import Endpoint, Secret
from pytest_spiral.chat.limits import Limiter
from pytest_spiral.chat.openai_compatible import OpenAICompatible
from pytest_spiral.session.plan import ModelPlan, RunPlan
from pytest_spiral.store import RunStore, StoredChat
from pytest_spiral.tempaffect.suite import Suite

__all__ = ["build_chat", "endpoint_of"]


def endpoint_of(model: ModelPlan, environ: Mapping[str, str]) -> Endpoint:
    """The endpoint of a model that is reached over HTTP; its key is read from the environment here and nowhere else."""
    assert model.endpoint is not None
    variable = model.endpoint.key_variable
    return Endpoint("evaluated", model.endpoint.base_url, Secret(environ[variable] if variable else ""))


def build_chat(spec: str, plan: RunPlan, suite: Suite, store: RunStore, environ: Mapping[str, str]) -> ChatModel:
    """The model behind `spec`, bounded to this process's part of the run's requests in flight."""
    model = plan.model(spec)
    if model.kind == "dry":
        return StoredChat(DryModel(spec, suite), store)
    together = min(plan.settings.concurrency, model.concurrency or plan.settings.concurrency)
    limit = max(1, together // plan.workers)
    rng = random.Random(f"{plan.settings.seed}-backoff-{spec}")
    return StoredChat(OpenAICompatible(endpoint_of(model, environ), limiter=Limiter(limit), rng=rng), store)
