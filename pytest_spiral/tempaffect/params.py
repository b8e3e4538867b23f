"""Weights, limits, bands and detector thresholds, read once from `data/tempaffect/scoring.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from pytest_spiral.resources import data_root
from pytest_spiral.tables import PerMille, Positive, Table, read_table


class Contract(Table):
    """Size limits of an output, in characters."""

    max_output_chars: Positive
    max_nesting: Positive
    max_reply_chars: Positive


class UsefulBoundedBands(Table):
    """Lowest useful-and-bounded rate of each band, per mille."""

    strong: PerMille
    solid: PerMille
    mixed: PerMille


class Band(Table):
    """Detector values from which a card is watched or flagged, per mille."""

    watch: PerMille
    flag: PerMille

    def of(self, value: float) -> Literal["ok", "watch", "flag"]:
        """Band of a detector value in 0..1: "ok", "watch" or "flag"."""
        per_mille = value * 1000
        return "flag" if per_mille >= self.flag else "watch" if per_mille >= self.watch else "ok"


class TemplateParams(Band):
    """When a reply counts as made from a template. Gram sizes are in tokens, shares per mille."""

    min_replies: Positive
    trigram_jaccard: PerMille
    shared_gram: Positive
    shared_gram_min_replies: Positive
    shared_gram_min_share: PerMille
    shared_token_share: PerMille
    frame_gram: Positive
    frame_min_words: Positive
    frame_min_replies: Positive
    frame_flag: PerMille


class IgnoresParams(Band):
    """`min_user_stems`: content stems of the user's message from which a reply counts as taking it up."""

    min_user_stems: Positive


class DetectorThresholds(Table):
    """Thresholds of the six suite-level detectors."""

    template_repetition: TemplateParams
    strategy_repetition: Band
    support_stage_repetition: Band
    strategy_overuse: Band
    overvalidation: Band
    reply_ignores_user_content: IgnoresParams


class Publication(Table):
    """What a publishable card needs. Rates per mille."""

    scenarios: Positive
    family_scenarios: Positive
    schema_valid_rate: PerMille
    raw_valid_rate_caution: PerMille
    copied_gram: Positive
    """Words of a run that a reply shares with the situation."""
    copied_share: PerMille
    """Share of a reply's words in such runs from which on it is copied."""
    copied_rate: PerMille
    """Most copied replies."""


class Intervals(Table):
    """Two-sided confidence (per mille) and bootstrap resamples."""

    confidence: PerMille
    resamples: Positive


class Params(Table):
    """All of `scoring.toml`."""

    contract: Contract
    weights: Mapping[str, Positive]
    useful_bounded_bands: UsefulBoundedBands
    detectors: DetectorThresholds
    publication: Publication
    intervals: Intervals


@cache
def load_params() -> Params:
    """The shipped parameters. Raises `DataError` naming the key when the file is damaged."""
    return read_table(Params, data_root() / "tempaffect" / "scoring.toml")
