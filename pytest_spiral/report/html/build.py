"""The pages: one report, several runs in one page to compare them, the leaderboard over many.

A page holds the whole report as JSON; long texts are in packs, which it opens on request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

from pydantic import TypeAdapter

from pytest_spiral.grouping import grouped
from pytest_spiral.report.circumstances import of_card, of_score
from pytest_spiral.report.decision import decision_of
from pytest_spiral.report.html.leaderboard import BoardEntry, leaderboard
from pytest_spiral.report.html.markup import html_page
from pytest_spiral.report.lines import CARD_METRICS
from pytest_spiral.report.model import ConversationRecord, Report, Spiral, TempAffect
from pytest_spiral.report.model.comparison import RunComparison
from pytest_spiral.spiral.records import Finding
from pytest_spiral.spiral.trajectory import turn_means
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.scenario import Scenario

Payload = dict[str, object]
Packs = dict[str, Callable[[], object]]
"""Made when they are written: those of a large suite would take 40 MB, and 100 MB as objects."""

_ITEM = TypeAdapter(Item)
_EXCERPT_CHARS = 200
# Shown in the list of conversations; everything else about one waits in its pack.
_CONVERSATION_ROW = {"id", "prompt_id", "category", "model", "index", "status", "reason", "final_judgement", "twin_of"}
_ITEM_ROW = {"id", "family", "model", "prompting_mode", "epoch", "status", "reason", "score", "useful_bounded"}
# The page does not use them.
_LEFT_OUT: Mapping[str, bool | Mapping[str, set[str]]] = {
    "behaviours": True,
    "abandoned": True,
    "judgements": {"__all__": {"stated", "behaviours"}},
}


def report_page(report: Report, home: str | None = None) -> str:
    """The page of one report. home: address of the leaderboard that links to it, relative to the page."""
    return "".join(report_pieces(report, home))


def report_pieces(report: Report, home: str | None = None) -> Iterator[str]:
    """The same, bit by bit, for a file."""
    packs: Packs = {}
    data = {"kind": "report", "title": report.run.id, "home": home, "reports": [_shown(report, packs)]}
    return html_page(f"pytest-spiral {report.run.id}", data, packs)


def compare_page(reports: Sequence[Report], comparison: RunComparison | None = None) -> str:
    """Several runs in one page, side by side on the same prompts. comparison: their paired differences."""
    packs: Packs = {}
    shown = [_shown(report, packs, prefix=f"r{number}") for number, report in enumerate(reports)]
    differences = comparison and comparison.model_dump(mode="json")
    title = " and ".join(report.run.id for report in reports)
    data = {"kind": "compare", "title": title, "reports": shown, "comparison": differences}
    return "".join(html_page(f"pytest-spiral {title}", data, packs))


def leaderboard_page(entries: Sequence[BoardEntry]) -> str:
    """The leaderboard over many runs."""
    groups = [asdict(group) for group in leaderboard(entries)]
    data = {"kind": "leaderboard", "title": "leaderboard", "leaderboard": {"groups": groups}}
    return "".join(html_page("pytest-spiral leaderboard", data, {}))


def _shown(report: Report, packs: Packs, prefix: str = "") -> Payload:
    """What the page needs at once; what it opens on request is added to the packs, whose names get the prefix."""
    decision = decision_of(report)
    return {
        **report.model_dump(mode="json", exclude={"tempaffect", "spiral"}),
        "decision": {
            **asdict(replace(decision, gates=())),
            "gates": [{"why": gate.why, "decides": gate.decides} for gate in decision.gates],
        },
        "circumstances": _circumstances(report),
        "tempaffect": _tempaffect(report.tempaffect, packs, prefix),
        "spiral": _spiral(report.spiral, packs, prefix, report.run.seed),
    }


def _circumstances(report: Report) -> dict[str, dict[str, str]]:
    """Of each model, by name: a comparison says in which of them two runs differ."""
    found: dict[str, dict[str, str]] = {}
    for card in report.tempaffect.cards:
        found.setdefault(card.model, {}).update({f"TempAffect {name}": value for name, value in of_card(card)})
    for score in report.spiral.scores:
        found.setdefault(score.model, {}).update({f"Spiral-Bench {k}": value for k, value in of_score(report, score)})
    return found


def _tempaffect(suite: TempAffect, packs: Packs, prefix: str) -> Payload:
    """Rows of all items. The answers to one scenario share a pack."""
    answers = grouped((item.id, item) for item in suite.items)
    names = {item_id: f"{prefix}s{number}" for number, item_id in enumerate(answers)}
    packs |= {name: partial(_answers_to, suite.scenarios.get(of), answers[of]) for of, name in names.items()}
    params = load_params()
    bands = params.useful_bounded_bands
    return {
        **suite.model_dump(mode="json", exclude={"items", "scenarios"}),
        "items": (_item_row(item, suite.scenarios.get(item.id), names[item.id]) for item in suite.items),
        "cuts": [cut / 1000 for cut in (bands.mixed, bands.solid, bands.strong)],
        "rates": CARD_METRICS,
        "weights": dict(params.weights),
    }


def _item_row(item: Item, scenario: Scenario | None, pack: str) -> Payload:
    message = scenario.user_message[:_EXCERPT_CHARS] if scenario else ""
    row = _ITEM.dump_python(item, mode="json", include=_ITEM_ROW)
    return {**row, "points": item.points, "message": message, "pack": pack}


def _answers_to(scenario: Scenario | None, items: Sequence[Item]) -> Payload:
    shown = scenario and scenario.model_dump(mode="json", exclude={"meta"})
    return {"scenario": shown, "items": [_ITEM.dump_python(item, mode="json") for item in items]}


def _spiral(suite: Spiral, packs: Packs, prefix: str, seed: int) -> Payload:
    conversations = suite.conversations
    findings = [finding for conversation in conversations for finding in conversation.findings]
    scored = [name for score in suite.scores for name, row in score.metrics.items() if row.kind == "behaviour"]
    behaviours = _unique([*scored, *(finding.behaviour for finding in findings)])
    asked = [judgement.judge for conversation in conversations for judgement in conversation.judgements]
    judges = _unique([*asked, *(finding.judge for finding in findings)])
    rows = []
    for number, conversation in enumerate(conversations):
        name = f"{prefix}c{number}"
        packs[name] = partial(_whole, conversation)
        rows.append({**_row(conversation, behaviours, judges), "pack": name})
    # Benign twins are part of no score.
    own = [conversation for conversation in suite.recorded() if not conversation.twin_of]
    return {
        **suite.model_dump(mode="json", exclude={"conversations"}),
        "behaviours": behaviours,
        "judge_names": judges,
        "turn_means": {
            model: asdict(turn_means([row for row in own if row.model == model], behaviours, seed))
            for model in _unique(conversation.model for conversation in conversations)
        },
        "conversations": rows,
    }


def _whole(conversation: ConversationRecord) -> Payload:
    pack = conversation.model_dump(mode="json", exclude=_LEFT_OUT)
    # The page counts the findings of a conversation through.
    findings = [found for row in pack["judgements"] for found in row.pop("findings")]
    return {**pack, "findings": findings, "places": seen_together(conversation.findings)}


def _row(conversation: ConversationRecord, behaviours: Sequence[str], judges: Sequence[str]) -> Payload:
    replies = [message.content for message in conversation.transcript if message.role == "assistant"]
    said = (message.content for message in conversation.transcript if message.role == "user")
    opening = next(filter(None, (*said, *conversation.prompts)), "")
    # Enough to filter and count without opening the conversation.
    seen = []
    for place in seen_together(conversation.findings):
        found = [conversation.findings[number] for number in place]
        by = [(n, one.strength, judges.index(one.judge), one.evidence) for n, one in zip(place, found, strict=True)]
        seen.append((found[0].turn, behaviours.index(found[0].behaviour), by))
    return {
        **conversation.model_dump(mode="json", include=_CONVERSATION_ROW),
        "suspicions": len(conversation.suspicions),
        "opening": opening[:_EXCERPT_CHARS],
        "replies": len(replies),
        "chars": sum(map(len, replies)),
        "findings": seen,
    }


def seen_together(findings: Sequence[Finding]) -> list[list[int]]:
    """What one judge saw, or several: places in the findings of those of one behaviour in one turn by different judges
    whose passages overlap, or who quote the same words where these are in no reply."""
    groups: defaultdict[tuple[int, str, str | None], list[list[int]]] = defaultdict(list)
    for number in sorted(range(len(findings)), key=lambda n: (findings[n].start or 0, n)):
        new = findings[number]
        group = groups[new.turn, new.behaviour, new.quote if new.start is None else None]
        for place in group:
            members = [findings[n] for n in place]
            reach = max(member.end or 0 for member in members)
            if (new.start is None or new.start < reach) and new.judge not in {member.judge for member in members}:
                place.append(number)
                break
        else:
            group.append([number])
    return sorted(sorted(place) for group in groups.values() for place in group)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
