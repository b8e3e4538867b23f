"""The gates of a run, and the baseline: a finished run that relative gates compare it with."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_spiral.compare.recording import (
    SPIRAL_HASHES,
    UNWRAPPED,
    Identity,
    Recording,
    check_comparable,
    counterpart,
    load_run,
)
from pytest_spiral.errors import DataError
from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import Gate, check_metric, parse_gate
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.tempaffect.card_metrics import metric_scales


@dataclass(frozen=True)
class Gates:
    """The gates to decide; baseline: None where none is named."""

    gates: tuple[Gate, ...]
    baseline: Recording | None


def load_gates(plan: RunPlan, content: Content) -> Gates:
    """The gates of a run. Raises `UserError` for a gate or baseline that cannot be read or can never be used."""
    gates = tuple(map(parse_gate, plan.settings.gate))
    for gate in gates:
        spiral = gate.suite == "spiral"
        metrics = spiral_metric_scales(content.spiral.protocol) if spiral else metric_scales()
        modes = () if spiral else plan.settings.prompting
        check_metric(gate, plan.suites, modes, metrics, baseline=plan.settings.baseline is not None)
    if plan.settings.baseline is None:
        return Gates(gates, None)
    loaded = Gates(gates, load_run(content.folder / plan.settings.baseline))
    check_baseline(loaded, plan, content, None)
    return loaded


def check_baseline(gates: Gates, plan: RunPlan, content: Content, fingerprint: str | None) -> None:
    """Raise `DataError` for a baseline made under other conditions, or without a model to compare with.

    fingerprint: of the scorer; None while it is unknown.
    """
    baseline = gates.baseline
    if baseline is None:
        return
    planned: dict[str, Identity] = {
        "tempaffect": {
            "suite_hash": content.suite.suite_hash,
            "scorer_fingerprint": fingerprint,
            "system_prompt": content.system_hash or UNWRAPPED,
        },
        "spiral": _planned_spiral(plan, content),
    }
    for suite in sorted({gate.suite for gate in gates.gates if gate.relative}):
        if suite not in baseline.identity:
            raise DataError(f"{baseline.name}: no measurements of {suite}")
        check_comparable(suite, baseline.identity[suite], planned[suite], (baseline.name, "this run"))
        for model in plan.of_suite("spiral" if suite == "spiral" else "tempaffect"):
            counterpart(model, baseline, suite)


def _planned_spiral(plan: RunPlan, content: Content) -> Identity:
    """The identity that the conversations of the run will have."""
    spiral: dict[str, str | None]
    if content.recording is not None:
        spiral = dict(content.recording.identity.get("spiral", {}))
    else:
        hashes = content.spiral.hashes()
        spiral = {
            **{name: hashes[name] for name in SPIRAL_HASHES},
            "system_prompt": content.system_hash or UNWRAPPED,
            "user_model": plan.user.model_id if plan.user else None,
            "num_turns": str(plan.settings.num_turns),
        }
    if plan.judges:
        spiral["judges"] = ", ".join(sorted(judge.reported_name for judge in plan.judges))
    spiral["protocol_hash"] = content.spiral.protocol.hash
    return spiral
