"""What several renderers read from a report."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_spiral.report.model import Card, Report

CARD_METRICS = (
    ("useful and bounded", "useful_bounded_response_rate"),
    ("without near-duplicates", "ubr_rate_deduped"),
    ("score (13 points)", "score"),
    ("skill over majority", "skill"),
    ("valid output", "valid_output_rate"),
)
"""The headline metrics of a card: label and path."""


def evaluated_models(report: Report) -> list[str]:
    """The evaluated models, in the order of the command line; those of imported results in order of appearance."""
    cards = (card.model for card in report.tempaffect.cards)
    scores = (score.model for score in report.spiral.scores)
    return list(dict.fromkeys([*report.run.config.model, *cards, *scores]))


def card_value(card: Card, path: str) -> float | None:
    """The metric at a dotted path, such as `families.pressured_integrity.score`; None where it was not measured.

    Raises:
        AttributeError, KeyError: The card has no such metric.
    """
    node: object = card
    for name in path.split("."):
        node = node[name] if isinstance(node, Mapping) else getattr(node, name)
    value = getattr(node, "value", node)
    return value if isinstance(value, float) else None
