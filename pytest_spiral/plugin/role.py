"""What a process of a run does: it collects bundled items and runs them; one of them is the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_spiral.plugin.collection import Collection
from pytest_spiral.plugin.execution import Execution

__all__ = ["Role"]


@dataclass(frozen=True)
class Role:
    """The parts of the plugin that are active in this process."""

    collection: Collection
    execution: Execution
    close: Callable[[], None]
