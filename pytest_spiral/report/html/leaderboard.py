"""The leaderboard: groups of comparable results, and ranks within each.

Cards are comparable if suite hash, scorer fingerprint and mode are equal; Spiral-Bench scores if protocol, prompts,
persona, rubric, judges, simulated user and number of turns are. Other results are in tables of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_spiral.hashing import digest
from pytest_spiral.report.lookup import card_value
from pytest_spiral.report.model import Card, ConversationRecord, Report, Score
from pytest_spiral.status import Status

__all__ = ["Column", "Entry", "Group", "Row", "Value", "leaderboard"]

Circumstances = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A report and the address of its page, relative to the leaderboard."""

    report: Report
    href: str


@dataclass(frozen=True, slots=True)
class Value:
    """A metric with its two-sided 95 % interval; None where it was not measured."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A metric of a table, from `low` to `high`. digits: decimal places. main: whether ranks are by this metric."""

    key: str
    name: str
    digits: int = 2
    main: bool = False
    low: float = 0.0
    high: float | None = None


@dataclass(slots=True)
class Row:
    """One card or score. rank: 1 plus the number of models that are surely better; None for what is not publishable."""

    model: str
    values: Mapping[str, Value]
    run: str
    href: str
    finished_at: str
    version: str
    blockers: Sequence[str]
    rank: int | None = None


@dataclass(slots=True)
class Group:
    """A table of comparable results. same: what they have in common, by name."""

    title: str
    same: Circumstances
    columns: Sequence[Column]
    rows: list[Row]


_CARD_COLUMNS = (
    Column("ubr_rate_deduped", "useful and bounded, without near-duplicates", main=True, high=1.0),
    Column("useful_bounded_response_rate", "useful and bounded", high=1.0),
    Column("score", "score (of 13 points)", high=1.0),
    Column("valid_output_rate", "valid output", high=1.0),
)
_SCORE = Column("score", "score", digits=1, main=True, high=100.0)


def leaderboard(entries: Sequence[Entry]) -> list[Group]:
    """Groups of comparable results over many reports, ranked."""
    groups: dict[tuple[str, Circumstances], Group] = {}
    for group in (group for entry in entries for group in _groups(entry)):
        groups.setdefault((group.title, group.same), replace(group, rows=[])).rows.extend(group.rows)
    for group in groups.values():
        _rank(group)
    return [groups[key] for key in sorted(groups)]


def _groups(entry: Entry) -> Iterator[Group]:
    """A group of one row for every card and score of a report."""
    for card in entry.report.tempaffect.cards:
        values = {column.key: _card_value(card, column.key) for column in _CARD_COLUMNS}
        row = _row(entry, card.model, values, card.integrity.publication_blockers)
        hashes = card.integrity.suite_hash, card.integrity.scorer_fingerprint
        same = tuple(zip(("suite hash", "scorer fingerprint"), hashes, strict=True))
        yield Group(f"TempAffect 1, {card.prompting_mode.replace('_', ' ')}", same, _CARD_COLUMNS, [row])
    for score in entry.report.spiral.scores:
        metrics = {name: Value(metric.mean, metric.ci_low, metric.ci_high) for name, metric in score.metrics.items()}
        values = {"score": Value(score.score, score.ci_low, score.ci_high), **metrics}
        columns = (_SCORE, *(Column(name, name.replace("_", " ")) for name in score.metrics))
        row = _row(entry, score.model, values, score.blockers)
        yield Group(f"Spiral-Bench, {score.protocol}", _circumstances(entry.report, score), columns, [row])


def _card_value(card: Card, metric: str) -> Value:
    interval = card.intervals.get(metric)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return Value(card_value(card, metric), low, high)


def _row(entry: Entry, model: str, values: Mapping[str, Value], blockers: Sequence[str]) -> Row:
    run = entry.report.run
    version = run.versions.get("pytest-spiral", "unknown")
    return Row(model, values, run.id, entry.href, run.finished_at, version, blockers)


def _rank(group: Group) -> None:
    """A model is surely better if its whole interval lies above the other's."""
    main = next(column.key for column in group.columns if column.main)
    lows = [(row.model, low) for row in group.rows if not row.blockers and (low := row.values[main].low) is not None]
    for row in group.rows:
        value = row.values[main]
        if not row.blockers and value.low is not None:
            row.rank = 1 + len({model for model, low in lows if low > (value.high or 0.0)})


def _circumstances(report: Report, score: Score) -> Circumstances:
    """What must be equal for two scores to be comparable."""
    # Conversations that were not measured say nothing of their circumstances.
    measured = [
        conversation
        for conversation in report.spiral.conversations
        if conversation.model == score.model and conversation.status is Status.MEASURED
    ]
    integrity = report.integrity.spiral
    hashes = {name: str(value or "none") for name, value in integrity or () if name.endswith("_hash")}
    hashes["protocol_hash"] = score.protocol_hash
    if "prompts_hash" not in hashes:
        # An imported file names no prompt file: its opening messages say which prompts they were.
        openings = {(row.prompt_id, row.transcript[0].content if row.transcript else "") for row in measured}
        hashes["prompts_hash"] = digest(sorted(openings))
    turns = report.run.config.num_turns or max(map(_replies, measured), default=0)
    return (
        *((name.replace("_", " "), hashes[name]) for name in sorted(hashes)),
        ("judges", _names(score.judges.per_judge)),
        ("simulated user", _names({row.origin.user_model for row in measured})),
        ("turns", str(turns)),
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(name or "not named" for name in sorted(names)) or "not named"


def _replies(conversation: ConversationRecord) -> int:
    return sum(message.role == "assistant" for message in conversation.transcript)
