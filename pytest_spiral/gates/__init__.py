"""Release conditions: their language, and what the data let one conclude about them."""

from pytest_spiral.gates.decision import (
    Decision,
    Measured,
    Outcome,
    Policy,
    Sample,
    compare,
    conclude,
    decide,
    limited,
    measure,
    with_calibration,
)
from pytest_spiral.gates.grammar import Gate, Scale, check_metric, parse_gate

__all__ = [
    "Decision",
    "Gate",
    "Measured",
    "Outcome",
    "Policy",
    "Sample",
    "Scale",
    "check_metric",
    "compare",
    "conclude",
    "decide",
    "limited",
    "measure",
    "parse_gate",
    "with_calibration",
]
