"""The leaderboard: groups of comparable results, and ranks within each.

Cards are comparable if suite hash, scorer fingerprint, mode and system prompt are equal; Spiral-Bench scores if
protocol, prompts, persona, rubric, system prompt, judges, simulated user and number of turns are. Other results are in
tables of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_spiral.hashing import digest
from pytest_spiral.report.model import Report, Score
from pytest_spiral.status import Status

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
        main = next(column.key for column in group.columns if column.main)
        lows = [(row, low) for row in group.rows if not row.blockers and (low := row.values[main].low) is not None]
        for row, _ in lows:
            # Another model is surely better if its whole interval lies above this one's.
            high = row.values[main].high or 0.0
            row.rank = 1 + len({other.model for other, low in lows if low > high})
    return [groups[key] for key in sorted(groups)]


def _groups(entry: Entry) -> Iterator[Group]:
    """A group of one row for every card and score of a report."""
    run = entry.report.run
    page = (run.id, entry.href, run.finished_at, run.versions.get("pytest-spiral", "unknown"))
    for card in entry.report.tempaffect.cards:
        values = {}
        for column in _CARD_COLUMNS:
            bounds = card.intervals.get(column.key)
            low, high = (bounds.low, bounds.high) if bounds else (None, None)
            values[column.key] = Value(card.value(column.key), low, high)
        same = (
            ("suite hash", card.integrity.suite_hash),
            ("scorer fingerprint", card.integrity.scorer_fingerprint),
            ("system prompt", card.integrity.system_prompt_hash or "none"),
        )
        row = Row(card.model, values, *page, card.integrity.publication_blockers)
        yield Group(f"TempAffect 1, {card.prompting_mode.replace('_', ' ')}", same, _CARD_COLUMNS, [row])
    for score in entry.report.spiral.scores:
        metrics = {name: Value(metric.mean, metric.ci_low, metric.ci_high) for name, metric in score.metrics.items()}
        values = {"score": Value(score.score, score.ci_low, score.ci_high), **metrics}
        columns = (_SCORE, *(Column(name, name.replace("_", " ")) for name in score.metrics))
        row = Row(score.model, values, *page, score.blockers)
        yield Group(f"Spiral-Bench, {score.protocol}", _circumstances(entry.report, score), columns, [row])


def _circumstances(report: Report, score: Score) -> Circumstances:
    """What must be equal for two scores to be comparable."""
    # Conversations that were not measured say nothing of their circumstances.
    rows = [c for c in report.spiral.recorded() if c.model == score.model and c.status is Status.MEASURED]
    hashes = {name: str(value or "none") for name, value in report.integrity.spiral or () if name.endswith("_hash")}
    hashes["protocol_hash"] = score.protocol_hash
    if "prompts_hash" not in hashes:
        # An imported file names no prompt file: its opening messages say which prompts they were.
        openings = {(row.prompt_id, row.transcript[0].content if row.transcript else "") for row in rows}
        hashes["prompts_hash"] = digest(sorted(openings))
    names = {"judges": set(score.judges.per_judge), "simulated user": {row.origin.user_model for row in rows}}
    return (
        *((name.replace("_", " "), hashes[name]) for name in sorted(hashes)),
        *((role, ", ".join(name or "not named" for name in sorted(of)) or "not named") for role, of in names.items()),
        ("turns", str(report.run.config.num_turns or max((len(row.replies) for row in rows), default=0))),
    )
