"""The baseline of a run: a finished run that relative gates compare it with."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_spiral.compare.recording import (
    SPIRAL_HASHES,
    Identity,
    RecordedRun,
    check_comparable,
    counterpart,
    identity_of,
    load_run,
)
from pytest_spiral.errors import DataError
from pytest_spiral.gates import Gate
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan


def load_baseline(gates: Sequence[Gate], plan: RunPlan, content: Content) -> RecordedRun | None:
    """The baseline of a run; None where none is named. Raises `DataError` where it cannot be used."""
    if plan.settings.baseline is None:
        return None
    baseline = load_run(content.folder / plan.settings.baseline)
    check_baseline(baseline, gates, plan, content, None)
    return baseline


def check_baseline(
    baseline: RecordedRun, gates: Sequence[Gate], plan: RunPlan, content: Content, fingerprint: str | None
) -> None:
    """Refuse a baseline made under other conditions, or without a model to compare with.

    fingerprint: of the scorer; None while it is unknown.

    Raises:
        DataError: Naming what differs.
    """
    planned = _planned_identity(plan, content, fingerprint)
    for suite in sorted({gate.suite for gate in gates if gate.relative}):
        if suite not in baseline.identity:
            raise DataError(f"{baseline.path}: no measurements of {suite}")
        check_comparable(suite, baseline.identity[suite], planned[suite], (baseline.path, "this run"))
        for model in plan.of_suite("spiral" if suite == "spiral" else "tempaffect"):
            counterpart(model, baseline, suite)


def _planned_identity(plan: RunPlan, content: Content, fingerprint: str | None) -> dict[str, Identity]:
    """The identity that the run will have."""
    spiral: dict[str, str | None]
    if content.recording is not None:
        spiral = dict(identity_of(content.recording).get("spiral", {}))
    else:
        hashes = content.spiral.hashes()
        spiral = {
            **{name: hashes[name] for name in SPIRAL_HASHES},
            "user_model": plan.user.model_id if plan.user else None,
            "num_turns": str(plan.settings.num_turns),
        }
    if plan.judges:
        names = (judge.spec if judge.kind == "dry" else judge.model_id for judge in plan.judges)
        spiral["judges"] = ", ".join(sorted(names))
    spiral["protocol_hash"] = content.spiral.protocol.hash
    return {
        "tempaffect": {"suite_hash": content.suite.suite_hash, "scorer_fingerprint": fingerprint},
        "spiral": spiral,
    }
