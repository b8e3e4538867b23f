"""The controller's side of pytest-xdist: workers get the plan and the items that they are to run."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_spiral.plugin._compat import Node, is_on_this_machine, run_in_controller_loop, stop_session
from pytest_spiral.plugin.collection import SUITE_FILES
from pytest_spiral.plugin.scheduler import FixedScheduler, WorkerItems
from pytest_spiral.plugin.worker import Assignment
from pytest_spiral.run.plan import all_units
from pytest_spiral.run.remote_workers import make_package

if TYPE_CHECKING:
    from pytest_spiral.plugin.controller import Controller


class Distribution:
    """Hooks that are registered only where items are distributed, so that nothing else needs xdist to be installed."""

    def __init__(self, config: pytest.Config, controller: Controller, nodes: Sequence[str]) -> None:
        self._config = config
        self._controller = controller
        self._nodes = tuple(nodes)
        self._fixed = config.getoption("dist") == "load"
        self._workers = 1
        self._assigned: dict[Node, WorkerItems] = {}
        self._dead: WorkerItems | None = None
        self._scheduler: FixedScheduler | None = None
        self._collected: set[str] = set()
        self._reported: set[str] = set()
        self._failures = 0
        self._ended = threading.Event()

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionstart(self) -> Generator[None]:
        """Write progress from the moment when the workers have been started."""
        yield
        threading.Thread(target=self._keep_telling, name="spiral-progress", daemon=True).start()

    def _keep_telling(self) -> None:
        """Workers have no terminal, and xdist's loop waits for them: a clock of our own asks it to write progress."""
        progress = self._controller.progress
        while not self._ended.wait(progress.seconds):
            run_in_controller_loop(self._config, progress.write)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Stop the clock."""
        self._ended.set()

    def pytest_xdist_setupnodes(self, specs: Sequence[object]) -> None:
        """Know how many workers there will be."""
        self._workers = len(specs)

    def pytest_configure_node(self, node: Node) -> None:
        """Give a worker its assignment, as JSON."""
        items = self._next_assignment()
        self._assigned[node] = items
        if self._scheduler is not None:
            self._scheduler.reserve(node, items)
        run = self._controller.run
        plan = run.plan.model_copy(update={"workers": items.of, "rank": items.rank or 0})
        package = None
        if not is_on_this_machine(node):
            if plan.settings.max_cost is not None:
                raise pytest.UsageError(
                    "--max-cost needs workers that see the run directory; leave --tx out, or use --shard"
                )
            package = make_package(run.store, plan.identity(run.content))
            plan = plan.model_copy(update={"run_dir": ""})
        assignment = Assignment(
            plan=plan,
            items=items if self._fixed else None,
            directory=str(run.content.folder),
            nodes=self._nodes,
            args=tuple(self._config.args),
            store_file=run.store.file,
            package=package,
        )
        node.workerinput["spiral"] = assignment.model_dump_json(ensure_ascii=True)

    def _next_assignment(self) -> WorkerItems:
        """The items of the worker that starts now. Workers beyond the number of requests allowed have none."""
        if self._dead is not None:
            dead, self._dead = self._dead, None
            return self._scheduler.items_of_replacement(dead) if self._scheduler is not None else dead
        rank, of = len(self._assigned), self._controller.run.plan.active_workers(self._workers)
        return WorkerItems(rank=rank if rank < of else None, of=of)

    def pytest_testnodedown(self, node: Node, error: object | None) -> None:
        """Remember who died: xdist starts a replacement right after this."""
        if error:
            self._dead = self._assigned[node]
        self._controller.store_replies(getattr(node, "workeroutput", {}).get("spiral_replies"))

    def pytest_xdist_make_scheduler(self) -> FixedScheduler | None:
        """Items are assigned once and for all with plain `-n`; another way of distributing is left to xdist."""
        if self._fixed:
            self._scheduler = FixedScheduler(
                self._workers, self._assigned, lambda reason: stop_session(self._config, reason), self._config
            )
        return self._scheduler

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Know what must be reported in the end."""
        self._collected.update(ids)
        names, run = {name.partition("[")[2] for name in self._collected}, self._controller.run
        self._controller.units = [unit for unit in all_units(run.plan, run.content) if f"{unit.id}]" in names]
        self._controller.planned = sum(name.partition("::")[0] in SUITE_FILES.values() for name in self._collected)

    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """An item that was waited for when a worker died is tried again; its stored replies are not lost."""
        if self._scheduler is not None and self._scheduler.may_run_again(crashitem):
            self._scheduler.mark_test_pending(crashitem)
            report.outcome = "rerun"  # type: ignore[assignment]  # as pytest-rerunfailures calls it

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show reruns where no plugin for reruns does."""
        return ("rerun", "R", "RERUN") if _is_rerun(report) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count failures as xdist does; at the limit nothing more is started."""
        if not _is_rerun(report):
            self._reported.add(report.nodeid)
        self._failures += report.failed
        most = self._config.getvalue("maxfail")
        if most and self._failures >= most and self._scheduler is not None:
            self._scheduler.withdraw_pending()

    def lost(self) -> list[str]:
        """Items that were collected and never reported."""
        return sorted(self._collected - self._reported)


def _is_rerun(report: pytest.TestReport) -> bool:
    return str(report.outcome) == "rerun"
