"""Whether a card may be published, and what a reader must know before using its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pytest_spiral.report.model.tempaffect import Detector, MissingItems
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import CardContext, Item, Mode
from pytest_spiral.tempaffect.scenario import Family

# More leaked scenarios than these are not named.
_NAMED_LEAKS = 5


def publication_blockers(
    mode: Mode, items: Sequence[Item], valid_rate: float | None, template: Detector, context: CardContext
) -> Iterator[str]:
    """Why a card may not be published, each with its code first. Low quality is no reason.

    Args:
        mode: How the model was asked.
        items: All items of the card.
        valid_rate: Share of valid outputs, in 0..1; None where nothing was measured.
        template: The detector of template repetition.
        context: The circumstances of the run.
    """
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
    lost = sum(item.status is Status.INSTRUMENT_FAILED for item in items)
    if lost:
        yield f"B04 {lost} items lost to infrastructure errors"
    if context.stand_in:
        yield "B05 the evaluated model is built in, not a language model"
    elif len(context.served_models) != 1:
        yield f"B05 model snapshot not settled: served as {', '.join(context.served_models) or 'none named'}"
    if mode == "schema" and context.enforcement_verified is not True:
        yield "B06 schema enforcement not verified"
    if mode == "schema" and _is_below(valid_rate, publication.schema_valid_rate):
        yield f"B06 only {valid_rate:.0%} valid outputs under schema enforcement"
    if template.band == "flag":
        yield f"B07 template repetition {template.value:.2f}"
    leaks = sorted({item.id for item in items if _is_leaked(item, context)})
    if leaks:
        yield f"B08 benchmark material in outputs: {', '.join(leaks[:_NAMED_LEAKS])}"
    if not context.archived:
        yield "B09 raw outputs not archived"
    if not context.partner_present:
        yield "B10 the card of the other prompting mode is missing"
    if context.own:
        yield "B11 custom scenarios: not comparable with other runs"


def _is_leaked(item: Item, context: CardContext) -> bool:
    """Whether an output carries the canary or any scenario id of the suite."""
    text = item.output or ""
    return bool(context.canary and context.canary in text) or any(f'"{name}"' in text for name in context.scenarios)


def cautions(
    mode: Mode, valid_rate: float | None, detectors: Mapping[str, Detector], missing: MissingItems
) -> tuple[str, ...]:
    """What a reader should know before using the numbers; published with the card.

    Args:
        mode: How the model was asked.
        valid_rate: Share of valid outputs, in 0..1; None where nothing was measured.
        detectors: The detectors of the card, by name.
        missing: Measurements that were planned and are missing.
    """
    found = [
        f"{name.replace('_', ' ')} is {row.band} ({row.value:.2f})"
        for name, row in detectors.items()
        if row.band in ("watch", "flag")
    ]
    if mode == "raw" and _is_below(valid_rate, load_params().publication.raw_valid_rate_caution):
        found.append(f"only {valid_rate:.0%} of raw outputs were valid JSON answers: the score mostly measures format")
    if missing.n:
        found.append(f"{missing.n} of {missing.of} measurements are missing")
    return tuple(found)


def _is_below(rate: float | None, per_mille: int) -> bool:
    return rate is not None and rate * 1000 < per_mille
