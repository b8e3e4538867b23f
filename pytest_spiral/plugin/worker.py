"""The role of an xdist worker: it runs the items it is given and reports to the lead."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.errors import UserError
from pytest_spiral.plugin.role import PROGRESS, Role
from pytest_spiral.plugin.scheduler import Share
from pytest_spiral.run.content import load_content
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.run.remote_workers import AwayStore
from pytest_spiral.run.runner import Runner
from pytest_spiral.store import RunStore

__all__ = ["WorkerRole"]


class WorkerRole(Role):
    """An xdist worker: runs the items it is given, reports to the lead."""

    def __init__(self, config: pytest.Config) -> None:
        handed = json.loads(config.workerinput["spiral"])  # type: ignore[attr-defined]  # set by xdist
        self._plan = RunPlan.model_validate_json(handed["plan"])
        self._given: Mapping[str, Any] | None = handed["baggage"]
        # What lies at the lead's path is not there: files of one's own are looked for where the worker stands.
        content = load_content(self._plan.settings, Path.cwd() if self._given else Path(handed["folder"]))
        super().__init__(config, self._plan.settings, content, handed["nodes"])
        self._share = Share.model_validate_json(handed["share"]) if handed["share"] else None
        self._away: AwayStore | None = None
        config.args = list(handed["args"])

    @property
    def plan(self) -> RunPlan:
        return self._plan

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            self._runner = Runner(self.plan, self.content, self._open_store(), self.environ)
        return self._runner

    def _open_store(self) -> RunStore:
        if self._given is None:
            return RunStore.join(self.plan.store_path)
        try:
            self._away = AwayStore.open(self._given, self.plan.identity(self.content))
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        return self._away

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
        """Without a shared folder the replies ride home as well: all that came since the last time."""
        report: pytest.TestReport = yield from super().pytest_runtest_makereport(item)
        if self._away is not None and (packed := self._away.pack()) is not None:
            report.__dict__["spiral_replies"] = packed
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """What no report has taken home leaves with the worker itself."""
        if self._away is not None:
            self.runner.stop()
            session.config.workeroutput["spiral_replies"] = self._away.pack()  # type: ignore[attr-defined]  # xdist's

    def _prefetchable(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        if self._share is None:
            # xdist may still take other items away from this worker; these two it cannot.
            return [item] if nextitem is None else [item, nextitem]
        if self._started:
            return []
        self._started = True
        items = item.session.items
        return [items[index] for index in self._share.of_collection([each.nodeid for each in items])]

    def _interval(self) -> float:
        return self.progress_seconds

    def _tell(self, item: pytest.Item, done: int, submitted: int) -> None:
        # A worker has no terminal; what it has to say travels like a test report.
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="passed",
            longrepr=None,
            when=PROGRESS,
        )
        report.__dict__["spiral_progress"] = [done, submitted]
        item.ihook.pytest_runtest_logreport(report=report)
