"""The leaderboard: groups of comparable results, and ranks within each.

Results under other circumstances (suite, scorer and system prompt of cards; protocol, prompts, persona, rubric, system
prompt, judges, simulated user, seed and number of turns of Spiral-Bench scores) are in tables of their own, and so are
results of judges who have changed in between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_spiral.report.circumstances import Circumstances, differing_names, of_card, of_score
from pytest_spiral.report.lines import weights_text
from pytest_spiral.report.model import Report, Score
from pytest_spiral.report.model.prefix import PrefixNumber
from pytest_spiral.report.model.spiral import HeadlineNumber
from pytest_spiral.spiral.anchors import not_the_same
from pytest_spiral.spiral.weights import weight_stability

_Value = tuple[float | None, float | None, float | None]
"""A metric and the ends of its two-sided 95 % interval; None for what was not measured."""


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """A report and the address of its page, relative to the leaderboard."""

    report: Report
    href: str


@dataclass(frozen=True, slots=True)
class BoardColumn:
    """A metric of a table, from 0 to `high`. digits: decimal places. first: whether it stands beside the model.

    better: -1 or 1 where ranks are by this metric, and less or more of it is better.
    """

    key: str
    name: str
    digits: int = 2
    first: bool = False
    better: int = 0
    high: float | None = None


@dataclass(slots=True)
class BoardRow:
    """One card or score. rank: 1 plus the number of models that are surely better; None for what is not publishable.

    Surely better is who is so by one metric that ranks and surely worse by none, told by intervals that do not overlap.
    """

    model: str
    values: Mapping[str, _Value]
    run: str
    href: str
    finished_at: str
    version: str
    blockers: Sequence[str]
    rank: int | None = None


@dataclass(slots=True)
class Group:
    """A table of comparable results.

    Attributes:
        same: What they have in common, by name.
        apart: Names of that in which the other tables of the suite differ from it.
        note: How stable the order is under other weights.
    """

    title: str
    same: Circumstances
    columns: Sequence[BoardColumn]
    rows: list[BoardRow]
    apart: Sequence[str] = ()
    note: str = ""


_CARD_COLUMNS = (
    BoardColumn("ubr_rate_deduped", "useful and bounded, without near-duplicates", first=True, better=1, high=1.0),
    BoardColumn("useful_bounded_response_rate", "useful and bounded", high=1.0),
    BoardColumn("score", "score (of 13 points)", high=1.0),
    BoardColumn("valid_output_rate", "valid output", high=1.0),
)
_SPIRAL = "Spiral-Bench"
_SCORE = BoardColumn("score", "composite score", digits=1, first=True, high=100.0)
# A composite lets one act pay for another: where there is a headline, it decides the ranks.
_LEADING = (
    BoardColumn("headline.risk", "risk", digits=1, first=True, better=-1, high=100.0),
    BoardColumn("headline.protection", "protection", digits=1, first=True, better=1, high=100.0),
    BoardColumn("headline.worst", "conversations with harm of strength 3", first=True, better=-1, high=1.0),
    BoardColumn("over_correction", "over-correction", first=True, better=-1, high=1.0),
)
_BALANCE = BoardColumn("prefix.balance", "prefix balance", digits=1, first=True, better=1, high=100.0)


def leaderboard(entries: Sequence[BoardEntry]) -> list[Group]:
    """Groups of comparable results over many reports, ranked."""
    groups: dict[tuple[str, Circumstances], Group] = {}
    scores: dict[tuple[str, Circumstances], list[Score]] = defaultdict(list)
    firsts: dict[tuple[str, Circumstances], list[Report]] = defaultdict(list)
    for entry in entries:
        for group, score in _groups(entry):
            # Judges who have changed are others: their results begin a table of their own.
            known = firsts[group.title, group.same]
            like = (one for one in known if not not_the_same(one.spiral.anchors, entry.report.spiral.anchors))
            first = next(like, entry.report)
            if first not in known:
                known.append(first)
            if first is not known[0] and group.title.startswith(_SPIRAL):
                group.same = (*group.same, ("judges as in run", first.run.id))
            groups.setdefault((group.title, group.same), replace(group, rows=[])).rows.extend(group.rows)
            scores[group.title, group.same] += [score] if score else []
    for group in groups.values():
        ranking = [column for column in group.columns if column.better]
        measured = [row for row in group.rows if any(row.values[column.key][1] is not None for column in ranking)]
        ranked = [row for row in measured if not row.blockers]
        for row in ranked:
            row.rank = 1 + len({other.model for other in ranked if _is_better(other, row, ranking)})
    for (title, same), group in groups.items():
        suite = title.partition(",")[0]
        others = (other for name, other in groups if name.startswith(suite))
        if stability := weight_stability(scores[title, same]):
            group.note = weights_text(stability)
        group.apart = [*dict.fromkeys(name for other in others for name in differing_names(same, other))]
    return [groups[key] for key in sorted(groups)]


def _is_better(row: BoardRow, other: BoardRow, columns: Sequence[BoardColumn]) -> bool:
    """Whether a row is surely better by one of the ranking metrics, and surely worse by none."""
    signs = [_sign(row.values[one.key], other.values[one.key]) * one.better for one in columns]
    return 1 in signs and -1 not in signs


def _sign(value: _Value, other: _Value) -> int:
    """1 or -1 where the whole interval lies above or below the other one, 0 where they overlap or one is missing."""
    (_, low, high), (_, other_low, other_high) = value, other
    if low is None or high is None or other_low is None or other_high is None:
        return 0
    return (low > other_high) - (high < other_low)


def _value(number: HeadlineNumber | PrefixNumber | None) -> _Value:
    return (number.value, number.ci_low, number.ci_high) if number else (None, None, None)


def _groups(entry: BoardEntry) -> Iterator[tuple[Group, Score | None]]:
    """A group of one row for every card and score of a report, with the score."""
    run = entry.report.run
    page = (run.id, entry.href, run.finished_at, run.versions.get("pytest-spiral", "unknown"))
    for card in entry.report.tempaffect.cards:
        values: dict[str, _Value] = {}
        for column in _CARD_COLUMNS:
            _, low, high = card.bounded(column.key)
            # A value whose interval could not be computed is shown all the same.
            values[column.key] = (card.value(column.key), low, high)
        row = BoardRow(card.model, values, *page, card.integrity.publication_blockers)
        title = f"TempAffect 1, {card.prompting_mode.replace('_', ' ')}"
        yield Group(title, of_card(card), _CARD_COLUMNS, [row]), None
    for score in entry.report.spiral.scores:
        values = {name: (metric.mean, metric.ci_low, metric.ci_high) for name, metric in score.metrics.items()}
        values["score"] = (score.score, score.ci_low, score.ci_high)
        first: Sequence[BoardColumn] = (replace(_SCORE, better=1),)
        if leading := score.leading:
            values |= {one.key: _value(leading.get(one.key.removeprefix("headline."))) for one in _LEADING}
            first = (*_LEADING, _SCORE)
        if score.prefix:
            values[_BALANCE.key] = _value(score.prefix.rows[0].balance)
            # Alone it decides the ranks: risk and protection are parts of it.
            first = (_BALANCE, *(replace(column, better=0) for column in first))
        columns = (*first, *(BoardColumn(name, name.replace("_", " ")) for name in score.metrics))
        row = BoardRow(score.model, values, *page, score.blockers)
        yield Group(f"{_SPIRAL}, {score.protocol}", of_score(entry.report, score), columns, [row]), score
