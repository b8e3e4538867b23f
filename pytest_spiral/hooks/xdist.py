"""Leading xdist workers: they get the plan, their results ride home on test reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_spiral.hooks.roles import Role

__all__ = ["XdistLead"]


class XdistLead:
    """Registered only where items are distributed, so that nothing here needs xdist to be installed."""

    def __init__(self, role: Role) -> None:
        self._role: Any = role
        self._workers = 1

    def pytest_xdist_setupnodes(self, specs: list[Any]) -> None:
        """The workers share one bound on requests in flight."""
        self._workers = len(specs)

    def pytest_configure_node(self, node: Any) -> None:
        """Hand a worker the plan as JSON text; keys are not in it, each worker reads its own environment."""
        plan = self._role.plan.model_copy(update={"workers": self._workers})
        node.workerinput["spiral"] = json.dumps(
            {
                "plan": plan.model_dump_json(),
                "folder": str(self._role.content.folder),
                "nodes": list(self._role.nodes),
                "args": list(self._role.config.args),
            }
        )
