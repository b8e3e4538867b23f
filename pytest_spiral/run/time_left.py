"""How long the rest of a run takes: it is played forward, every call as long as the newest were on average. Pure.

What limits a run shows by itself: conversations wait for each of their turns, and calls wait for a free slot.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, product
from math import fsum
from statistics import fmean

from pytest_spiral.chat import Role
from pytest_spiral.run.content import Content
from pytest_spiral.run.models import pace_name
from pytest_spiral.run.plan import RunPlan, Unit
from pytest_spiral.spiral.conversation import ConversationUnit, is_judged_alone, is_retested
from pytest_spiral.store import AnsweredCall

Who = tuple[Role, str]
Calls = Mapping[tuple[Who, str], int]
"""Number of calls by role and model, and by the name under which a unit makes them."""
# Whose calls wait for one another; of the others, judges', each waits for a turn.
_TURNS = ("evaluated", "user")
# Of the answers so far the newest quarter counts, and at least so many: an endpoint may become faster or slower.
_NEWEST = 64
_ENOUGH = 8
# With fewer turns in flight than this share of those that could be, something limits them that we are not told.
_AS_EXPECTED = 0.7
# Calls that are played forward for one look: about 10 ms. Of a longer rest a part is played, with as many slots.
_MOST_PLAYED = 2_000


def planned_calls(plan: RunPlan, content: Content, unit: Unit) -> Calls:
    """The calls of a unit where nothing fails, no text addresses the judge and all replies are usable."""
    if not isinstance(unit, ConversationUnit):
        own: dict[tuple[Who, str], int] = {
            (("evaluated", plan.model(unit.model).model_id), unit.scenario_id): int(content.recording is None)
        }
        return own | {(("reply_judge", m.model_id), unit.scenario_id): 1 for m in plan.reply_judges if m.kind != "dry"}
    name, spiral = f"{unit.prompt_id}-{unit.index}", content.spiral
    calls: dict[tuple[Who, str], int] = {}
    if content.recording is not None:
        turns = len(content.recording.conversations[unit].replies) if plan.settings.redo_judging else 0
    else:
        opening = spiral.by_id[unit.prompt_id]
        turns = spiral.twin_turns if opening.twin_of else plan.settings.num_turns
        calls[("evaluated", plan.model(unit.model).model_id), name] = turns
        if plan.user is not None:
            messages = turns if spiral.setting.exact else turns - 1
            calls[("user", plan.user.model_id), name] = max(0, messages - len(opening.prompts[1:]))
    protocol, seed, share = spiral.protocol, plan.settings.seed, plan.settings.retest_share
    judged = 0
    if turns:
        chunks = -(-(turns - (not protocol.first_turn_judged)) // protocol.chunk_size)
        judged = chunks + bool(protocol.finals) + 2 * sum(is_retested(seed, name, n, share) for n in range(chunks))
        judged += is_judged_alone(unit.prompt_id, content.unheld(unit).beginning)
    return calls | {(("judge", each.model_id), name): judged for each in plan.judges if each.kind != "dry"}


@dataclass(slots=True)
class _Rest:
    """What is left of one unit.

    turns: one after another, each with the judgements that it makes due. due: judgements that are due now. finals:
    those of the whole. since: when its first call was sent or began to wait, where that is known. pending: calls that
    were asked for.
    """

    finals: list[Who]
    turns: deque[tuple[Who, list[Who]]] = field(default_factory=deque)
    due: list[Who] = field(default_factory=list)
    since: float | None = None
    pending: int = 0

    def everybody(self) -> Iterator[Who]:
        """Whose calls are left, each perhaps more than once."""
        yield from (*self.finals, *self.due)
        for who, due in self.turns:
            yield from (who, *due)

    def answered(self, who: Who) -> list[Who]:
        """The calls that follow an answer."""
        self.pending -= 1
        return self.asked(self.turns.popleft()[1]) if who[0] in _TURNS else self._last()

    def asked(self, due: list[Who]) -> list[Who]:
        """The next turn, and judgements that have become due."""
        calls = [*due, *(who for who, _ in islice(self.turns, 1))]
        self.pending += len(calls)
        return calls or self._last()

    def _last(self) -> list[Who]:
        """The judgements of the whole, once, when their time has come."""
        if self.turns or self.pending:
            return []
        finals, self.finals = self.finals, []
        self.pending = len(finals)
        return finals


_Asked = tuple[_Rest, Who]


class TimeLeft:
    """Follows one session of a run. began: when it did, in seconds since 1970."""

    def __init__(self, plan: RunPlan, content: Content, units: Iterable[Unit], began: float) -> None:
        self._began, self._concurrency = began, plan.settings.concurrency
        self._calls = {unit: planned_calls(plan, content, unit) for unit in units}
        talks = any(isinstance(unit, ConversationUnit) for unit in self._calls)
        self._finals = int(talks and bool(content.spiral.protocol.finals))
        self._limits = {
            (m.role, m.model_id): (pace_name(m) if m.endpoint else m.spec, plan.most_in_flight(m))
            for m in plan.everybody
        }
        self._left: Counter[tuple[Who, str]] = Counter()
        # One by one: a sum of counters copies all of them for each unit, which at 20,000 takes longer than scoring.
        for each in self._calls.values():
            self._left.update(each)
        self._done: Counter[Role] = Counter()
        self._seconds: dict[Who, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_NEWEST))
        # Of each model, the first calls of this session.
        self._early: dict[Who, list[float]] = defaultdict(list)
        # When calls of this session were answered, and of turns after how many seconds.
        self._answered: list[tuple[float, float]] = []
        # When the last turn (True) and judgement (False) of a unit was answered.
        self._last: dict[tuple[bool, str], float] = {}

    def add(self, answers: Iterable[AnsweredCall]) -> None:
        """Take note of answers, also of those of earlier sessions."""
        for answer in answers:
            who, name = (answer.role, answer.model), answer.unit
            seconds, is_turn = answer.seconds, answer.role in _TURNS
            if answer.attempts > 1:
                # With what came before: of a turn that is known, of a judgement it is guessed.
                seconds *= answer.attempts
                if is_turn and (True, name) in self._last:
                    seconds = max(answer.seconds, min(seconds, answer.at - self._last[True, name]))
            self._seconds[who].append((answer.at, seconds))
            if len(self._early[who]) < _NEWEST // 2 and answer.at >= self._began:
                self._early[who].append(seconds)
            if (who, name) in self._left:
                self._left[who, name] -= 1
                self._done[answer.role] += 1
                if answer.at >= self._began:
                    self._answered.append((answer.at, seconds if is_turn else 0.0))
                    self._last[is_turn, name] = answer.at

    def calls(self, ended: Collection[Hashable]) -> dict[Role, tuple[int, int]]:
        """Of each role, the calls that were answered and those that are left."""
        left: Counter[Role] = Counter()
        # Units in two modes make calls under one name.
        for key in {key for unit, calls in self._calls.items() if unit not in ended for key in calls}:
            left[key[0][0]] += max(0, self._left[key])
        return {role: (self._done[role], left[role]) for role in {*self._done, *left}}

    def rate(self) -> float | None:
        """Calls answered per second, by the newest ones; None before there are two."""
        newest = self._newest(_NEWEST)
        passed = newest[-1][0] - newest[0][0] if newest else 0.0
        return (len(newest) - 1) / passed if passed > 0 else None

    def seconds(
        self, now: float, ended: Collection[Hashable], throttled: Mapping[str, int] | None = None
    ) -> float | None:
        """Seconds until the last call is answered; None as long as nothing is known about some model.

        throttled: calls at once that endpoints bear lately, by the name of the limit.
        """
        going = [unit for unit in self._calls if unit not in ended]
        total = sum(left for _, left in self.calls(ended).values())
        limits = {name: (throttled or {}).get(name, most) for name, most in self._limits.values()}
        part = 1
        while total // part > _MOST_PLAYED and 2 * part <= min(self._concurrency, *limits.values()):
            part *= 2
        if part > 1:
            # The longest conversation is among those that are played.
            going.sort(key=lambda unit: -sum(self._left[key] for key in self._calls[unit]))
        shared = Counter(key for unit in going for key in self._calls[unit])
        rest = [self._rest(unit, shared) for unit in going[::part]]
        asked = {who for one in rest for who in one.everybody()}
        if not asked or not self._answered or not all(self._seconds[who] for who in asked):
            return None
        limits = {name: most // part for name, most in limits.items()}
        lengths = self._lengths()
        # In this order: what is played is used up.
        by_rate = self._by_rate(rest, part, total)
        return max(by_rate, self._played(rest, limits, part, now, lengths))

    def _lengths(self) -> dict[Who, list[float]]:
        """How long the newest calls took.

        Of a model that was not asked lately: as the others of its endpoint have become slower, so has it.
        """
        since = self._newest(_NEWEST)[0][0]
        recent = {who: [seconds for at, seconds in calls if at >= since] for who, calls in self._seconds.items()}
        slower: dict[str, list[float]] = defaultdict(list)
        for who, lengths in recent.items():
            if len(lengths) >= _ENOUGH and any(self._early[who]):
                slower[self._limits[who][0]].append(fmean(lengths) / fmean(self._early[who]))
        for who, lengths in recent.items():
            if len(lengths) < _ENOUGH:
                factor = fmean(slower.get(self._limits[who][0], [1.0])) if who in self._limits else 1.0
                lengths += [factor * seconds for at, seconds in self._seconds[who] if at < since]
        return recent

    def _newest(self, least: int) -> Sequence[tuple[float, float]]:
        """The newest quarter of the answers of this session, and at least so many."""
        return self._answered[-max(least, len(self._answered) // 4) :]

    def _by_rate(self, rest: Sequence[_Rest], part: int, total: int) -> float:
        """Seconds of so many calls at the pace of the newest, where it is limited by what we are not told, else 0."""
        # Units may run in step, so several of their rounds.
        newest = self._newest(max(_NEWEST, 4 * part * len(rest)))
        passed = newest[-1][0] - newest[0][0]
        # Every unit always waits for one turn, so that as many are under way, or as many as may be.
        expected = min(self._concurrency, part * sum(bool(one.turns) for one in rest))
        took = fsum(seconds for _, seconds in newest[1:])
        return total * passed / (len(newest) - 1) if took < _AS_EXPECTED * expected * passed else 0.0

    def _rest(self, unit: Unit, shared: Mapping[tuple[Who, str], int]) -> _Rest:
        """What is left of a unit. shared: units that make calls under the same name, those of other models."""
        talks = isinstance(unit, ConversationUnit)
        finals = self._finals * talks
        speakers: dict[Role, Who] = {}
        left: Counter[Role] = Counter()
        judges: list[tuple[Who, int, int]] = []
        of, name = 0, ""
        for (who, name), planned in self._calls[unit].items():
            calls = max(0, -(-self._left[who, name] // shared[who, name]))
            if who[0] in _TURNS:
                speakers[who[0]], left[who[0]] = who, calls
                of = planned if who[0] == "evaluated" else of
            elif planned:
                judges.append((who, planned - finals, planned - calls))
        turns, messages = left["evaluated"], left["user"]

        def due(whole: int, turns: int) -> int:
            return whole * (of - turns) // of if of else whole

        rest = _Rest(finals=[who for who, _, _ in judges] * finals)
        for who, whole, done in judges:
            rest.due += [who] * max(0, due(whole, turns) - done)
        while turns or messages:
            # Messages that are not generated come first.
            if turns < of and messages >= max(turns, 1):
                messages -= 1
                rest.turns.append((speakers["user"], []))
            elif turns:
                turns -= 1
                new = [who for who, whole, _ in judges for _ in range(due(whole, turns) - due(whole, turns + 1))]
                rest.turns.append((speakers["evaluated"], new))
            else:
                break
        if talks:
            rest.since = self._last.get((bool(rest.turns or rest.due), name))
        return rest

    def _played(
        self,
        rest: Sequence[_Rest],
        limits: Mapping[str, int],
        part: int,
        now: float,
        lengths: Mapping[Who, list[float]],
    ) -> float:
        """Seconds of the rest, of which every `part`-th unit is played. Turns go first, as in the client."""
        slots, free, order, at = self._concurrency // part, dict(limits), count(), 0.0
        usual = {who: fmean(each) for who, each in lengths.items() if each}
        waiting: dict[str, tuple[deque[_Asked], deque[_Asked]]] = {name: (deque(), deque()) for name in limits}
        flying: list[tuple[float, int, _Asked]] = []

        def ask(unit: _Rest, calls: Iterable[Who]) -> None:
            for who in calls:
                waiting[self._limits[who][0]][who[0] not in _TURNS].append((unit, who))

        for unit in rest:
            ask(unit, unit.asked(unit.due))
        is_full, is_under_way = sum(unit.pending for unit in rest) > slots, True
        while True:
            for priority, (name, queues) in product((0, 1), waiting.items()):
                while queues[priority] and slots and free[name]:
                    unit, who = call = queues[priority].popleft()
                    seconds = usual[who]
                    if is_under_way:
                        # Where calls wait for slots, one was sent when another one was answered.
                        sent = len(self._answered) + len(flying) * part - self._concurrency
                        freed = self._answered[sent][0] if 0 <= sent < len(self._answered) else self._began
                        passed = now - (max(unit.since or 0.0, freed) if is_full else unit.since or freed)
                        # One that takes longer than all others may be answered at any moment.
                        seconds = fmean([each - passed for each in lengths[who] if each > passed] or [0.0])
                    heapq.heappush(flying, (at + seconds, next(order), call))
                    slots -= 1
                    free[name] -= 1
            if not flying:
                return at
            is_under_way = False
            at, _, (unit, who) = heapq.heappop(flying)
            slots += 1
            free[self._limits[who][0]] += 1
            ask(unit, unit.answered(who))
