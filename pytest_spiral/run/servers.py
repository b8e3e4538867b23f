"""Local models: one server for each, shared by all roles and workers of a run."""

from __future__ import annotations

from contextlib import ExitStack

from pytest_spiral.models.environment import EndpointSettings
from pytest_spiral.models.local_file import locate
from pytest_spiral.models.local_server import LocalServer
from pytest_spiral.run.plan import ModelPlan, RunPlan

__all__ = ["LocalServers"]


class LocalServers:
    """The servers that this run has started."""

    def __init__(self) -> None:
        self._endpoints: dict[str, EndpointSettings] = {}
        self._running = ExitStack()

    def start(self, plan: RunPlan) -> RunPlan:
        """Start a server for each local model. Returns the plan with their endpoints."""
        return plan.model_copy(
            update={
                "models": tuple(map(self._with_endpoint, plan.models)),
                "user": self._with_endpoint(plan.user) if plan.user else None,
                "judges": tuple(map(self._with_endpoint, plan.judges)),
            }
        )

    def _with_endpoint(self, model: ModelPlan) -> ModelPlan:
        if model.kind != "local":
            return model
        if model.spec not in self._endpoints:
            server = self._running.enter_context(LocalServer(locate(model.spec)))
            self._endpoints[model.spec] = EndpointSettings(base_url=server.base_url, key_variable=None)
        return model.model_copy(update={"endpoint": self._endpoints[model.spec]})

    def close(self) -> None:
        """Stop all servers. Harmless when called twice."""
        self._running.close()
