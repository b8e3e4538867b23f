"""What a page shows of a report: all of it, with the long texts packed away until somebody opens them. Pure.

Unknown keys travel along untouched: a page shows what it does not know as a plain table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_spiral.errors import DataError
from pytest_spiral.report.html.marks import find_marks
from pytest_spiral.report.html.trajectory import turn_course
from pytest_spiral.report.worst import worst_findings
from pytest_spiral.tempaffect.params import load_params

__all__ = ["View", "view_of"]

_OPENING_CHARS = 200
_NEEDED = ("schema_version", "verdict", "run", "integrity", "gates", "usage")
_LISTED = ("tempaffect", "spiral")
# Shown in the list of conversations; everything else about one waits in its pack.
_TALK_KEYS = ("id", "prompt_id", "category", "model", "index", "status", "reason", "final_judgement")
_ITEM_KEYS = (
    *("id", "family", "model", "prompting_mode", "epoch"),
    *("status", "reason", "score", "useful_bounded", "points"),
)


@dataclass(frozen=True, slots=True)
class View:
    """shown: what the page needs at once. packs: by name, what it needs when something is opened."""

    shown: dict[str, Any]
    packs: dict[str, Any]


def view_of(report: Mapping[str, Any], prefix: str = "") -> View:
    """The view of a report of ours. prefix: of pack names. Raises `DataError` for what is no such report."""
    try:
        return _view_of(report, prefix)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise DataError(f"not a report of this version ({type(error).__name__}: {error})") from None


def _view_of(report: Mapping[str, Any], prefix: str) -> View:
    packs: dict[str, Any] = {}
    shown = {key: report[key] for key in _NEEDED}
    shown |= {key: value for key, value in report.items() if key not in _LISTED}
    shown["worst"] = [asdict(worst) for worst in worst_findings(report)]
    shown["tempaffect"] = _tempaffect(report["tempaffect"], packs, prefix)
    shown["spiral"] = _spiral(report["spiral"], packs, prefix, report["run"]["seed"])
    return View(shown, packs)


def _tempaffect(suite: Mapping[str, Any], packs: dict[str, Any], prefix: str) -> dict[str, Any]:
    scenarios = suite.get("scenarios") or {}
    names = {item["id"]: f"{prefix}s{number}" for number, item in enumerate(suite["items"])}
    for item in suite["items"]:
        pack = packs.setdefault(names[item["id"]], {"scenario": scenarios.get(item["id"]), "items": []})
        pack["items"].append({**item, "marks": _marks(item)})
    bands = load_params().useful_bounded_bands
    return {
        **{key: value for key, value in suite.items() if key not in ("items", "scenarios")},
        "cuts": [cut / 1000 for cut in (bands.mixed, bands.solid, bands.strong)],
        "weights": dict(load_params().weights),
        "items": [
            {
                **{key: item[key] for key in _ITEM_KEYS},
                "message": ((scenarios.get(item["id"]) or {}).get("user_message") or "")[:_OPENING_CHARS],
                "pack": names[item["id"]],
            }
            for item in suite["items"]
        ],
    }


def _marks(item: Mapping[str, Any]) -> list[list[Any]]:
    if not item["answer"] or not item["checks"]:
        return []
    marks = find_marks(item["answer"]["reply"], item["checks"].get("reasons") or {})
    return [[mark.start, mark.end, mark.check] for mark in marks]


def _spiral(suite: Mapping[str, Any], packs: dict[str, Any], prefix: str, seed: int) -> dict[str, Any]:
    talks = suite["conversations"]
    behaviours = _in_order(name for score in suite["scores"] for name in _behaviours(score["metrics"]))
    behaviours = _in_order([*behaviours, *(f["behaviour"] for talk in talks for f in talk["findings"])])
    judges = _in_order(
        [j["judge"] for talk in talks for j in talk["judgements"]]
        + [f["judge"] for talk in talks for f in talk["findings"]]
    )
    rows = []
    for number, talk in enumerate(talks):
        name = f"{prefix}t{number}"
        packs[name] = _talk_pack(talk)
        rows.append({**_talk_row(talk, behaviours, judges), "pack": name})
    models = _in_order(talk["model"] for talk in talks)
    scored = [talk for talk in talks if not talk.get("twin_of")]
    return {
        **{key: value for key, value in suite.items() if key != "conversations"},
        "behaviours": behaviours,
        "judge_names": judges,
        "courses": {m: turn_course([t for t in scored if t["model"] == m], behaviours, seed) for m in models},
        "talks": rows,
    }


def _behaviours(metrics: Mapping[str, Any]) -> Iterator[str]:
    return (name for name, metric in metrics.items() if metric["kind"] == "behaviour")


def _talk_row(talk: Mapping[str, Any], behaviours: Sequence[str], judges: Sequence[str]) -> dict[str, Any]:
    replies = [message["content"] for message in talk["transcript"] if message["role"] == "assistant"]
    opening = next((message["content"] for message in talk["transcript"] if message["role"] == "user"), "")
    return {
        **{key: talk[key] for key in _TALK_KEYS},
        "twin_of": talk.get("twin_of"),
        "suspicions": len(talk.get("suspicions") or ()),
        "opening": (opening or next((text for text in talk["prompts"] if text), ""))[:_OPENING_CHARS],
        "replies": len(replies),
        "chars": sum(map(len, replies)),
        # turn, behaviour, strength, judge, evidence: enough to filter and count without opening the conversation.
        "findings": [
            [
                finding["turn"],
                behaviours.index(finding["behaviour"]),
                finding["strength"],
                judges.index(finding["judge"]),
                finding["evidence"],
            ]
            for finding in talk["findings"]
        ],
    }


def _talk_pack(talk: Mapping[str, Any]) -> dict[str, Any]:
    judgements = [
        {key: value for key, value in judgement.items() if key not in ("findings", "stated", "behaviours")}
        for judgement in talk["judgements"]
    ]
    return {**talk, "judgements": judgements}


def _in_order(names: Iterator[str] | Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
