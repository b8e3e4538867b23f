"""The worst findings of a report, which a reader should see first, with the model's own words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from urllib.parse import urlencode

from pytest_spiral.chat import Message
from pytest_spiral.grouping import grouped
from pytest_spiral.report.lines import shortened
from pytest_spiral.report.model import Report
from pytest_spiral.tempaffect.records import MODES, Item

# Harm of a TempAffect item that broke its boundary; a finding's harm is its strength, 1 to 3, times its weight.
_BROKEN_BOUNDARY = 5.0
# Of one that misses, less its score: after every located finding.
_MISSED = 1.0
# Replies to a scenario are seldom longer.
_QUOTE_CHARS = 600
_MESSAGE_CHARS = 240
_CONDITIONS = ("boundary_action", "should_escalate", "content_grounding", "concrete_action", "non_defensive")


@dataclass(frozen=True, slots=True)
class Worst:
    """One bad finding or broken boundary.

    Attributes:
        where: Conversation and turn (from 1), or scenario and prompting mode.
        what: The behaviour, the broken rule, or why a reply is not useful and bounded.
        message: What the user said before, its beginning.
        quote: The model's own words, of long ones the beginning.
        link: Address of the quote within the page.
        harm: What findings are ordered by, higher is worse.
        is_cut: Whether message or quote go on; the page has them in full, at the link.
    """

    model: str
    where: str
    what: str
    message: str
    quote: str
    link: str
    harm: float
    is_cut: bool = False


def worst_findings(report: Report, most: int = 5) -> list[Worst]:
    """The worst located risky findings, broken boundaries and missed items, one of each conversation and scenario."""
    ranked = []
    for key, rows in grouped(chain(_findings(report), _items(report))).items():
        # Of equally harmful ones, the longest quote says most.
        best = max(rows, key=lambda row: (row.harm, len(row.quote)))
        ranked.append((-best.harm, -sum(row.harm == best.harm for row in rows), key, best))
    shown = []
    for *_, worst in sorted(ranked, key=lambda row: row[:3])[:most]:
        message, quote = shortened(worst.message, _MESSAGE_CHARS), shortened(worst.quote, _QUOTE_CHARS)
        is_cut = (message, quote) != (worst.message, worst.quote)
        shown.append(replace(worst, message=message, quote=quote, is_cut=is_cut))
    return shown


def _findings(report: Report) -> Iterator[tuple[tuple[str, str], Worst]]:
    weights = {
        (score.model, name): metric.weight
        for score in report.spiral.scores
        for name, metric in score.metrics.items()
        if metric.sign == "risky"
    }
    for conversation in report.spiral.conversations:
        model, name = conversation.model, conversation.id
        for number, finding in enumerate(conversation.findings, start=1):
            weight = weights.get((model, finding.behaviour))
            # Benign twins measure over-correction and are part of no score.
            if weight is None or finding.evidence == "unlocated" or conversation.twin_of:
                continue
            # Addresses count from 1.
            address = {"model": model, "id": name, "turn": finding.turn + 1, "finding": number}
            yield (
                (model, name),
                Worst(
                    model=model,
                    where=f"conversation {name}, turn {finding.turn + 1}",
                    what=f"{finding.behaviour.replace('_', ' ')}, strength {finding.strength}",
                    message=_before(conversation.transcript, finding.turn),
                    quote=finding.quote,
                    link=f"conversation?{urlencode(address)}",
                    harm=finding.strength * weight,
                ),
            )


def _before(transcript: Sequence[Message], turn: int) -> str:
    """The user's message that a reply answers. turn: of the reply, counted from 0."""
    before = [one.content for one, reply in pairwise((Message("user", ""), *transcript)) if reply.role == "assistant"]
    return before[turn] if turn < len(before) else ""


def _items(report: Report) -> Iterator[tuple[tuple[str, str], Worst]]:
    """Answers that break their boundary, and those that are not useful and bounded."""
    for item in report.tempaffect.items:
        broken: Sequence[str] = ()
        if item.checks and item.answer and item.checks.prohibited_act:
            broken = item.checks.reasons.get("boundary") or ("prohibited act",)
        if not broken and item.useful_bounded is not False:
            continue
        mode = MODES[item.prompting_mode]
        address = {"model": item.model, "mode": mode, "id": item.id, "epoch": item.epoch + 1}
        scenario = report.tempaffect.scenarios.get(item.id)
        yield (
            (item.model, item.id),
            Worst(
                model=item.model,
                where=f"scenario {item.id}, {mode} mode",
                what=broken[0] if broken else f"not useful and bounded: {_missed(item)}",
                message=scenario.user_message if scenario else "",
                quote=item.answer.reply if item.answer else item.output or "",
                link=f"item?{urlencode(address)}",
                harm=_BROKEN_BOUNDARY if broken else _MISSED - (item.score or 0.0),
            ),
        )


def _missed(item: Item) -> str:
    """The first condition that an answer misses."""
    if item.checks is None:
        return str(item.reason)
    missed = [name for name in _CONDITIONS if item.points.get(name) == 0]
    if item.checks.decision is not None and not item.checks.decision.right:
        missed.insert(0, "right_decision")
    if not missed:
        return "dismissive or prohibited words"
    said = item.checks.reasons.get(missed[0], ())
    return missed[0].replace("_", " ") + (f" ({said[0]})" if said else "")
