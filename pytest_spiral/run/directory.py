"""The run directory: where a run keeps its store and its report."""

from __future__ import annotations

import itertools
from pathlib import Path

from pytest_spiral.errors import StoreError
from pytest_spiral.run.plan import RunPlan

__all__ = ["make_run_directory"]


def make_run_directory(plan: RunPlan) -> RunPlan:
    """Make the directory of a run. Returns the plan; a default name that another run has just taken gets a number.

    Raises:
        StoreError: If it cannot be made.
    """
    parent, run_id = Path(plan.run_dir).parent, plan.run_id
    for number in itertools.count(2):
        directory = parent / run_id
        try:
            directory.mkdir(parents=True, exist_ok=plan.settings.run_id is not None)
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
