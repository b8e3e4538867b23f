"""What a scored run says: records only, with their JSON form. How they come about is told in `aggregate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CategoryScore", "MetricScore", "Missing", "Score", "Tails", "Trajectory", "score_to_json"]


@dataclass(frozen=True, slots=True)
class MetricScore:
    """One metric over all items.

    mean: points of strength per chunk or per 10,000 characters, or 0..10 for a final score; None where nothing was
    measured. mean_all: the same with every item counted, an absent metric as 0. norm: 0..1. contribution: 0..1, in the
    direction of the score. ci_low, ci_high: of the mean; se: its standard error. n_items: items in the mean.
    n_findings: findings counted.
    worst_decile: mean over the worst tenth of the conversations.
    """

    kind: str
    sign: str
    weight: float
    mean: float | None
    mean_all: float
    norm: float | None
    contribution: float | None
    ci_low: float | None
    ci_high: float | None
    se: float | None
    n_items: int
    n_findings: int
    worst_decile: float | None


@dataclass(frozen=True, slots=True)
class CategoryScore:
    """The composite and the means of one category; descriptive, without interval."""

    score: float | None
    n_items: int
    means: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Tails:
    """What a mean hides.

    any_strength3_harm: share of conversations with at least one finding of strength 3 of the protocol's harm behaviour
    (`harmful`: how many, `of`: conversations measured); `_ci_low` and `_ci_high` are one-sided 95 % bounds,
    Clopper-Pearson where each prompt has one conversation, otherwise that of a bounded mean over prompts.
    any_harm: share with any counted finding of it. harm_turns: judged turns with one.
    worst_decile_score: mean composite of the worst tenth of the conversations, rounded up to a whole conversation.
    worst_conversation: id of the worst.
    """

    harm: str
    any_strength3_harm: float | None
    any_strength3_harm_ci_low: float | None
    any_strength3_harm_ci_high: float | None
    harmful: int
    of: int
    any_harm: float | None
    any_harm_ci_low: float | None
    any_harm_ci_high: float | None
    harm_turns: int
    worst_decile_score: float | None
    worst_conversation: str | None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The course of the protocol's reinforcement behaviour over a conversation.

    slope: mean over conversations of the least-squares slope, in the metric's unit per turn; with its interval.
    thirds: mean f(v) in the first, middle and last third of the judged turns.
    first: conversations with a finding by the assistant turn (from 0) of the first one. events, censored: conversations
    with one, and those which ended without. median_turn: first turn by which the Kaplan-Meier estimate of staying clear
    is at most one half; None where it never is.
    """

    behaviour: str
    slope: float | None
    slope_ci_low: float | None
    slope_ci_high: float | None
    thirds: tuple[float | None, float | None, float | None]
    first: Mapping[int, int]
    events: int
    censored: int
    median_turn: int | None


@dataclass(frozen=True, slots=True)
class Missing:
    """What was to be measured and is not. first_turns: replies to the opening that an imported record never judged,
    while the protocol would; they are no failures and not in `chunks`. reasons: how often which, by kind:
    conversation, chunk, final."""

    conversations: int
    of_conversations: int
    chunks: int
    of_chunks: int
    finals: int
    of_finals: int
    first_turns: int
    reasons: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one model under one protocol.

    score: 0..100, higher is better, rounded as the protocol says; unrounded: as computed. None where a metric that the
    protocol needs was never measured. ci_low, ci_high: of the unrounded score; se: its standard error.
    ignored: findings that did not count, by why: unlocated, unknown_behaviour, weak.
    evidence: findings of known behaviours by class.
    """

    model: str
    protocol: str
    protocol_hash: str
    score: float | None
    unrounded: float | None
    ci_low: float | None
    ci_high: float | None
    se: float | None
    ci_method: str
    n_items: int
    n_conversations: int
    metrics: Mapping[str, MetricScore]
    categories: Mapping[str, CategoryScore]
    tails: Tails
    trajectory: Trajectory
    evidence: Mapping[str, int]
    ignored: Mapping[str, int]
    missing: Missing


def score_to_json(score: Score) -> dict[str, Any]:
    """The score as JSON values."""
    value = asdict(score)
    value["trajectory"]["first"] = {str(turn): n for turn, n in score.trajectory.first.items()}
    value["trajectory"]["thirds"] = list(score.trajectory.thirds)
    return value
