"""The public suite and a private form of it: does a model do as well on scenarios that it cannot have seen?"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Annotated, get_args

from pydantic import Field

from pytest_spiral.compare.recording import Identity, Recording, check_comparable, load_run
from pytest_spiral.errors import DataError
from pytest_spiral.gates import Sample
from pytest_spiral.report.model.comparison import FormRate, RunName, ShadowComparison, ShadowRow, ShadowVerdict
from pytest_spiral.resources import data_root
from pytest_spiral.stats import Clusters, Interval, Tally, independent_difference, minimum_detectable_difference, wilson
from pytest_spiral.tables import Table, read_table
from pytest_spiral.tempaffect.card_metrics import CardMetrics, mean, resampled_interval
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import Mode

_METRIC = "useful_bounded_response_rate"
# A difference of exactly the limit must not exceed it by the last bit of a float.
_SLACK = 1e-9


class _Limits(Table):
    caution_above: Annotated[int, Field(ge=0, le=1000)]


@cache
def caution_above() -> float:
    """The difference of rates, 0..1, above which public and private form disagree."""
    return read_table(_Limits, data_root() / "tempaffect" / "shadow.toml").caution_above / 1000


def compare_shadow(public: Path, shadow: Path) -> ShadowComparison:
    """Compare runs of the same models on the public suite and on a private form without common scenarios.

    Raises:
        DataError: For files that cannot be read, runs of the same or overlapping scenarios, models that are in one run
            only, runs without a rate on both sides, and naming the scorer, prompts or request parameters that differ.
    """
    runs = load_run(public), load_run(shadow)
    conditions = [_conditions(run) for run in runs]
    hashes = [run.identity["tempaffect"]["suite_hash"] for run in runs]
    messages = [{one.user_message for one in run.tempaffect.scenarios.values()} for run in runs]
    if runs[1].report is None or not runs[1].report.run.config.tempaffect_scenarios:
        raise DataError(f"{shadow}: asked the bundled scenarios; name the run with --tempaffect-scenarios second")
    if hashes[0] == hashes[1]:
        raise DataError(f"{public} and {shadow} are runs of the same scenarios")
    if common := messages[0] & messages[1]:
        raise DataError(f"{public} and {shadow} have {len(common)} scenarios in common; a private form has none")
    models, others = (set(run.of_suite("tempaffect")) for run in runs)
    if models != others:
        raise DataError(f"in one of {public} and {shadow} only: {', '.join(sorted(models ^ others))}")
    unknown = check_comparable("tempaffect", conditions[0], conditions[1], (runs[0].name, runs[1].name))
    notes = [f"not recorded on both sides, so not checked: {', '.join(unknown)}"] if unknown else []
    rows: list[ShadowRow] = []
    for model in sorted(models):
        for mode in get_args(Mode):
            samples = [
                CardMetrics(items, run.tempaffect.scenarios, never_asked=run.never_asked).sample(_METRIC)
                if (items := run.items.get((model, mode)))
                else None
                for run in runs
            ]
            if not (samples[0] and samples[1]):
                notes += [f"{mode} mode of {model} is in one run only"] if any(samples) else []
            elif samples[0].units and samples[1].units:
                rows.append(compare_rates(model, mode, samples[0], samples[1], runs[0].seed))
            else:
                notes.append(f"{mode} mode of {model}: not measured in one run, whose scenarios have no decision key")
    if not rows:
        # Exit code 0 would say that nothing speaks against the model.
        raise DataError(f"{public} and {shadow} have nothing that can be compared: {'; '.join(notes)}")
    return ShadowComparison(
        public=RunName(path=runs[0].name, run=runs[0].id),
        shadow=RunName(path=runs[1].name, run=runs[1].id),
        caution_above=caution_above(),
        notes=tuple(notes),
        rows=tuple(rows),
    )


def _conditions(recording: Recording) -> Identity:
    """What must be equal in both runs, apart from the scenarios."""
    report = recording.report
    integrity = report.integrity.tempaffect if report else None
    if report is None or integrity is None or not report.tempaffect.items:
        raise DataError(f"{recording.path}: no measurements of tempaffect")
    conditions: dict[str, str | None] = {"scorer_fingerprint": integrity.scorer_fingerprint}
    conditions |= {name: value for name, value in integrity.components.items() if name != "scenarios"}
    for model in report.run.config.models:
        if model.role == "evaluated" and "tempaffect" in model.params:
            sent = model.negotiated.get("tempaffect", model.params["tempaffect"])
            request = json.dumps([model.model_id, sent], sort_keys=True)
            # A replay calls no model: the parameters of its replies are not recorded.
            conditions[f"parameters of {model.spec}"] = None if model.kind == "replay" else request
    return conditions


def compare_rates(model: str, mode: Mode, public: Sample, shadow: Sample, seed: int) -> ShadowRow:
    """Compare the rates of a model on two independent samples of scenarios, public minus private."""
    forms = [
        FormRate(rate=form.value(), n=len(form.units), missing=form.missing, wanted=form.wanted)
        for form in (public, shadow)
    ]
    difference = None if forms[0].rate is None or forms[1].rate is None else forms[0].rate - forms[1].rate
    assert public.fill is not None
    assert shadow.fill is not None
    least = independent_difference(_rate(public.fill("low"), seed), _rate(shadow.fill("high"), seed))
    most = independent_difference(_rate(public.fill("high"), seed), _rate(shadow.fill("low"), seed))
    verdict: ShadowVerdict = "too few to tell"
    if difference is not None and difference > caution_above() + _SLACK:
        verdict = "caution"
    elif difference is not None and most.high < caution_above():
        verdict = "agree"
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
        verdict=verdict,
    )


def _rate(units: Clusters[float], seed: int) -> tuple[float, Interval]:
    """Mean over scenarios with the interval that a card gives it."""
    if all(value in (0.0, 1.0) for value in units.values):
        return mean(units.values), wilson(Tally.of(units), load_params().intervals.confidence / 1000)
    return mean(units.values), resampled_interval(units, mean, seed, (0.0, 1.0))
