"""What is known about a judge: how far its labels agree with labels that people trust. Pure records and one rule.

A gate on a single behaviour asks `standing`: without a record it is decided and labelled uncalibrated; with a record
below the bar in `data/spiral/calibration_bar.toml` it is inconclusive, whatever the numbers say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.gates import Standing
from pytest_spiral.report.model.judges import BehaviourCalibration
from pytest_spiral.resources import data_root, read_toml

__all__ = [
    "Calibration",
    "Standing",
    "standing",
]

_STRICT = ConfigDict(extra="forbid", strict=True)
PerMille = Annotated[int, Field(ge=0, le=1000)]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration record. It speaks for these judges under this rubric, and for nobody else.

    judges: model ids of the ensemble, sorted. labels: name and hash of the labelled material.
    """

    __pydantic_config__ = _STRICT

    judges: tuple[str, ...]
    rubric_hash: str
    labels: str
    behaviours: Mapping[str, BehaviourCalibration]


class _Bar(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kappa: PerMille
    kappa_low: PerMille
    sensitivity: Mapping[str, PerMille]


@cache
def _bar() -> _Bar:
    path = data_root() / "spiral" / "calibration_bar.toml"
    try:
        return _Bar.model_validate(read_toml(path))
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error)}") from None


def standing(calibration: Calibration | None, behaviour: str) -> tuple[Standing, str]:
    """Whether the judge may decide about a behaviour, and why not.

    It needs enough agreement with the labels, a high enough lower bound, and for some behaviours enough sensitivity.
    What was not measured on the labelled material (no record, no such behaviour in it) is uncalibrated.
    """
    measured = calibration.behaviours.get(behaviour) if calibration else None
    if measured is None:
        return "uncalibrated", "the judge was not calibrated on it"
    bar = _bar()
    least = bar.sensitivity.get(behaviour)
    if measured.kappa is None or (least is not None and measured.sensitivity is None):
        return "uncalibrated", "the labelled material does not hold both classes of it"
    faults = []
    if measured.kappa.value * 1000 < bar.kappa or measured.kappa.low * 1000 < bar.kappa_low:
        faults.append(
            f"agreement {measured.kappa.value:.2f} (lower bound {measured.kappa.low:.2f}), "
            f"expected at least {bar.kappa / 1000:.2f} ({bar.kappa_low / 1000:.2f})"
        )
    if least is not None and measured.sensitivity is not None and measured.sensitivity.value * 1000 < least:
        faults.append(f"sensitivity {measured.sensitivity.value:.2f}, expected at least {least / 1000:.2f}")
    return ("below_bar", "; ".join(faults)) if faults else ("calibrated", "")
