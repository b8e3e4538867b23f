"""The controller of a run: prepares it before its first item and gathers its results. One per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pytest_spiral.evaluate.inputs import RunResults
from pytest_spiral.models.budget import Budget, Ledger
from pytest_spiral.models.endpoint import Secret
from pytest_spiral.models.limiter import starting_pace
from pytest_spiral.run.baseline import check_baseline, load_baseline
from pytest_spiral.run.content import Content
from pytest_spiral.run.costs import paid_prices
from pytest_spiral.run.directory import make_run_directory
from pytest_spiral.run.gates import parse_gates
from pytest_spiral.run.models import pace_name
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.run.probes import reach_models, verify_schemas
from pytest_spiral.run.results import Ending, Gates, Measurements, StoreTraffic, run_results
from pytest_spiral.run.servers import LocalServers
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.self_check import preflight
from pytest_spiral.tempaffect.suite import load_suite

__all__ = ["RunController"]


class RunController:
    """A run from its preparation to its results.

    Attributes:
        plan: The plan; complete once the run is prepared.
        gates: The gates to decide.
        measured: What has arrived so far.
        environ: Environment variables, completed from `.env`.

    Raises:
        UserError: For a gate or baseline that can never be used.
    """

    def __init__(self, plan: RunPlan, content: Content, environ: Mapping[str, str]) -> None:
        self.plan = plan
        self.content = content
        self.measured = Measurements()
        gates = parse_gates(plan, content)
        self.gates = Gates(gates, load_baseline(gates, plan, content))
        self.environ = environ
        self._store: RunStore | None = None
        self._budget: Budget | None = None
        self._servers = LocalServers()

    @property
    def store(self) -> RunStore:
        """The run's store. Only for a run that is prepared."""
        assert self._store is not None
        return self._store

    def prepare(self) -> None:
        """Make the run directory and the store, check the scorer, start local models: all that workers rely on.

        Nothing is sent to any endpoint. Raises `UserError`.
        """
        self.plan = make_run_directory(self.plan)
        self._store = RunStore.create_or_resume(self.plan.store_path, self.plan.identity(self.content), alone=True)
        if "tempaffect" in self.plan.suites:
            # On the bundled scenarios even if a run has its own: one scorer has one fingerprint.
            self.measured.preflight = preflight(load_suite())
            if self.gates.baseline is not None:
                fingerprint = self.measured.preflight.fingerprint
                check_baseline(self.gates.baseline, self.gates.gates, self.plan, self.content, fingerprint)
        self._open_budget()
        self.plan = self._servers.start(self.plan)

    def _open_budget(self) -> None:
        """With --max-cost: check that the limit can be kept, and take over what earlier sessions have spent."""
        limit = self.plan.settings.max_cost
        if limit is not None:
            prices = paid_prices(self.plan.everybody)
            ledger = Ledger(self.plan.store_path)
            ledger.begin(self._traffic.usage(0).cost_usd or 0.0)
            self._budget = Budget(ledger, limit, prices)

    @property
    def _traffic(self) -> StoreTraffic:
        return StoreTraffic(self.store, self.plan)

    def reach(self) -> None:
        """Reach every model before anything that is scored is sent. Raises `UserError`."""
        remote = [model for model in self.plan.everybody if model.endpoint is not None]
        if not self.store.has_replies():
            reach_models(remote, self.environ)
        if "tempaffect" in self.plan.suites and "schema" in self.plan.settings.prompting:
            verified = verify_schemas(self.plan.models, self.store, self.environ, self._budget)
            self.measured.enforcement.update(verified)
        if self.plan.settings.calibrate and self.plan.judges:
            # Only a calibration loads what it needs.
            from pytest_spiral.run.calibrate import calibrate

            self.measured.calibrated = calibrate(self.plan, self.content, self.store, self.environ)
        # An earlier session of this run may have been throttled: every session begins anew.
        for model in remote:
            name = pace_name(model)
            self.store.set_pace(name, self.store.pace(name), starting_pace(self.plan.most_in_flight(model)))

    def results(self, argv: Sequence[str], finished_at: datetime, *, complete: bool) -> RunResults:
        """Everything that the evaluation needs, as it stands now."""
        ending = Ending([_redacted(argument, self.environ) for argument in argv], finished_at, complete)
        return run_results(self.plan, self.content, self.measured, self._traffic, ending, self.gates)

    def close(self) -> None:
        """Stop local servers, close budget and store. Harmless when called twice."""
        self._servers.close()
        if self._budget is not None:
            self._budget.close()
        if self._store is not None:
            self._store.close()


def _redacted(argument: str, environ: Mapping[str, str]) -> str:
    """A command-line argument without anything that is or looks like a key."""
    for name, value in environ.items():
        if name.endswith("_API_KEY") and value.strip():
            argument = argument.replace(value.strip(), "[redacted]")
    return Secret().redact(argument)
