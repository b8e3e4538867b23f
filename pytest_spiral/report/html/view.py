"""The data of a page: the whole report, with long texts in packs that the page opens on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_spiral.report.html.marks import find_marks
from pytest_spiral.report.model import ConversationRecord, Report, Spiral, TempAffect
from pytest_spiral.report.worst import worst_findings
from pytest_spiral.spiral.turn_means import turn_means
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import ItemResult
from pytest_spiral.tempaffect.results import ITEM_RESULT

__all__ = ["View", "view_of"]

Payload = dict[str, Any]

_EXCERPT_CHARS = 200
# Shown in the list of conversations; everything else about one waits in its pack.
_CONVERSATION_ROW = {"id", "prompt_id", "category", "model", "index", "status", "reason", "final_judgement", "twin_of"}
_ITEM_ROW = {
    *("id", "family", "model", "prompting_mode", "epoch"),
    *("status", "reason", "score", "useful_bounded", "points"),
}
# Findings are listed once for the conversation; the page does not use the other keys.
_LEFT_OUT = {"judgements": {"__all__": {"findings", "stated", "behaviours"}}}


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows of one report.

    Attributes:
        shown: JSON that the page needs at once.
        packs: JSON by name that it needs when something is opened.
    """

    shown: Payload
    packs: Mapping[str, Payload]


def view_of(report: Report, prefix: str = "") -> View:
    """The view of a report. prefix: of the names of its packs, for pages that show several reports."""
    packs: dict[str, Payload] = {}
    left_out = {"tempaffect": {"items", "scenarios"}, "spiral": {"conversations"}}
    shown = report.model_dump(mode="json", exclude=left_out)
    shown["worst"] = [asdict(worst) for worst in worst_findings(report)]
    shown["tempaffect"] |= _tempaffect(report.tempaffect, packs, prefix)
    shown["spiral"] |= _spiral(report.spiral, packs, prefix, report.run.seed)
    return View(shown, packs)


def _tempaffect(suite: TempAffect, packs: dict[str, Payload], prefix: str) -> Payload:
    """Rows of all items. The answers to one scenario share a pack."""
    params = load_params()
    names: dict[str, str] = {}
    rows = []
    for item in suite.items:
        scenario = suite.scenarios.get(item.id)
        name = names.setdefault(item.id, f"{prefix}s{len(names)}")
        told = scenario.model_dump(mode="json", exclude={"meta"}) if scenario else None
        pack = packs.setdefault(name, {"scenario": told, "items": []})
        pack["items"].append({**ITEM_RESULT.dump_python(item, mode="json"), "marks": _marks(item)})
        message = scenario.user_message[:_EXCERPT_CHARS] if scenario else ""
        rows.append({**ITEM_RESULT.dump_python(item, mode="json", include=_ITEM_ROW), "message": message, "pack": name})
    bands = params.useful_bounded_bands
    cuts = [cut / 1000 for cut in (bands.mixed, bands.solid, bands.strong)]
    return {"items": rows, "cuts": cuts, "weights": dict(params.weights)}


def _marks(item: ItemResult) -> list[tuple[int, int, str]]:
    if item.answer is None or item.checks is None:
        return []
    return [(mark.start, mark.end, mark.check) for mark in find_marks(item.answer.reply, item.checks.reasons)]


def _spiral(suite: Spiral, packs: dict[str, Payload], prefix: str, seed: int) -> Payload:
    conversations = suite.conversations
    findings = [finding for conversation in conversations for finding in conversation.findings]
    scored = (name for score in suite.scores for name, row in score.metrics.items() if row.kind == "behaviour")
    behaviours = _unique([*scored, *(finding.behaviour for finding in findings)])
    judgements = (judgement for conversation in conversations for judgement in conversation.judgements)
    judges = _unique([*(judgement.judge for judgement in judgements), *(finding.judge for finding in findings)])
    rows = []
    for number, conversation in enumerate(conversations):
        name = f"{prefix}c{number}"
        packs[name] = conversation.model_dump(mode="json", exclude=_LEFT_OUT)
        rows.append({**_row(conversation, behaviours, judges), "pack": name})
    # Benign twins are part of no score.
    own = [conversation.conversation() for conversation in conversations if not conversation.twin_of]
    means = {
        model: asdict(turn_means([row for row in own if row.model == model], behaviours, seed))
        for model in _unique(conversation.model for conversation in conversations)
    }
    return {"behaviours": behaviours, "judge_names": judges, "turn_means": means, "conversations": rows}


def _row(conversation: ConversationRecord, behaviours: Sequence[str], judges: Sequence[str]) -> Payload:
    replies = [message.content for message in conversation.transcript if message.role == "assistant"]
    said = (message.content for message in conversation.transcript if message.role == "user")
    opening = next(filter(None, (*said, *conversation.prompts)), "")
    return {
        **conversation.model_dump(mode="json", include=_CONVERSATION_ROW),
        "suspicions": len(conversation.suspicions),
        "opening": opening[:_EXCERPT_CHARS],
        "replies": len(replies),
        "chars": sum(map(len, replies)),
        # Enough to filter and count without opening the conversation.
        "findings": [
            (f.turn, behaviours.index(f.behaviour), f.strength, judges.index(f.judge), f.evidence)
            for f in conversation.findings
        ],
    }


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
