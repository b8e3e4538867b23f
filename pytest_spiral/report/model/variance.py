"""Where the variance of a mean comes from, and what would reduce it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pytest_spiral.report.model.base import Rate, Record
from pytest_spiral.stats import ClusterUnit

__all__ = ["NextStep", "Variance"]

NotNegative = Annotated[float, Field(ge=0)]
AtLeastOne = Annotated[float, Field(ge=1)]


class NextStep(Record):
    """One way to spend twice the calls."""

    what: str
    se: NotNegative
    """The standard error afterwards."""
    share: NotNegative
    """The same as a share of the present one."""


class Variance(Record):
    """Variance components of a mean. A null component cannot be separated in this run."""

    unit: ClusterUnit
    n: Annotated[int, Field(ge=2)]
    """Units."""
    repetitions: AtLeastOne
    """Mean repetitions per unit."""
    judges: AtLeastOne
    """Mean judges per repetition."""
    between: NotNegative
    """Variance between units."""
    rerun: NotNegative | None
    """Variance between repetitions of a unit."""
    judge: NotNegative | None
    """Variance between judges of one repetition."""
    judge_spread: NotNegative | None
    """Standard deviation between the judges' own means."""
    icc: Rate | None
    """Intraclass correlation."""
    design_effect: NotNegative | None
    se: NotNegative
    """Standard error over other units like these."""
    rerun_se: NotNegative | None
    """Standard error over repetitions of the same units."""
    rerun_mde: NotNegative | None
    """Minimum detectable difference of two such runs on the same units."""
    next: tuple[NextStep, ...]
    """The most effective first."""
    advice: str
