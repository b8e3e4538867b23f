"""Leading xdist workers: they get the plan and a share of the items, their results ride home on test reports."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_spiral.plugin.scheduler import FixedShares, Share
from pytest_spiral.run.remote_workers import baggage

if TYPE_CHECKING:
    from pytest_spiral.plugin.controller import LeadRole

__all__ = ["XdistLead"]


class XdistLead:
    """Registered only where items are distributed, so that nothing else needs xdist to be installed."""

    def __init__(self, role: LeadRole) -> None:
        self._role = role
        self._config = role.config
        self._fixed = self._config.getoption("dist") == "load"
        self._workers = 1
        self._shares: dict[Any, Share] = {}
        self._dead: Share | None = None
        self._scheduler: FixedShares | None = None
        self._collected: set[str] = set()
        self._reported: set[str] = set()
        self._failures = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionstart(self) -> Generator[None]:
        """While the workers start, reach the models. No item is handed out before."""
        yield
        try:
            self._role.reach()
        except pytest.UsageError:
            self._session().pytest_sessionfinish()
            raise

    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """Know how many workers there will be."""
        self._workers = len(specs)

    def pytest_configure_node(self, node: Any) -> None:
        """Hand a worker the plan as JSON text; keys are not in it, each worker reads its own environment."""
        share = self._next_share()
        self._shares[node] = share
        if self._scheduler is not None:
            self._scheduler.promise(node, share)
        plan = self._role.plan.model_copy(update={"workers": share.of, "rank": share.rank or 0})
        lead = self._role.lead
        away = _is_away(node.gateway.spec)
        if away and plan.settings.max_cost is not None:
            raise pytest.UsageError(
                "--max-cost needs workers that share the run's folder; leave --tx out, or use --shard"
            )
        if away:
            plan = plan.model_copy(update={"run_dir": ""})
        node.workerinput["spiral"] = json.dumps(
            {
                "baggage": baggage(lead.store, plan.identity(lead.content)) if away else None,
                "plan": plan.model_dump_json(),
                "share": share.model_dump_json() if self._fixed else None,
                "folder": str(self._role.content.folder),
                "nodes": list(self._role.nodes),
                "args": list(self._config.args),
            }
        )

    def _next_share(self) -> Share:
        """The share of the worker that is started now. More workers than requests may be in flight have none."""
        if self._dead is not None:
            dead, self._dead = self._dead, None
            return self._scheduler.inheritance(dead) if self._scheduler is not None else dead
        rank, of = len(self._shares), self._role.plan.active_workers(self._workers)
        return Share(rank=rank if rank < of else None, of=of)

    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Remember who died: xdist starts a replacement right after this."""
        if error:
            self._dead = self._shares[node]
        self._role.take_replies(getattr(node, "workeroutput", {}).get("spiral_replies"))

    def pytest_xdist_make_scheduler(self) -> FixedShares | None:
        """Fixed shares for `-n` as it is; whoever asks for another way of distributing gets it."""
        if self._fixed:
            self._scheduler = FixedShares(self._workers, self._shares, self._stop)
        return self._scheduler

    def _stop(self, reason: str) -> None:
        self._session().shouldstop = reason

    def _session(self) -> Any:
        return self._config.pluginmanager.get_plugin("dsession")

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Know what must be reported in the end."""
        self._collected.update(ids)

    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """The item that was waited for when a worker died is tried again; its stored replies are not lost."""
        if self._scheduler is not None and self._scheduler.may_run_again(crashitem):
            self._scheduler.mark_test_pending(crashitem)
            report.outcome = "rerun"  # type: ignore[assignment]  # as pytest-rerunfailures calls it

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """How a rerun is shown where no plugin for reruns says so."""
        return ("rerun", "R", "RERUN") if _is_rerun(report) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count failures as xdist does; at the limit nothing more is begun."""
        if not _is_rerun(report):
            self._reported.add(report.nodeid)
        self._failures += report.failed
        most = self._config.getvalue("maxfail")
        if most and self._failures >= most and self._scheduler is not None:
            self._scheduler.take_back()

    def lost(self) -> list[str]:
        """Items that were collected and never reported."""
        return sorted(self._collected - self._reported)


def _is_away(spec: Any) -> bool:
    """Whether a worker cannot be taken to see the run's folder: it is on another machine, or told to be elsewhere."""
    return not spec.popen or bool(spec.chdir)


def _is_rerun(report: pytest.TestReport) -> bool:
    return str(report.outcome) == "rerun"
