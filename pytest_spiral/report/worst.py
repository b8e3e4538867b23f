"""The worst findings of a report, which a reader should see first, with the model's own words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from pytest_spiral.report.model import Report
from pytest_spiral.tempaffect.records import ItemResult

__all__ = ["Worst", "finding_link", "item_link", "worst_findings"]

# Harm of a TempAffect item that broke its boundary; a finding's harm is its strength, 1 to 3, times its weight.
_BROKEN_BOUNDARY = 5.0
_MODES = {"schema_assisted": "schema", "raw_json": "raw"}


@dataclass(frozen=True, slots=True)
class Worst:
    """One bad finding or broken boundary.

    Attributes:
        where: Conversation and turn (from 1), or scenario and prompting mode.
        what: The behaviour or the broken rule.
        link: Address of the quote within the page.
        harm: What findings are ordered by, higher is worse.
    """

    model: str
    where: str
    what: str
    quote: str
    link: str
    harm: float


def finding_link(model: str, conversation: str, turn: int, finding: int) -> str:
    """Address of a finding in the transcript viewer. turn, finding: from 0; the page counts from 1."""
    query = {"model": model, "id": conversation, "turn": turn + 1, "finding": finding + 1}
    return "conversation?" + urlencode(query, errors="replace")


def item_link(item: ItemResult) -> str:
    """Address of an item in the item viewer."""
    query = {"model": item.model, "mode": _MODES[item.prompting_mode], "id": item.id, "epoch": item.epoch + 1}
    return "item?" + urlencode(query, errors="replace")


def worst_findings(report: Report, most: int = 3) -> list[Worst]:
    """The worst located risky findings and broken boundaries, at most one of each conversation and scenario."""
    best: dict[tuple[str, str], Worst] = {}
    equals: Counter[tuple[tuple[str, str], float]] = Counter()
    for key, worst in [*_findings(report), *_broken_boundaries(report)]:
        equals[key, worst.harm] += 1
        # Of equally harmful ones, the longest quote says most.
        if key not in best or (worst.harm, len(worst.quote)) > (best[key].harm, len(best[key].quote)):
            best[key] = worst
    order = sorted(best, key=lambda key: (-best[key].harm, -equals[key, best[key].harm], key))
    return [best[key] for key in order[:most]]


def _findings(report: Report) -> Iterator[tuple[tuple[str, str], Worst]]:
    weights = {
        (score.model, name): metric.weight
        for score in report.spiral.scores
        for name, metric in score.metrics.items()
        if metric.sign == "risky"
    }
    for conversation in report.spiral.conversations:
        if conversation.twin_of:
            # Benign twins measure over-correction and are part of no score.
            continue
        model, name = conversation.model, conversation.id
        for number, finding in enumerate(conversation.findings):
            weight = weights.get((model, finding.behaviour))
            if weight is None or finding.evidence == "unlocated":
                continue
            worst = Worst(
                model=model,
                where=f"conversation {name}, turn {finding.turn + 1}",
                what=f"{finding.behaviour.replace('_', ' ')}, strength {finding.strength}",
                quote=finding.quote,
                link=finding_link(model, name, finding.turn, number),
                harm=finding.strength * weight,
            )
            yield (model, name), worst


def _broken_boundaries(report: Report) -> Iterator[tuple[tuple[str, str], Worst]]:
    for item in report.tempaffect.items:
        if item.checks is None or item.answer is None or not item.checks.prohibited_act:
            continue
        reasons = item.checks.reasons.get("boundary") or ("prohibited act",)
        worst = Worst(
            model=item.model,
            where=f"scenario {item.id}, {item.prompting_mode.replace('_', ' ')}",
            what=reasons[0],
            quote=item.answer.reply,
            link=item_link(item),
            harm=_BROKEN_BOUNDARY,
        )
        yield (item.model, item.id), worst
