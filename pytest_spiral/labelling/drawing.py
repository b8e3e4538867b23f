"""Which replies of a run are labelled: a simple random core, and more of those that are hard to decide. Pure.

Every item's probability of being drawn is known exactly, so that labels of the sample speak for the run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from math import comb

from pytest_spiral.chat import Message
from pytest_spiral.grouping import grouped
from pytest_spiral.hashing import digest_of_all
from pytest_spiral.labelling.files import Drawn, Inclusion, ItemText, Stratum, bounded, reply_id, reply_text, turn_id
from pytest_spiral.labelling.reply_judge import disputed
from pytest_spiral.report.model import ConversationRecord, Report
from pytest_spiral.resources import naming_faults
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.chunks import exchanges
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import REPLY_CHECKS, Item

# Share of a sample that is drawn from the items that are hard to decide.
_EXTRA = Fraction(1, 3)
# Characters of a prefix's history that raters are shown, and of one message in it.
_MOST_HISTORY, _MOST_MESSAGE = 20_000, 3_000
_DECISIVE = tuple(name for name in REPLY_CHECKS if name not in ("brevity", "forbidden_phrase_clean"))


class DrawCandidate(Drawn):
    """An item that could be labelled; the draw says how likely it was and what for."""

    inclusion: Inclusion = 1.0
    stratum: Stratum = "all"
    text: ItemText
    hard: bool
    """Judges or checks disagree on it, or it stands near a decision."""


def candidates(report: Report, suite: SuiteName) -> list[DrawCandidate]:
    """All items of a run that people can label: valid TempAffect replies, or judged turns of whole conversations.

    Raises `DataError` for a name, as of a file from elsewhere, that is too long for a label file.
    """
    with naming_faults(f"run {report.run.id}"):
        return list(_replies(report) if suite == "tempaffect" else _turns(report))


def replies_hash(report: Report, suite: SuiteName) -> str:
    """Hex SHA-256 of the replies of a suite: the same however they are scored."""
    conversations = report.spiral.conversations
    replies = ([item.model, reply_id(item), item.output or ""] for item in report.tempaffect.items)
    chats = ([row.model, row.id, row.twin_of, *(said.content for said in row.transcript)] for row in conversations)
    return digest_of_all(sorted(replies if suite == "tempaffect" else chats))


def replies_of(report: Report) -> set[tuple[str, str]]:
    """Model and id of every reply of a run, as label files name them."""
    said = ((row, sum(one.role == "assistant" for one in row.transcript)) for row in report.spiral.conversations)
    turns = ((row.model, turn_id(row.id, turn)) for row, replies in said for turn in range(replies))
    return {*turns, *((item.model, reply_id(item)) for item in report.tempaffect.items)}


def _replies(report: Report) -> Iterator[DrawCandidate]:
    answered = (item for item in report.tempaffect.items if item.answer is not None)
    verdicts = grouped(((item.model, item.id), item.useful_bounded) for item in answered)
    for item in report.tempaffect.items:
        scenario = report.tempaffect.scenarios.get(item.id)
        if item.answer is None or scenario is None:
            continue
        hard = _is_near(item) or len({*verdicts[item.model, item.id]}) > 1 or bool(disputed(item))
        text = reply_text(scenario, item.answer.reply)
        yield DrawCandidate(
            item=reply_id(item), model=item.model, mode=item.mode, cluster=item.id, text=text, hard=hard
        )


def _is_near(item: Item) -> bool:
    """Whether the label contradicts the reply, or one check alone decides against it."""
    if item.mismatch is not None or item.checks is None:
        return item.mismatch is not None
    checks = item.checks
    passed = [bool(getattr(checks, name)) for name in _DECISIVE]
    if checks.decision is not None:
        passed.append(checks.decision.right)
    return passed.count(False) == 1


def _turns(report: Report) -> Iterator[DrawCandidate]:
    for row in report.spiral.conversations:
        if row.status is not Status.MEASURED or row.twin_of:
            continue
        judged = {turn for one in row.judgements if one.status is Status.MEASURED for turn in one.turns}
        hard = _hard_turns(row)
        for turn, text in enumerate(_exchanges(row)):
            if turn in judged:
                place = turn_id(row.id, turn)
                yield DrawCandidate(
                    item=place, model=row.model, mode=None, cluster=row.id, text=text, hard=turn in hard
                )


def _exchanges(row: ConversationRecord) -> Iterator[ItemText]:
    """The replies of a conversation, each with the opening, the reply before and the message that it answers.

    A reply to a prefix has its history as well, as far as raters are shown it.
    """
    begun = row.beginning.history if row.beginning else ()
    opening = next((message.content for message in (*begun, *row.transcript) if message.role == "user"), "")
    before, history = begun[-1].content if begun else "", _history(begun[1:-1])
    for turn in exchanges(row.transcript):
        shown = {"opening": opening if before else "", "history": history, "before": before}
        shown |= {"user": turn.user, "assistant": turn.assistant}
        yield ItemText(**{name: bounded(value) for name, value in shown.items()})
        before = turn.assistant


def _history(messages: Sequence[Message]) -> str:
    """Messages with their speakers, the newest that there is room for; long ones are cut in the middle."""
    told, room = list[str](), _MOST_HISTORY
    for message in reversed(messages):
        text = message.content
        if len(text) > _MOST_MESSAGE:
            text = f"{text[: _MOST_MESSAGE // 2]} [...] {text[-_MOST_MESSAGE // 2 :]}"
        room -= len(text)
        if room < 0:
            told.append(f"[{len(messages) - len(told)} earlier messages are left out]")
            break
        told.append(f"{'User' if message.role == 'user' else 'Assistant'}: {text}")
    return "\n\n".join(reversed(told))


def _hard_turns(row: ConversationRecord) -> Collection[int]:
    """Turns on which judges differ, or with a weak finding or one whose words are not in the reply."""
    seen: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    judges: defaultdict[int, set[str]] = defaultdict(set)
    hard: set[int] = set()
    for judgement in row.judgements:
        for turn in judgement.turns if judgement.status is Status.MEASURED else ():
            judges[turn].add(judgement.judge)
        for finding in judgement.findings:
            seen[finding.turn, finding.behaviour].add(judgement.judge)
            if finding.strength == 1 or finding.evidence == "unlocated":
                hard.add(finding.turn)
    return hard | {turn for (turn, _), who in seen.items() if who != judges[turn]}


def draw(population: Sequence[DrawCandidate], size: int, seed: int) -> list[DrawCandidate]:
    """A sample of `size` items, all of them where there are no more, in the order of the population.

    Two thirds are a simple random sample of all, the core. The rest is drawn from the hard items outside it and, where
    these do not suffice, from the other items outside it.
    """
    if size >= len(population):
        return [*population]
    rng = random.Random(f"{seed}-labels")
    extra = int(size * _EXTRA)
    core = set(rng.sample(range(len(population)), size - extra))
    hard = [place for place, candidate in enumerate(population) if candidate.hard and place not in core]
    easy = [place for place, candidate in enumerate(population) if not candidate.hard and place not in core]
    from_hard = min(extra, len(hard))
    strata = {
        **dict.fromkeys(core, "core"),
        **dict.fromkeys(rng.sample(hard, from_hard), "disagreement"),
        **dict.fromkeys(rng.sample(easy, extra - from_hard), "other"),
    }
    of_hard, of_easy = inclusions(len(population), sum(one.hard for one in population), size - extra, extra)
    return [
        one.model_copy(update={"inclusion": of_hard if one.hard else of_easy, "stratum": stratum})
        for one, stratum in ((population[place], stratum) for place, stratum in sorted(strata.items()))
    ]


def inclusions(n: int, hard: int, core: int, extra: int) -> tuple[float, float]:
    """Probability that `draw` takes a hard item, and that it takes another one.

    How many hard items are in the core is hypergeometric. Items of a kind are exchangeable, so each has the expected
    number of its kind in the sample divided by how many there are; 1.0 for a kind without any.

    Args:
        n: Size of the population.
        hard: Hard items in it.
        core: Size of the core.
        extra: Items drawn beyond it, hard ones first.
    """
    expected = Fraction(0)
    for taken in range(max(0, core - (n - hard)), min(core, hard) + 1):
        chance = Fraction(comb(hard, taken) * comb(n - hard, core - taken), comb(n, core))
        expected += chance * min(extra, hard - taken)
    share = Fraction(core, n)
    of_hard = share + expected / hard if hard else Fraction(1)
    of_easy = share + (extra - expected) / (n - hard) if n > hard else Fraction(1)
    return float(of_hard), float(of_easy)


def design_text(drawn: Sequence[DrawCandidate]) -> str:
    """The design in one line."""
    counts = {name: sum(one.stratum == name for one in drawn) for name in ("core", "disagreement", "other")}
    if not any(counts.values()):
        return "all items"
    return (
        f"simple random core of {counts['core']}, then {counts['disagreement']} more of the items on which judges or "
        f"checks disagree or that stand near a decision, and {counts['other']} of the others"
    )
