"""The public suite and a private form of it: does a model do as well on scenarios that it cannot have seen? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.gates import Sample
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.stats import (
    Clusters,
    Interval,
    Tally,
    bca,
    independent_difference,
    minimum_detectable_difference,
    wilson,
)
from pytest_spiral.tempaffect.card_metrics import CardMetrics, bootstrap_draws, mean
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import Item, Mode

__all__ = ["FormRate", "ShadowRow", "Verdict", "caution_above", "compare_forms", "compare_rates"]

Verdict = Literal["caution", "agree", "too few to tell"]
_METRIC = "useful_bounded_response_rate"
# So that a difference of just the limit is not over it for the last bit of a float.
_SLACK = 1e-9


class _Limits(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    caution_above: Annotated[int, Field(ge=0, le=1000)]


@cache
def caution_above() -> float:
    """The difference of rates, 0..1, over which public and private form disagree.

    Raises `DataError` naming the key when the file is damaged.
    """
    path = data_root() / "tempaffect" / "shadow.toml"
    try:
        return _Limits.model_validate(read_toml(path)).caution_above / 1000
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error)}") from None


@dataclass(frozen=True, slots=True)
class FormRate:
    """Useful-and-bounded rate on one form, 0..1, over what was measured; None where nothing was.

    n: scenarios measured. missing: measurements (a scenario in an epoch) lost, of `wanted`.
    """

    rate: float | None
    n: int
    missing: int
    wanted: int


@dataclass(frozen=True, slots=True)
class ShadowRow:
    """One model in one mode on both forms.

    difference: public minus shadow, of what was measured. low, high: its two-sided 95 % interval; `low` with everything
    missing at its worst in public and at its best in the shadow form, `high` the other way round.
    mde: the difference that such a pair finds in four of five (alpha .05, two-sided), from the interval's width.
    """

    model: str
    mode: Mode
    public: FormRate
    shadow: FormRate
    difference: float | None
    low: float
    high: float
    method: str
    mde: float
    verdict: Verdict


def compare_forms(
    model: str,
    mode: Mode,
    public: tuple[Sequence[Item], Mapping[str, str]],
    shadow: tuple[Sequence[Item], Mapping[str, str]],
    limit: float,
    seed: int,
) -> ShadowRow:
    """A model's items on both forms, each with the families of all scenarios that were to be asked, by id.

    limit: over which difference there is a caution.
    """
    samples = [CardMetrics(*form).sample(_METRIC) for form in (public, shadow)]
    return compare_rates(model, mode, samples[0], samples[1], limit, seed)


def compare_rates(model: str, mode: Mode, public: Sample, shadow: Sample, limit: float, seed: int) -> ShadowRow:
    """`compare_forms` on samples of scenarios, which are independent of each other."""
    forms = [FormRate(form.value(), len(form.units), form.missing, form.wanted) for form in (public, shadow)]
    rates = [form.rate for form in forms]
    difference = None if rates[0] is None or rates[1] is None else rates[0] - rates[1]
    assert public.fill is not None
    assert shadow.fill is not None
    least = _difference(public.fill("low"), shadow.fill("high"), seed)
    most = _difference(public.fill("high"), shadow.fill("low"), seed)
    return ShadowRow(
        model=model,
        mode=mode,
        public=forms[0],
        shadow=forms[1],
        difference=difference,
        low=least.low,
        high=most.high,
        method=most.method,
        mde=minimum_detectable_difference((most.high - least.low) / (2 * 1.96)),
        verdict=_verdict(difference, most.high, limit),
    )


def _verdict(difference: float | None, high: float, limit: float) -> Verdict:
    if difference is not None and difference > limit + _SLACK:
        return "caution"
    return "agree" if difference is not None and high < limit else "too few to tell"


def _difference(public: Clusters[float], shadow: Clusters[float], seed: int) -> Interval:
    return independent_difference(_rate(public, seed), _rate(shadow, seed))


def _rate(units: Clusters[float], seed: int) -> tuple[float, Interval]:
    """Mean over scenarios with the interval that a card gives it."""
    params = load_params().intervals
    confidence = params.confidence / 1000
    if all(value in (0.0, 1.0) for value in units.values):
        tally = Tally.of(units)
        return tally.hits / tally.n, wilson(tally, confidence)
    draws = bootstrap_draws(len(units), params.resamples, seed)
    return mean(units.values), bca(units, mean, draws, confidence, (0.0, 1.0))
