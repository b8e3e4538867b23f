"""What newly fails and newly passes in a candidate, item by item, with what the model said in both runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pytest_spiral.grouping import grouped
from pytest_spiral.report.model.comparison import ChangedItem, ItemChanges
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation, Finding
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item, Mode
from pytest_spiral.tempaffect.scenario import Scenario

_MOST = 20
_MOST_CHARS = 1_000
Sides = tuple[str, str]
"""Of baseline and candidate: the names of the model."""
_Row = tuple[bool, bool, ChangedItem]
"""Whether the baseline passes, whether the candidate does, and what to show of them."""


def changed_items(
    run: str, models: Sides, mode: Mode, items: tuple[Sequence[Item], Sequence[Item]], scenarios: Mapping[str, Scenario]
) -> ItemChanges:
    """TempAffect scenarios that pass in one run only. run: the baseline's id. items: of baseline and candidate."""
    by_id = tuple(grouped((item.id, item) for item in side if item.useful_bounded is not None) for side in items)
    rows: list[_Row] = []
    for name in sorted(by_id[0].keys() & by_id[1].keys()):
        passed = tuple(2 * sum(bool(item.useful_bounded) for item in side[name]) > len(side[name]) for side in by_id)
        # An answer of the kind that decided.
        shown = (
            next(item for item in side[name] if bool(item.useful_bounded) == good)
            for side, good in zip(by_id, passed, strict=True)
        )
        replies = [item.answer.reply if item.answer else item.output or "" for item in shown]
        message = scenarios[name].user_message if name in scenarios else ""
        rows.append((passed[0], passed[1], _row(name, message, replies)))
    return _changes("tempaffect", run, models, mode, rows)


def changed_conversations(
    run: str, models: Sides, conversations: tuple[Sequence[Conversation], Sequence[Conversation]], protocol: Protocol
) -> ItemChanges:
    """Conversations with one of the worst findings in one run only, each with the reply at that turn in both runs."""
    mine, theirs = ({one.id: one for one in side if _counts(one, protocol)} for side in conversations)
    rows: list[_Row] = []
    for name in sorted(mine.keys() & theirs.keys()):
        pair = mine[name], theirs[name]
        found = [_worst(one, protocol) for one in pair]
        turn = next((finding.turn for finding in reversed(found) if finding is not None), 0)
        replies = [one.replies[turn] if turn < len(one.replies) else "" for one in pair]
        messages = [message.content for message in pair[found[1] is not None].transcript if message.role == "user"]
        message = messages[turn] if turn < len(messages) else ""
        rows.append((found[0] is None, found[1] is None, _row(name, message, replies)))
    return _changes("spiral", run, models, None, rows)


def _row(name: str, message: str, replies: Sequence[str]) -> ChangedItem:
    message, mine, theirs = (text[:_MOST_CHARS] for text in (message, *replies))
    return ChangedItem(id=name, message=message, baseline_reply=mine, candidate_reply=theirs)


def _counts(conversation: Conversation, protocol: Protocol) -> bool:
    """Whether it passes or fails: it was held and judged to its end, or has one of the worst findings until then."""
    states = {conversation.status, *(one.status for one in conversation.judgements)}
    return not conversation.twin_of and (states == {Status.MEASURED} or _worst(conversation, protocol) is not None)


def _worst(conversation: Conversation, protocol: Protocol) -> Finding | None:
    worst = (f for f in conversation.findings if f.strength == 3 and f.behaviour in protocol.worst)
    return next((finding for finding in worst if finding.evidence != "unlocated"), None)


def _changes(
    suite: Literal["tempaffect", "spiral"], run: str, models: Sides, mode: Mode | None, rows: Sequence[_Row]
) -> ItemChanges:
    failing = [row for before, after, row in rows if before and not after]
    passing = [row for before, after, row in rows if after and not before]
    return ItemChanges(
        suite=suite,
        run=run,
        baseline=models[0],
        candidate=models[1],
        mode=mode,
        n_failing=len(failing),
        n_passing=len(passing),
        n=len(rows),
        failing=tuple(failing[:_MOST]),
        passing=tuple(passing[:_MOST]),
    )
