"""Release conditions: their language, and what the data allow to conclude about them."""

from pytest_spiral.gates.decision import (
    conclude,
    decide,
    limit_missing,
    nothing_measured,
    outcome_of,
    with_standing,
)
from pytest_spiral.gates.estimate import Measured, Sample, measure, measure_difference
from pytest_spiral.gates.grammar import Gate, Scale, check_metric, parse_gate
from pytest_spiral.gates.records import (
    Decision,
    DecisionCode,
    DecisionReason,
    JudgeStanding,
    Outcome,
    Policy,
    Standing,
)

__all__ = [
    "Decision",
    "DecisionCode",
    "DecisionReason",
    "Gate",
    "JudgeStanding",
    "Measured",
    "Outcome",
    "Policy",
    "Sample",
    "Scale",
    "Standing",
    "check_metric",
    "conclude",
    "decide",
    "limit_missing",
    "measure",
    "measure_difference",
    "nothing_measured",
    "outcome_of",
    "parse_gate",
    "with_standing",
]
