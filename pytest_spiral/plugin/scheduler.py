"""A scheduler for xdist: every worker knows all its items from the start and can work on all of them at once.

xdist's own schedulers hand out items a few at a time, or take them back once they are under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pytest
from pydantic import BaseModel, ConfigDict

from pytest_spiral.plugin._compat import Node, node_ids_differ

# A worker that dies while an item is waited for need not have died of that item.
_MOST_CRASHES = 3


class WorkerItems(BaseModel):
    """The items of one worker: every `of`-th from `rank` on, or what dead workers left behind.

    rank: None for a worker that runs nothing. left: node ids, None for a worker that was there from the start.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    rank: int | None
    of: int
    left: tuple[str, ...] | None = None

    def indices(self, ids: Sequence[str]) -> list[int]:
        """Indices of these items. A pure function: worker and scheduler compute it by themselves."""
        if self.left is not None:
            left = set(self.left)
            return [index for index, name in enumerate(ids) if name in left]
        return [] if self.rank is None else list(range(self.rank, len(ids), self.of))


class FixedScheduler:
    """An xdist scheduler. A dead worker's items go to the one that replaces it, and to no other.

    assigned: by worker, filled in before the worker is started. stop: ends the session with a reason.
    """

    def __init__(
        self,
        workers: int,
        assigned: Mapping[Node, WorkerItems],
        stop: Callable[[str], None],
        config: pytest.Config | None = None,
    ) -> None:
        # As all of xdist's schedulers have it: pytest-rerunfailures reads it when a worker has died.
        self.config = config
        self._workers = workers
        self._assigned = assigned
        self._stop = stop
        self._collections: dict[Node, list[str]] = {}
        self._pending: dict[Node, list[int]] = {}
        self._scheduled: set[Node] = set()
        self._unassigned: list[int] = []
        self._reserved: dict[Node, WorkerItems] = {}
        self._crashes: Counter[str] = Counter()
        self._stopping = False
        self.collection: list[str] | None = None

    @property
    def nodes(self) -> list[Node]:
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        return self.collection is not None or len(self._collections) >= self._workers

    @property
    def has_pending(self) -> bool:
        return any(self._pending.values())

    @property
    def tests_finished(self) -> bool:
        waiting = bool(self._unassigned) or any(node not in self._scheduled for node in self._pending)
        return self.collection is not None and not (waiting or self.has_pending or self._reserved)

    def add_node(self, node: Node) -> None:
        self._pending[node] = []

    def add_node_collection(self, node: Node, collection: Sequence[str]) -> None:
        self._collections[node] = list(collection)

    def schedule(self) -> None:
        """Send every worker all its items, and the end after it: without one it would wait for a next item."""
        if self.collection is None:
            self.collection = next(iter(self._collections.values()))
        for node in self._pending:
            if node in self._scheduled or node not in self._collections:
                continue
            if difference := node_ids_differ(self.collection, self._collections[node], node):
                self._stop(f"{node.gateway.id} collected other items than the other workers: {difference}")
                continue
            items = self._assigned[node].indices(self.collection)
            self._reserved.pop(node, None)
            self._scheduled.add(node)
            self._pending[node] = items
            if items:
                node.send_runtest_some(items)
            node.shutdown()

    def mark_test_complete(self, node: Node, item_index: int, duration: float = 0) -> None:
        self._pending[node].remove(item_index)

    def mark_test_pending(self, item: str) -> None:
        assert self.collection is not None
        self._unassigned.insert(0, self.collection.index(item))

    def remove_node(self, node: Node) -> str | None:
        """Forget a worker. Returns the item at which it died; what it had not begun goes to its replacement.

        Raises `KeyError` for one that had not reported ready, as xdist expects.
        """
        reserved = self._reserved.pop(node, None)
        if reserved is not None and self.collection is not None:
            # It died before it was sent anything: what was reserved for it is free again.
            self._unassigned += reserved.indices(self.collection)
        pending = self._pending.pop(node)
        if not pending:
            return None
        assert self.collection is not None
        crashed, *left = pending
        if not self._stopping:
            self._unassigned += left
        return self.collection[crashed]

    def items_of_replacement(self, dead: WorkerItems) -> WorkerItems:
        """The items of a worker that replaces a dead one: all that is left by now, or the dead one's place."""
        if self.collection is None:
            return dead
        left = tuple(self.collection[index] for index in sorted(self._unassigned))
        self._unassigned.clear()
        return WorkerItems(rank=dead.rank, of=dead.of, left=left)

    def reserve(self, node: Node, items: WorkerItems) -> None:
        """Remember that a worker about to start will run these items."""
        if items.left:
            self._reserved[node] = items

    def may_run_again(self, item: str) -> bool:
        """Whether an item at which workers died is given to another one."""
        self._crashes[item] += 1
        return self._crashes[item] < _MOST_CRASHES

    def withdraw_pending(self) -> None:
        """Let no worker begin more than it has begun: enough has failed."""
        self._stopping = True
        for node in self._pending:
            self._withdraw_from(node)

    def _withdraw_from(self, node: Node) -> None:
        # A worker holds the item it runs and the next one outside its queue.
        if len(self._pending[node]) > 2:
            # One that has ended by itself, at a failure of its own, hears nothing and begins nothing either.
            with suppress(OSError):
                node.send_steal(self._pending[node][2:])

    def remove_pending_tests_from_node(self, node: Node, indices: Sequence[int]) -> None:
        taken = set(indices)
        self._pending[node] = [index for index in self._pending[node] if index not in taken]
        if not taken:
            # All or nothing, and the worker had gone on meanwhile.
            self._withdraw_from(node)
