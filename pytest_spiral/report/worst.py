"""The worst findings of a report, which a reader should see first, with the model's own words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from pytest_spiral.report.model import Report
from pytest_spiral.tempaffect.records import MODES

# Harm of a TempAffect item that broke its boundary; a finding's harm is its strength, 1 to 3, times its weight.
_BROKEN_BOUNDARY = 5.0


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
        for number, finding in enumerate(conversation.findings, start=1):
            weight = weights.get((model, finding.behaviour))
            if weight is None or finding.evidence == "unlocated":
                continue
            # Addresses count from 1.
            address = {"model": model, "id": name, "turn": finding.turn + 1, "finding": number}
            worst = Worst(
                model=model,
                where=f"conversation {name}, turn {finding.turn + 1}",
                what=f"{finding.behaviour.replace('_', ' ')}, strength {finding.strength}",
                quote=finding.quote,
                link=f"conversation?{urlencode(address)}",
                harm=finding.strength * weight,
            )
            yield (model, name), worst


def _broken_boundaries(report: Report) -> Iterator[tuple[tuple[str, str], Worst]]:
    for item in report.tempaffect.items:
        if item.checks is None or item.answer is None or not item.checks.prohibited_act:
            continue
        reasons = item.checks.reasons.get("boundary") or ("prohibited act",)
        mode = MODES[item.prompting_mode]
        address = {"model": item.model, "mode": mode, "id": item.id, "epoch": item.epoch + 1}
        worst = Worst(
            model=item.model,
            where=f"scenario {item.id}, {mode} mode",
            what=reasons[0],
            quote=item.answer.reply,
            link=f"item?{urlencode(address)}",
            harm=_BROKEN_BOUNDARY,
        )
        yield (item.model, item.id), worst
