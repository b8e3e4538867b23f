"""The controller of a run: prepares it before its first item and gathers its results. One per run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path

from pytest_spiral.errors import ConfigError, StoreError
from pytest_spiral.evaluate.inputs import RunResults
from pytest_spiral.models.budget import Ledger
from pytest_spiral.models.endpoint import OPTION_OF, Secret
from pytest_spiral.models.environment import EndpointSettings
from pytest_spiral.models.limiter import starting_pace
from pytest_spiral.models.local_file import locate
from pytest_spiral.models.local_server import served
from pytest_spiral.report.next_step import again
from pytest_spiral.run.baseline import check_baseline, load_gates
from pytest_spiral.run.content import Content
from pytest_spiral.run.models import pace_name, paid_prices
from pytest_spiral.run.plan import ModelPlan, RunPlan
from pytest_spiral.run.preflight import remembered, run_preflight
from pytest_spiral.run.results import Measurements, run_results, stored_traffic
from pytest_spiral.settings import OPTIONS
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.self_check import check_scorer
from pytest_spiral.tempaffect.suite import load_suite

# Characters. A shorter key is redacted as a whole word only.
_LONG_KEY = 8


class RunController:
    """A run from its preparation to its results. Raises `UserError` for a gate or baseline that can never be used."""

    def __init__(self, plan: RunPlan, content: Content, environ: Mapping[str, str]) -> None:
        self.plan, self.content, self.environ = plan, content, environ
        self.measured = Measurements()
        self.gates = load_gates(plan, content)
        self._store: RunStore | None = None
        self._servers = ExitStack()

    @property
    def store(self) -> RunStore:
        """The run's store. Only for a run that is prepared."""
        assert self._store is not None
        return self._store

    def prepare(self) -> None:
        """Make the run directory and the store, check the scorer, start local models: all that workers rely on.

        Nothing is sent to any endpoint. Raises `UserError`.
        """
        self.plan = _make_run_directory(self.plan)
        if Path(self.plan.run_dir, "report.json").exists() and not self.plan.store_path.exists():
            why = "has a report but no store (run.sqlite): every call would be paid for again, and the report replaced"
            raise StoreError(f"{self.plan.run_dir}: {why}; restore run.sqlite, or choose another --run-id")
        self._store = RunStore.create_or_resume(self.plan.store_path, self.plan.identity(self.content), alone=True)
        if "tempaffect" in self.plan.suites:
            # On the bundled scenarios even if a run has its own: one scorer has one fingerprint.
            self.measured.self_check = check_scorer(load_suite())
            check_baseline(self.gates, self.plan, self.content, self.measured.self_check.fingerprint)
        if self.plan.settings.max_cost is not None:
            paid_prices(self.plan.everybody)
            # Earlier sessions of this run count.
            with closing(Ledger(self.plan.store_path)) as ledger:
                ledger.begin(stored_traffic(self.store, self.plan, self.measured).usage.cost_usd or 0.0)
        self._start_local_models()

    def _start_local_models(self) -> None:
        """One server for each local model, shared by all roles and workers."""
        endpoints: dict[str, EndpointSettings] = {}

        def with_endpoint(model: ModelPlan) -> ModelPlan:
            if model.kind != "local":
                return model
            if model.spec not in endpoints:
                url = self._servers.enter_context(served(locate(model.spec)))
                endpoints[model.spec] = EndpointSettings(base_url=url, key_variable=None)
            return model.model_copy(update={"endpoint": endpoints[model.spec]})

        everybody = tuple(map(with_endpoint, self.plan.everybody))
        self.plan = self.plan.model_copy(update={"everybody": everybody})

    def check_models(self) -> None:
        """Learn how every model is to be asked, before anything that is scored is sent. Raises `UserError`."""
        # An earlier session of this run may have been throttled: every session begins anew.
        for model in self.plan.everybody:
            if model.endpoint is not None:
                name = pace_name(model)
                self.store.set_pace(name, self.store.pace(name), starting_pace(self.plan.most_in_flight(model)))
        if self.plan.settings.no_preflight:
            examined = remembered(self.plan, self.content, self.store)
        else:
            examined = run_preflight(self.plan, self.content, self.store, self.environ)
        self.plan, self.measured.learned = examined.plan, examined.records
        self.measured.enforcement.update(examined.enforcement)
        if self.plan.settings.calibrate and self.plan.judges:
            # Only a calibration loads what it needs.
            from pytest_spiral.run.calibrate import calibrate

            labelled = self.content.calibration_labels()
            found = calibrate(self.plan, self.content, self.store, self.environ, labelled)
            self.measured.calibrated = {name: each.report(found.drift.get(name)) for name, each in found.judges.items()}

    def judge_anchors(self) -> None:
        """Have the judges label the anchors, before any conversation is judged. Raises `UserError`."""
        if self.plan.judges:
            # Only a run with judges loads what it needs.
            from pytest_spiral.run.calibrate import judged_anchors

            self.measured.anchors = judged_anchors(self.plan, self.content, self.store, self.environ)

    def shown_arguments(self, argv: Sequence[str]) -> list[str]:
        """A command line without anything that is or looks like a key.

        A key of a few letters is a word that names and values hold, too. No option of ours takes a key, so what follows
        one stays, or the command would not work when it is pasted.
        """
        named = {name for model in self.plan.everybody if model.endpoint for name in model.endpoint.secrets}
        environ = self.environ.items()
        keys = [value.strip() for name, value in environ if name.endswith("_API_KEY") or name in named]
        own = {name for option in OPTIONS if option.kind != "flag" for name in (option.flag, option.alias)}
        shown: list[str] = []
        for before, argument in itertools.pairwise(["", *argv]):
            is_ours = not own.isdisjoint((before, argument.partition("=")[0]))
            for key in filter(None, keys):
                if len(key) >= _LONG_KEY:
                    argument = argument.replace(key, "[redacted]")
                elif not is_ours:
                    argument = re.sub(rf"(?<![^\s=]){re.escape(key)}(?!\S)", "[redacted]", argument)
            shown.append(Secret().redact(argument))
        return shown

    def mended_command(self, argv: Sequence[str], error: ConfigError) -> str:
        """The command line that starts the run once what the error says is done."""
        right = {(option.partition("=")[0], wrong): option for wrong, option in error.replaced}
        names = {name for name, _ in right}
        # An option that names several models is replaced as a whole.
        models = [(OPTION_OF[model.role], model.spec) for model in self.plan.everybody]
        mended = [right.get((name, spec), f"{name}={spec}") for name, spec in models if name in names]
        others = [option for (name, _), option in right.items() if name not in OPTION_OF.values()]
        return again(self.shown_arguments(argv), *mended, *others)

    def results(self, argv: Sequence[str], finished_at: datetime, *, complete: bool) -> RunResults:
        """Everything that the evaluation needs, as it stands now."""
        traffic = stored_traffic(self.store, self.plan, self.measured)
        return run_results(
            self.plan,
            self.content,
            self.measured,
            traffic,
            self.gates,
            argv=self.shown_arguments(argv),
            finished_at=finished_at,
            complete=complete,
        )

    def close(self) -> None:
        """Stop local servers and close the store. Harmless when called twice."""
        self._servers.close()
        if self._store is not None:
            self._store.close()


def _make_run_directory(plan: RunPlan) -> RunPlan:
    """Make the directory of a run; a default name that another run has taken gets a number. Raises `StoreError`."""
    parent, run_id = Path(plan.run_dir).parent, plan.run_id
    for number in itertools.count(2):
        directory = parent / run_id
        try:
            # Replies and prompts are for their owner alone. A directory that is there keeps its permissions.
            directory.mkdir(mode=0o700, parents=True, exist_ok=plan.settings.run_id is not None)
            break
        except FileExistsError:
            if not directory.is_dir():
                raise StoreError(
                    f"{directory}: a file of this name exists; remove it or give another --report-dir"
                ) from None
            run_id = f"{plan.run_id}-{number}"
        except OSError as error:
            raise StoreError(
                f"{directory}: the run directory cannot be made ({error.strerror}); give a writable --report-dir"
            ) from None
    return plan.model_copy(update={"run_id": run_id, "run_dir": str(directory)})
