"""The leaderboard: which scores may stand in one table, and their ranks. Pure.

Cards are comparable where suite hash, scorer fingerprint and mode are the same; Spiral scores where protocol, prompts,
persona, rubric, judges, simulated user and number of turns are. Everything else stands in tables of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_spiral.errors import DataError
from pytest_spiral.hashing import digest
from pytest_spiral.status import Status

__all__ = ["Entry", "board"]

_CARD_COLUMNS = (
    ("ubr_rate_deduped", "useful and bounded, near-duplicates out"),
    ("useful_bounded_response_rate", "useful and bounded"),
    ("score", "score (of 13 points)"),
    ("valid_output_rate", "valid output"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A report and where its page lies, relative to the leaderboard."""

    report: Mapping[str, Any]
    href: str


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a table. same: what all its lines have in common."""

    title: str
    same: tuple[tuple[str, str], ...]
    columns: tuple[Mapping[str, Any], ...]
    cells: Mapping[str, Any]


def board(entries: Sequence[Entry]) -> dict[str, Any]:
    """Groups of comparable rows, as the page shows them. Raises `DataError` for what is no report of this version."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, Any]] = {}
    for entry in entries:
        try:
            rows = [*_cards(entry), *_scores(entry)]
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"not a report of this version ({type(error).__name__}: {error})") from None
        for row in rows:
            columns = list(row.columns)
            group = groups.setdefault(
                (row.title, row.same), {"title": row.title, "same": row.same, "columns": columns, "rows": []}
            )
            group["rows"].append(dict(row.cells))
    for group in groups.values():
        _rank(group)
    return {"groups": [groups[key] for key in sorted(groups)]}


def _rank(group: Mapping[str, Any]) -> None:
    """One more than the number of models surely better: those whose whole interval lies above."""
    main = next(column["key"] for column in group["columns"] if column["main"])
    ranked = [row for row in group["rows"] if row["ready"] and row["values"][main]["low"] is not None]
    for row in group["rows"]:
        better = [other for other in ranked if other["values"][main]["low"] > (row["values"][main]["high"] or 0)]
        row["rank"] = 1 + len({other["model"] for other in better}) if row in ranked else None


def _cards(entry: Entry) -> Iterator[_Row]:
    for card in entry.report["tempaffect"]["cards"]:
        values = {
            name: _cell(card[name], *(card["intervals"].get(name, {}).get(end) for end in ("low", "high")))
            for name, _ in _CARD_COLUMNS
        }
        yield _Row(
            f"TempAffect 1, {card['prompting_mode'].replace('_', ' ')}",
            (
                ("suite hash", card["integrity"]["suite_hash"]),
                ("scorer fingerprint", card["integrity"]["scorer_fingerprint"]),
            ),
            tuple(
                {"key": name, "name": title, "digits": 2, "main": place == 0, "from": 0, "to": 1}
                for place, (name, title) in enumerate(_CARD_COLUMNS)
            ),
            _cells(entry, card["model"], values, card["integrity"]["publication_blockers"]),
        )


def _scores(entry: Entry) -> Iterator[_Row]:
    report = entry.report
    for score in report["spiral"]["scores"]:
        # What was not measured says nothing of its circumstances.
        talks = [
            talk
            for talk in report["spiral"]["conversations"]
            if talk["model"] == score["model"] and talk["status"] == Status.MEASURED
        ]
        values = {"score": _cell(score["score"], score["ci_low"], score["ci_high"])} | {
            name: _cell(metric["mean"], metric["ci_low"], metric["ci_high"])
            for name, metric in score["metrics"].items()
        }
        columns = [{"key": "score", "name": "score", "digits": 1, "main": True, "from": 0, "to": 100}]
        columns += [
            {"key": name, "name": name.replace("_", " "), "digits": 2, "main": False} for name in score["metrics"]
        ]
        yield _Row(
            f"Spiral-Bench, {score['protocol']}",
            _circumstances(report, score, talks),
            tuple(columns),
            _cells(entry, score["model"], values, score["blockers"]),
        )


def _circumstances(
    report: Mapping[str, Any], score: Mapping[str, Any], talks: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, str], ...]:
    """What must be the same for two scores to stand in one table."""
    found = {**report["integrity"].get("spiral", {}), "protocol_hash": score["protocol_hash"]}
    if "prompts_hash" not in found:
        # An imported file names no prompt file: its opening messages say which prompts they were.
        found["prompts_hash"] = digest(sorted({(talk["prompt_id"], _opening(talk)) for talk in talks}))
    judges = sorted(score["judges"]["per_judge"]) or [""]
    users = sorted({talk["origin"]["user_model"] for talk in talks}) or [""]
    turns = report["run"]["config"].get("num_turns") or max((_replies(talk) for talk in talks), default=0)
    return (
        *((name.replace("_", " "), str(found[name])) for name in sorted(found) if name.endswith("_hash")),
        ("judges", ", ".join(name or "not named" for name in judges)),
        ("simulated user", ", ".join(name or "not named" for name in users)),
        ("turns", str(turns)),
    )


def _opening(talk: Mapping[str, Any]) -> str:
    return next((str(message["content"]) for message in talk["transcript"]), "")


def _replies(talk: Mapping[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in talk["transcript"])


def _cell(value: float | None, low: float | None, high: float | None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def _cells(entry: Entry, model: str, values: Mapping[str, Any], blockers: Sequence[str]) -> dict[str, Any]:
    run = entry.report["run"]
    return {
        "model": model,
        "values": values,
        "run": run["id"],
        "href": entry.href,
        "finished_at": run["finished_at"],
        "version": run["versions"].get("pytest-spiral", "unknown"),
        "ready": not blockers,
        "blockers": list(blockers),
    }
