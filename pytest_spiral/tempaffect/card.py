"""The card: what one model did in one prompting mode, with intervals, baselines, blockers and cautions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from pytest_spiral.report.model import Card, FamilyScores
from pytest_spiral.report.model.parts import Attempt, directly
from pytest_spiral.report.model.tempaffect import CardIntegrity, Detector, MissingItems, ScorerRange
from pytest_spiral.stats import VarianceSummary, variance_summary
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card_metrics import (
    OUTPUT_METRICS,
    WHOLE_METRICS,
    CardMetrics,
    mean,
    metric_names,
    needs_decisions,
    needs_detectors,
    scenario_clusters,
)
from pytest_spiral.tempaffect.copying import is_copied
from pytest_spiral.tempaffect.detectors import DETECTORS, detection
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import CARD_MODES, LABEL_FIELDS, REPLY_CHECKS, CardContext, Item, ItemScore, Mode
from pytest_spiral.tempaffect.scenario import Family, Scenario
from pytest_spiral.tempaffect.scorer_errors import published_errors, range_of
from pytest_spiral.tempaffect.suite import CANARY

# More leaked scenarios than these are not named.
_NAMED_LEAKS = 5
_QUOTED_ID = re.compile(r'"(?=([A-Za-z0-9][A-Za-z0-9._-]{0,63})")')
_HEADLINES = ("score", "valid_output_rate", "useful_bounded_response_rate")
_VARIANCES = ("score", "useful_bounded_response_rate")


def build_card(
    model: str, mode: Mode, items: Sequence[Item], context: CardContext, attempt: Attempt = directly
) -> Card:
    """The card of one model in one prompting mode.

    Invalid outputs count as 0 and are never dropped; instrument failures and items not run are counted as missing and
    enter no rate. With several epochs a scenario's value is its mean over them, and intervals resample scenarios.

    Args:
        model: The evaluated model's name on the command line.
        mode: How it was asked.
        items: Its items in that mode, in any order.
        context: The circumstances of the run.
        attempt: Makes each statistic that no other needs. One that fails is empty or null, and blocks publication where
            that depends on it.
    """
    metrics = CardMetrics(items, context.scenarios, context.skill_floor)
    scores = [output.score for output in metrics.outputs]

    def value(name: str) -> float | None:
        return attempt(name, partial(metrics.value, name))

    whole = {name: value(name) for name in WHOLE_METRICS}
    headlines = {name: whole[name] for name in _HEADLINES}
    score, valid_rate = headlines["score"], headlines["valid_output_rate"]
    found = attempt("detectors", lambda: {name: _detector(name, metrics) for name in DETECTORS})
    detectors = found or {name: detection(name, None, 0) for name in DETECTORS}
    names = [name for name in metric_names() if found or not needs_detectors(name)]
    template = detectors["template_repetition"] if found else None
    missing = _missing(metrics, context)
    copied = attempt("copied_context", lambda: _mean([float(is_copied(score)) for score in scores if score.valid]))
    blockers = _publication_blockers(mode, items, headlines, template, copied, context)
    return Card(
        model=model,
        prompting_mode=CARD_MODES[mode],
        wrapped=context.system_prompt_hash is not None or bool(context.unknown_fields),
        **whole,
        skill=None if score is None else metrics.skill(score),
        useful_bounded_range=attempt("useful_bounded_range", lambda: _scorer_range(headlines, context)),
        ubr_rate_deduped=value("ubr_rate_deduped") if found else None,
        fields={name: value(f"fields.{name}") for name in LABEL_FIELDS},
        reply_checks={name: value(f"reply_checks.{name}") for name in REPLY_CHECKS},
        families={family.value: _family(family, metrics, value) for family in Family},
        detectors=detectors,
        copied_context=copied,
        intervals=metrics.intervals(context.seed, names, attempt),
        given_valid=attempt("given_valid", lambda: _given_valid(metrics, names)) or {},
        balanced_accuracy=attempt("balanced_accuracy", lambda: _balanced_accuracies(scores)) or {},
        recoverable_format_rate=_mean([float(score.recoverable) for score in scores if not score.valid]),
        variance={name: attempt(f"variance.{name}", partial(_variance, name, metrics)) for name in _VARIANCES},
        baselines={name: dict(row) for name, row in context.baselines.items()},
        counts={status: sum(item.status is status for item in items) for status in Status},
        epochs=metrics.epochs,
        missing=missing,
        reasons=dict(sorted(Counter(item.reason.code for item in items if item.reason is not None).items())),
        integrity=_integrity(metrics, context, valid_rate, blockers),
        cautions=tuple(_cautions(mode, valid_rate, detectors, missing, context.scenarios.values())),
    )


def _scorer_range(headlines: Mapping[str, float | None], context: CardContext) -> ScorerRange | None:
    rate = headlines["useful_bounded_response_rate"]
    if rate is None or context.own or context.built_in:
        return None
    return range_of(rate, published_errors())


def useful_bounded_band(rate: float | None) -> Literal["strong", "solid", "mixed", "weak"] | None:
    """Band of a useful-and-bounded rate in 0..1; None where nothing was measured."""
    if rate is None:
        return None
    bands, per_mille = load_params().useful_bounded_bands, rate * 1000
    worse: Literal["mixed", "weak"] = "mixed" if per_mille >= bands.mixed else "weak"
    return "strong" if per_mille >= bands.strong else "solid" if per_mille >= bands.solid else worse


def _integrity(
    metrics: CardMetrics, context: CardContext, valid_rate: float | None, blockers: Iterable[str]
) -> CardIntegrity:
    blocking = tuple(blockers)
    return CardIntegrity(
        suite_hash=context.suite_hash,
        system_prompt_hash=context.system_prompt_hash,
        scorer_fingerprint=context.scorer_fingerprint,
        scenarios=len(metrics.rows),
        expected_scenarios=len(context.scenarios),
        valid_output_rate=valid_rate,
        enforcement_verified=context.enforcement_verified,
        served_models=context.served_models,
        publication_blockers=blocking,
        publication_ready=not blocking,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return mean(told) if told else None


def _family(family: Family, metrics: CardMetrics, value: Callable[[str], float | None]) -> FamilyScores:
    prefix = f"families.{family.value}"
    whole = {name: value(f"{prefix}.{name}") for name in WHOLE_METRICS if name != "valid_output_rate"}
    return FamilyScores(
        n=sum(row[0].score.scenario.family is family for row in metrics.rows.values()),
        **whole,
        band=useful_bounded_band(whole["useful_bounded_response_rate"]),
        fields={name: value(f"{prefix}.fields.{name}") for name in LABEL_FIELDS},
        reply_checks={name: value(f"{prefix}.reply_checks.{name}") for name in REPLY_CHECKS},
    )


def _detector(name: str, metrics: CardMetrics) -> Detector:
    """A detector over all epochs."""
    epochs = [found.detections[name] for found in metrics.detectors]
    shares = [found.long_frame_share for found in epochs if found.long_frame_share is not None]
    value = metrics.value(f"detectors.{name}")
    return detection(name, value, sum(found.n for found in epochs), max(shares, default=None))


def _given_valid(metrics: CardMetrics, known: Collection[str]) -> dict[str, float | None]:
    """The same rates over valid outputs only: what the format cost."""
    valid = [output for output in metrics.outputs if output.score.valid]
    names = [name for name in (*OUTPUT_METRICS, "ubr_rate_deduped") if name != "valid_output_rate"]
    return {name: _mean(map(metrics.column(name), valid)) if name in known else None for name in names}


def _balanced_accuracies(scores: Sequence[ItemScore]) -> dict[str, float | None]:
    """For each label that decides usefulness: mean over its values in the key of the share answered right."""

    def balanced(name: str) -> float | None:
        rows: defaultdict[str, list[float | None]] = defaultdict(list)
        for score in scores:
            rows[str(getattr(score.scenario.expected, name))].append(OUTPUT_METRICS[f"fields.{name}"](score))
        return _mean([_mean(hits) for _, hits in sorted(rows.items())])

    return {name: balanced(name) for name in ("boundary_action", "should_escalate")}


def _variance(metric: str, metrics: CardMetrics) -> VarianceSummary | None:
    """Where the variance of a metric comes from, and what would reduce it."""
    column = metrics.column(metric)
    told = {name: [column(output) for output in row] for name, row in metrics.rows.items()}
    rows = {name: [[value] for value in row if value is not None] for name, row in told.items() if None not in row}
    return variance_summary(scenario_clusters(rows), "--epochs")


def _missing(metrics: CardMetrics, context: CardContext) -> MissingItems:
    missing = {name: metrics.epochs - len(metrics.rows.get(name, ())) for name in sorted(context.scenarios)}
    return MissingItems(
        n=sum(missing.values()),
        of=metrics.epochs * len(missing),
        ids=tuple(name for name, epochs in missing.items() if epochs),
    )


def _publication_blockers(
    mode: Mode,
    items: Sequence[Item],
    headlines: Mapping[str, float | None],
    template: Detector | None,
    copied: float | None,
    context: CardContext,
) -> Iterator[str]:
    """Why a card may not be published, each with its code first. Low quality is no reason."""
    publication = load_params().publication
    scored = len({item.id for item in items if item.score is not None})
    planned = len(context.scenarios) if context.own else publication.scenarios
    families = Counter(scenario.family for scenario in context.scenarios.values())
    uneven = any(families[family] != publication.family_scenarios for family in Family)
    if scored != planned or (uneven and not context.own):
        yield f"B01 {scored} of {planned} scenarios scored"
    if context.suite_hash != context.pinned_suite_hash:
        yield "B02 suite hash differs from the pinned one"
    if context.scorer_fingerprint != context.pinned_scorer_fingerprint:
        yield "B03 scorer fingerprint differs from the pinned one"
    for fault in context.preflight_faults:
        yield f"B03 {fault}"
    if lost := sum(item.status is Status.INSTRUMENT_FAILED for item in items):
        yield f"B04 {lost} {'items' if lost > 1 else 'item'} lost to infrastructure errors"
    if context.built_in:
        yield "B05 the evaluated model is built in, not a language model"
    elif len(context.served_models) != 1:
        yield f"B05 model snapshot not settled: served as {', '.join(context.served_models) or 'none named'}"
    if mode == "schema" and context.enforcement_verified is not True:
        yield "B06 schema enforcement not verified"
    valid_rate = headlines["valid_output_rate"]
    if mode == "schema" and _is_below(valid_rate, publication.schema_valid_rate):
        yield f"B06 only {valid_rate:.1%} valid outputs under schema enforcement"
    if template is None:
        yield "B07 template repetition could not be computed"
    elif template.band == "flag":
        yield f"B07 template repetition {template.value:.2f}"
    if leaks := sorted({item.id for item in items if _leaks(item.output or "", context.scenarios)}):
        yield f"B08 benchmark material in outputs: {', '.join(leaks[:_NAMED_LEAKS])}"
    if context.unknown_fields:
        yield f"B14 request fields that may carry instructions: {', '.join(context.unknown_fields)}"
    if not context.partner_present:
        yield "B10 the card of the other prompting mode is missing"
    if context.own:
        yield "B11 custom scenarios: not comparable with other runs"
    keyed = any(scenario.expected.decision for scenario in context.scenarios.values())
    unknown = [name for name, value in headlines.items() if value is None and (keyed or not needs_decisions(name))]
    if scored and unknown:
        yield f"B12 {', '.join(unknown)} could not be computed"
    if copied is not None and copied * 1000 > publication.copied_rate:
        yield f"B13 {copied:.1%} of the replies are mostly copied from the situation"
    elif copied is None and headlines["valid_output_rate"]:
        yield "B13 whether replies are copied from the situation could not be computed"


def _leaks(output: str, scenarios: Collection[str]) -> bool:
    """Whether an output carries the canary or, in quotation marks, a scenario id of the suite."""
    return CANARY in output or any(name in scenarios for name in _QUOTED_ID.findall(output))


def _cautions(
    mode: Mode,
    valid_rate: float | None,
    detectors: Mapping[str, Detector],
    missing: MissingItems,
    scenarios: Iterable[Scenario],
) -> Iterator[str]:
    """What a reader should know before using the numbers; published with the card."""
    keyed = [scenario.expected.decision is not None for scenario in scenarios]
    if not all(keyed):
        some = f"measured on {sum(keyed)} of {len(keyed)} scenarios; the others have"
        yield f"useful and bounded is {some if any(keyed) else 'not measured: the scenarios have'} no decision key"
    for name, row in detectors.items():
        if words := {"watch": "worth watching", "flag": "flagged"}.get(row.band):
            yield f"{name.replace('_', ' ')} is {words} ({row.value:.2f})"
    if mode == "raw" and _is_below(valid_rate, load_params().publication.raw_valid_rate_caution):
        yield f"only {valid_rate:.1%} of raw outputs were valid JSON answers: the score mostly measures format"
    if missing.n:
        yield f"{missing.n} of {missing.of} measurements are missing"


def _is_below(rate: float | None, per_mille: int) -> bool:
    return rate is not None and rate * 1000 < per_mille
