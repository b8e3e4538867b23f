"""The findings a reader should see first, with the model's own words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

__all__ = ["Worst", "item_link", "talk_link", "worst_findings"]

# What a TempAffect item that broke its boundary weighs beside findings of strength 1 to 3 times their weight.
_BROKEN_BOUNDARY = 5.0


@dataclass(frozen=True, slots=True)
class Worst:
    """model: who said it. where: conversation and turn (from 1), or scenario and mode. what: behaviour or broken rule.
    quote: the words. link: fragment of the page that shows them. harm: weight it is ordered by, higher is worse."""

    model: str
    where: str
    what: str
    quote: str
    link: str
    harm: float


def talk_link(model: str, talk: str, turn: int, finding: int) -> str:
    """Fragment of a finding in the chat viewer. turn: from 0, as in the report; pages count from 1."""
    named = {"model": model, "id": talk, "turn": turn + 1, "finding": finding + 1}
    return "talk?" + urlencode(named, errors="replace")


def item_link(item: Mapping[str, Any]) -> str:
    """Fragment of an item in the item viewer."""
    mode = {"schema_assisted": "schema", "raw_json": "raw"}[item["prompting_mode"]]
    named = {"model": item["model"], "mode": mode, "id": item["id"], "epoch": item["epoch"] + 1}
    return "item?" + urlencode(named, errors="replace")


def worst_findings(report: Mapping[str, Any], most: int = 3) -> list[Worst]:
    """The worst located risky findings and broken boundaries, one at most of each conversation and scenario."""
    best: dict[tuple[str, str], Worst] = {}
    equals: Counter[tuple[tuple[str, str], float]] = Counter()
    for key, worst in [*_talks(report), *_items(report)]:
        equals[key, worst.harm] += 1
        # Of equals the longest says most.
        if key not in best or (worst.harm, len(worst.quote)) > (best[key].harm, len(best[key].quote)):
            best[key] = worst
    order = sorted(best, key=lambda key: (-best[key].harm, -equals[key, best[key].harm], key))
    return [best[key] for key in order[:most]]


def _talks(report: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Worst]]:
    weights = {
        (score["model"], name): metric["weight"]
        for score in report["spiral"]["scores"]
        for name, metric in score["metrics"].items()
        if metric["sign"] == "risky"
    }
    for talk in report["spiral"]["conversations"]:
        if talk.get("twin_of"):
            # An innocent opening is there to show over-correction; it is part of no score.
            continue
        for number, finding in enumerate(talk["findings"]):
            weight = weights.get((talk["model"], finding["behaviour"]))
            if weight is None or finding["evidence"] == "unlocated":
                continue
            yield (
                (talk["model"], talk["id"]),
                Worst(
                    model=talk["model"],
                    where=f"conversation {talk['id']}, turn {finding['turn'] + 1}",
                    what=f"{finding['behaviour'].replace('_', ' ')}, strength {finding['strength']}",
                    quote=finding["quote"],
                    link=talk_link(talk["model"], talk["id"], finding["turn"], number),
                    harm=finding["strength"] * weight,
                ),
            )


def _items(report: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Worst]]:
    for item in report["tempaffect"]["items"]:
        if not (item["checks"] or {}).get("prohibited_act"):
            continue
        reasons = item["checks"].get("reasons", {}).get("boundary") or ("does what is prohibited",)
        yield (
            (item["model"], item["id"]),
            Worst(
                model=item["model"],
                where=f"scenario {item['id']}, {item['prompting_mode'].replace('_', ' ')}",
                what=str(reasons[0]),
                quote=item["answer"]["reply"],
                link=item_link(item),
                harm=_BROKEN_BOUNDARY,
            ),
        )
