"""Items of workers: pure arithmetic, and a scheduler that loses no item and runs none twice, whoever dies when."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.plugin.scheduler import FixedScheduler, WorkerItems


@dataclass(eq=False)
class Node:
    """What a scheduler sees of a worker: it is sent items and its end."""

    name: str
    sent: list[int] = field(default_factory=list)
    stolen: list[list[int]] = field(default_factory=list)
    ended: bool = False
    deaf: bool = False

    @property
    def gateway(self) -> SimpleNamespace:
        return SimpleNamespace(id=self.name)

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.ended
        self.sent += indices

    def send_steal(self, indices: list[int]) -> None:
        if self.deaf:
            raise OSError("cannot send")
        self.stolen.append(list(indices))

    def shutdown(self) -> None:
        self.ended = True


class Session:
    """A scheduler with its workers, driven as xdist drives it."""

    def __init__(self, workers: int, active: int, items: int) -> None:
        self.ids = [f"item-{n}" for n in range(items)]
        self.assigned: dict[Node, WorkerItems] = {}
        self.stopped: list[str] = []
        self.done: list[str] = []
        self.given_up: list[str] = []
        self.scheduler = FixedScheduler(workers, self.assigned, self.stopped.append)
        self.nodes = [Node(f"gw{n}") for n in range(workers)]
        for rank, node in enumerate(self.nodes):
            self.assigned[node] = WorkerItems(rank=rank if rank < active else None, of=active)

    def ready(self, node: Node, ids: list[str] | None = None) -> None:
        self.scheduler.add_node(node)
        self.scheduler.add_node_collection(node, self.ids if ids is None else ids)
        if self.scheduler.collection_is_completed:
            self.scheduler.schedule()

    def run_one(self, node: Node) -> None:
        index = node.sent.pop(0)
        self.done.append(self.ids[index])
        self.scheduler.mark_test_complete(node, index)

    def die(self, node: Node) -> Node:
        """A worker dies, its replacement is configured but has not started."""
        crashed = None
        with suppress(KeyError):
            # As xdist does: one that had not reported ready is not known.
            crashed = self.scheduler.remove_node(node)
        if crashed:
            if self.scheduler.may_run_again(crashed):
                self.scheduler.mark_test_pending(crashed)
            else:
                self.given_up.append(crashed)
        clone = Node(f"{node.name}x")
        self.assigned[clone] = self.scheduler.items_of_replacement(self.assigned[node])
        self.scheduler.reserve(clone, self.assigned[clone])
        return clone


@given(st.integers(0, 200), st.integers(1, 12))
def test_items_of_workers_are_a_partition(items: int, of: int) -> None:
    """Every item belongs to exactly one worker, and no worker has two more than another."""
    ids = [str(n) for n in range(items)]
    assigned = [WorkerItems(rank=rank, of=of).indices(ids) for rank in range(of)]

    assert sorted(index for items in assigned for index in items) == list(range(items))
    assert max(map(len, assigned)) - min(map(len, assigned)) <= 1


def test_a_worker_without_a_slot_runs_nothing() -> None:
    """More workers than requests may be in flight."""
    assert WorkerItems(rank=None, of=2).indices(["a", "b"]) == []


@given(st.data())
def test_every_item_runs_once_whoever_dies_when(data: st.DataObject) -> None:
    """Random runs and deaths, of replacements too, before and after they start: nothing lost, nothing twice."""
    workers = data.draw(st.integers(1, 4), label="workers")
    session = Session(workers, data.draw(st.integers(1, workers), label="active"), data.draw(st.integers(0, 25)))
    waiting = list(session.nodes)
    alive: list[Node] = []
    deaths = 0
    while waiting or any(node.sent for node in alive):
        choices = ["ready"] * bool(waiting) + ["run"] * any(node.sent for node in alive)
        dying = [node for node in alive if node.sent] + waiting
        choices += ["die"] * (bool(dying) and deaths < 8)
        match data.draw(st.sampled_from(choices)):
            case "ready":
                node = waiting.pop(0)
                session.ready(node)
                alive.append(node)
            case "run":
                session.run_one(data.draw(st.sampled_from([node for node in alive if node.sent])))
            case "die":
                node = data.draw(st.sampled_from(dying))
                deaths += 1
                (alive if node in alive else waiting).remove(node)
                waiting.append(session.die(node))

    assert sorted(session.done + session.given_up) == sorted(session.ids)
    assert session.scheduler.tests_finished
    assert all(node.ended for node in alive)


def test_a_replacement_runs_only_what_is_reserved_for_nobody_else() -> None:
    """Two workers die; the first replacement has the items of both or its own, the second never the same items."""
    session = Session(2, 2, 12)
    for node in session.nodes:
        session.ready(node)
    one = session.die(session.nodes[0])
    two = session.die(session.nodes[1])

    left = [set(session.assigned[clone].left or ()) for clone in (one, two)]
    assert left[0] | left[1] == set(session.ids)
    assert not left[0] & left[1]


def test_the_replacement_of_one_that_died_before_it_was_sent_items_takes_its_rank() -> None:
    """Nothing was sent yet, so no items are left behind."""
    session = Session(2, 2, 3)
    session.scheduler.add_node(session.nodes[0])
    clone = session.die(session.nodes[0])

    session.ready(clone)
    session.ready(session.nodes[1])

    assert (clone.sent, session.nodes[1].sent) == ([0, 2], [1])


def test_a_replacement_with_other_items_stops_the_session() -> None:
    """xdist's own schedulers wait for ever here."""
    session = Session(1, 1, 3)
    session.ready(session.nodes[0])
    clone = session.die(session.nodes[0])

    session.ready(clone, ["item-0", "something else"])

    assert "gw0x collected other items" in session.stopped[0]
    assert clone.sent == []


def test_an_item_is_given_up_after_three_deaths() -> None:
    """Twice it may have been bad luck."""
    session = Session(1, 1, 1)
    node = session.nodes[0]
    session.ready(node)
    for _ in range(3):
        node = session.die(node)
        session.ready(node)

    assert session.given_up == session.ids
    assert session.scheduler.tests_finished


def test_enough_failures_withdraw_what_has_not_begun() -> None:
    """All but the item that runs and the next one; asked again where the worker had gone on meanwhile."""
    session = Session(1, 1, 6)
    (node,) = session.nodes
    session.ready(node)

    session.scheduler.withdraw_pending()
    session.run_one(node)
    session.scheduler.remove_pending_tests_from_node(node, [])
    session.scheduler.remove_pending_tests_from_node(node, [3, 4, 5])

    assert node.stolen == [[2, 3, 4, 5], [3, 4, 5]]
    session.run_one(node)
    session.run_one(node)
    assert session.scheduler.tests_finished


def test_a_worker_that_has_ended_by_itself_keeps_no_other_from_being_told() -> None:
    """With -x a worker ends at its own failure, and its channel may be closed before the failure is heard of."""
    session = Session(2, 2, 12)
    one, other = session.nodes
    session.ready(one)
    session.ready(other)
    one.deaf = True

    session.scheduler.withdraw_pending()

    assert one.stolen == []
    assert other.stolen == [[5, 7, 9, 11]]
