"""The gates of a run."""

from __future__ import annotations

from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import Gate, check_metric, parse_gate
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.tempaffect.card_metrics import metric_scales

__all__ = ["parse_gates"]


def parse_gates(plan: RunPlan, content: Content) -> tuple[Gate, ...]:
    """The gates of a run. Raises `ConfigError` for a gate that cannot be read or can never be decided."""
    gates = tuple(parse_gate(expr) for expr in plan.settings.gate)
    for gate in gates:
        spiral = gate.suite == "spiral"
        metrics = spiral_metric_scales(content.spiral.protocol) if spiral else metric_scales()
        modes = () if spiral else plan.settings.prompting
        check_metric(gate, plan.suites, modes, metrics, baseline=plan.settings.baseline is not None)
    return gates
