"""A worker of pytest-xdist: it runs the items it is given and reports them to the controller."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from pytest_spiral.models.environment import load_environment
from pytest_spiral.plugin._compat import worker_input, worker_output
from pytest_spiral.plugin.collection import Collection
from pytest_spiral.plugin.execution import ActiveParts, Execution, usage_errors
from pytest_spiral.plugin.scheduler import WorkerItems
from pytest_spiral.run.content import Content
from pytest_spiral.run.models import Chats, Connections
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.run.remote_workers import Package, RemoteStore, open_package
from pytest_spiral.run.runner import Runner
from pytest_spiral.store import RunStore


class Assignment(BaseModel):
    """What the controller gives to a worker. Keys are not in it: each worker reads its own environment.

    plan: with the worker's rank. items: None where xdist hands them out. directory: where paths in the configuration
    start. nodes: bundled node ids to collect. args: other arguments to collect. store_file: the controller's store;
    a file that has taken its place before the worker began is not the run's. package: the content of the store, for a
    worker that does not see the run directory.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    plan: RunPlan
    items: WorkerItems | None
    directory: str
    nodes: tuple[str, ...]
    args: tuple[str, ...]
    store_file: tuple[int, int] | None
    package: Package | None


def start_worker(config: pytest.Config) -> ActiveParts:
    """Make this process a worker."""
    given = worker_input(config)
    assert given is not None
    assignment = Assignment.model_validate_json(given["spiral"])
    plan, assigned, package = assignment.plan, assignment.items, assignment.package
    # The controller's files need not exist here: paths start where this worker was started.
    content = Content(plan.settings, Path.cwd() if package else Path(assignment.directory))
    environ = load_environment(os.environ, config.invocation_params.dir)
    config.args = list(assignment.args)

    def open_runner() -> Runner:
        if package is None:
            store = RunStore.join(plan.store_path, assignment.store_file)
        else:
            with usage_errors():
                store = sender.store = open_package(package, plan.identity(content))
        return Runner(Chats(plan, content, store, Connections(plan, content, store, environ)))

    def of_this_worker(items: Sequence[pytest.Item]) -> Sequence[pytest.Item]:
        assert assigned is not None
        return [items[index] for index in assigned.indices([item.nodeid for item in items])]

    execution = Execution(content, open_runner, None if assigned is None else of_this_worker)
    sender = _Sender(execution)
    collection = Collection(config, plan, content, assignment.nodes)
    config.pluginmanager.register(collection, "spiral-collection")
    config.pluginmanager.register(execution, "spiral-execution")
    if package is not None:
        config.pluginmanager.register(sender, "spiral-sender")
    return ActiveParts(collection, execution, execution.close)


class _Sender:
    """Hooks of a worker without access to the run's store: they send home every reply it gets."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        # None until something is asked.
        self.store: RemoteStore | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach what came in since the last report."""
        report = yield
        if self.store is not None and (packed := self.store.pack()) is not None:
            report.__dict__["spiral_replies"] = packed
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """What no report has taken leaves with the worker itself."""
        self._execution.stop()
        worker_output(session.config)["spiral_replies"] = self.store.pack() if self.store is not None else None
