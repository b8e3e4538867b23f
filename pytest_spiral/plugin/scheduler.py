"""Fixed shares: every xdist worker knows all its items from the start, so that it can work on all of them at once.

xdist's own schedulers hand out items a few at a time, or take them back once they are under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from pydantic import BaseModel, ConfigDict

from pytest_spiral.plugin._compat import Node, node_ids_differ

__all__ = ["FixedShares", "Share"]

# A worker that dies while an item is waited for need not have died of that item.
_MOST_CRASHES = 3


class Share(BaseModel):
    """What one worker runs: every `of`-th item from `rank` on, or what dead workers left behind.

    rank: None for a worker that runs nothing. left: node ids, None for a worker that was there from the start.
    """

    model_config = ConfigDict(frozen=True)

    rank: int | None
    of: int
    left: tuple[str, ...] | None = None

    def of_collection(self, ids: Sequence[str]) -> list[int]:
        """Indices of this share's items. A pure function: worker and scheduler compute it by themselves."""
        if self.left is not None:
            left = set(self.left)
            return [index for index, name in enumerate(ids) if name in left]
        return [] if self.rank is None else list(range(self.rank, len(ids), self.of))


class FixedShares:
    """An xdist scheduler. A dead worker's items go to the one that replaces it, and to no other.

    shares: by worker, filled in before the worker is started. stop: ends the session with a reason.
    """

    def __init__(
        self,
        workers: int,
        shares: Mapping[Node, Share],
        stop: Callable[[str], None],
        config: pytest.Config | None = None,
    ) -> None:
        # As all of xdist's schedulers have it: pytest-rerunfailures reads it when a worker has died.
        self.config = config
        self._workers = workers
        self._shares = shares
        self._stop = stop
        self._collections: dict[Node, list[str]] = {}
        self._pending: dict[Node, list[int]] = {}
        self._dealt: set[Node] = set()
        self._orphans: list[int] = []
        self._promised: dict[Node, Share] = {}
        self._crashes: Counter[str] = Counter()
        self._taking_back = False
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
        waiting = bool(self._orphans) or any(node not in self._dealt for node in self._pending)
        return self.collection is not None and not (waiting or self.has_pending or self._promised)

    def add_node(self, node: Node) -> None:
        self._pending[node] = []

    def add_node_collection(self, node: Node, collection: Sequence[str]) -> None:
        self._collections[node] = list(collection)

    def schedule(self) -> None:
        """Send every worker its whole share, and the end after it: without one it would wait for a next item."""
        if self.collection is None:
            self.collection = next(iter(self._collections.values()))
        for node in self._pending:
            if node in self._dealt or node not in self._collections:
                continue
            difference = node_ids_differ(self.collection, self._collections[node], node)
            if difference:
                self._stop(f"{node.gateway.id} collected other items than the other workers: {difference}")
                continue
            share = self._shares[node].of_collection(self.collection)
            self._promised.pop(node, None)
            self._dealt.add(node)
            self._pending[node] = share
            if share:
                node.send_runtest_some(share)
            node.shutdown()

    def mark_test_complete(self, node: Node, item_index: int, duration: float = 0) -> None:
        self._pending[node].remove(item_index)

    def mark_test_pending(self, item: str) -> None:
        assert self.collection is not None
        self._orphans.insert(0, self.collection.index(item))

    def remove_node(self, node: Node) -> str | None:
        """Forget a worker. Returns the item at which it died; what it had not begun goes to its replacement.

        Raises `KeyError` for one that had not reported ready, as xdist expects.
        """
        promised = self._promised.pop(node, None)
        if promised is not None and self.collection is not None:
            # Dead before anything was dealt to it: what it was promised is free again.
            self._orphans += promised.of_collection(self.collection)
        pending = self._pending.pop(node)
        if not pending:
            return None
        assert self.collection is not None
        crashed, *left = pending
        if not self._taking_back:
            self._orphans += left
        return self.collection[crashed]

    def inheritance(self, dead: Share) -> Share:
        """The share of a worker that replaces a dead one: all that is left by now, or the dead one's place."""
        if self.collection is None:
            return dead
        left = tuple(self.collection[index] for index in sorted(self._orphans))
        self._orphans.clear()
        return Share(rank=dead.rank, of=dead.of, left=left)

    def promise(self, node: Node, share: Share) -> None:
        """Remember that a worker about to start will run this share."""
        if share.left:
            self._promised[node] = share

    def may_run_again(self, item: str) -> bool:
        """Whether an item at which workers died is given to another one."""
        self._crashes[item] += 1
        return self._crashes[item] < _MOST_CRASHES

    def take_back(self) -> None:
        """Let no worker begin more than it has begun: enough has failed."""
        self._taking_back = True
        for node in self._pending:
            self._take_back_from(node)

    def _take_back_from(self, node: Node) -> None:
        # A worker holds the item it runs and the next one outside its queue.
        if len(self._pending[node]) > 2:
            node.send_steal(self._pending[node][2:])

    def remove_pending_tests_from_node(self, node: Node, indices: Sequence[int]) -> None:
        taken = set(indices)
        self._pending[node] = [index for index in self._pending[node] if index not in taken]
        if not taken:
            # All or nothing, and the worker had gone on meanwhile.
            self._take_back_from(node)
