"""How long the rest of a run takes: it is played forward, every call as long as one of the newest was. Pure.

What limits a run shows by itself: conversations wait for each of their turns, calls wait for a free slot, some calls
are repeated or made twice, and the slowest of many ends last.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import fsum
from random import Random
from statistics import fmean
from typing import NamedTuple

from pytest_spiral.chat import Role
from pytest_spiral.run.content import Content
from pytest_spiral.run.models import pace_name
from pytest_spiral.run.plan import RunPlan, Unit
from pytest_spiral.spiral.conversation import ConversationUnit, is_judged_alone, is_retested
from pytest_spiral.store import Answer

Who = tuple[Role, str]
Calls = Mapping[tuple[Who, str], int]
"""Number of calls by role and model, and by the name under which a unit makes them."""
# Whose calls wait for one another; of the others, judges', each waits for a turn.
_TURNS = ("evaluated", "user")
# Of the answers so far the newest quarter counts, and at least so many: an endpoint may become faster or slower.
_NEWEST = 64
_ENOUGH = 8
# Calls that are played forward for one look: about 10 ms. Of a longer rest a part is played, with as many slots.
_MOST_PLAYED = 2_000
# A short rest depends on a few draws, so it is played more than once.
_MOST_TIMES = 16
# With fewer calls in flight than this share of those that could be, something limits them that we are not told.
_AS_EXPECTED = 0.7
# Between an answer and the moment when it is seen, so much of a call's time may pass.
_LATE = 1.05


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

    Attributes:
        turns, messages: Calls of the evaluated model and of the simulated user, `of` turns being the whole.
        judged: Judgements of each judge that follow the turns evenly, `due` of which were asked for.
        open: Those that were asked for and not answered, of all judges.
        finals: Judges of the whole conversation, who wait for everything else.
        since: When the last of its turns was answered, None for a scenario; `final_since` of its judgements.
    """

    evaluated: Who | None = None
    user: Who | None = None
    turns: int = 0
    messages: int = 0
    of: int = 0
    judged: dict[Who, int] = field(default_factory=dict)
    due: dict[Who, int] = field(default_factory=dict)
    open: dict[Who, int] = field(default_factory=dict)
    finals: tuple[Who, ...] = ()
    since: float | None = None
    final_since: float | None = None

    def begin(self) -> list[_Asked]:
        """The calls that were asked for by now."""
        calls = [_Asked(self, who, self.since) for who, n in self.open.items() for _ in range(n)]
        if (turn := self.next_turn()) is not None:
            calls.append(_Asked(self, turn, self.since))
        return calls or [_Asked(self, who, self.final_since) for who in self._last()]

    def answered(self, who: Who, twice: float, rng: Random) -> list[Who]:
        """The calls that follow an answer. twice: the share of judgements that are made twice."""
        if who[0] not in _TURNS:
            self.open[who] = self.open.get(who, 0) - 1
            return self._last()
        if who[0] == "user":
            self.messages -= 1
        else:
            self.turns -= 1
        calls = [turn] if (turn := self.next_turn()) is not None else []
        for judge, whole in self.judged.items():
            due = whole * (self.of - self.turns) // self.of
            new = due - self.due[judge]
            new += sum(rng.random() < twice for _ in range(new)) if twice else 0
            self.due[judge] = due
            self.open[judge] += new
            calls += [judge] * new
        return calls or self._last()

    def next_turn(self) -> Who | None:
        """Who has the next turn. Messages that are not generated come first."""
        if self.user is not None and self.turns < self.of and self.messages >= max(self.turns, 1):
            return self.user
        return self.evaluated if self.turns else None

    def _last(self) -> list[Who]:
        """The judges of the whole conversation, once, when their time has come."""
        if self.turns or any(n > 0 for n in self.open.values()):
            return []
        finals, self.finals = self.finals, ()
        return [*finals]

    def left(self) -> dict[Who, int]:
        """Number of calls by role and model."""
        calls = {who: self.judged[who] - self.due[who] + self.open[who] + (who in self.finals) for who in self.judged}
        calls |= {who: n for who, n in ((self.evaluated, self.turns), (self.user, self.messages)) if who is not None}
        return {who: n for who, n in calls.items() if n}

    def copy(self) -> _Rest:
        """Another one to play."""
        fixed = (self.evaluated, self.user, self.turns, self.messages, self.of, self.judged)
        return _Rest(*fixed, dict(self.due), dict(self.open), self.finals, self.since, self.final_since)


class _Asked(NamedTuple):
    """A call of a unit. since: when it was sent or began to wait, where that is known."""

    unit: _Rest
    who: Who
    since: float | None = None


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
        # When calls of this session were answered, after how many seconds, and by whom.
        self._answered: list[tuple[float, float, Who]] = []
        self._turned: dict[str, float] = {}
        self._judged: dict[str, float] = {}

    def add(self, answers: Iterable[Answer]) -> None:
        """Take note of answers, also of those of earlier sessions."""
        for answer in answers:
            who, name = (answer.role, answer.model), answer.unit
            judges = answer.role not in _TURNS
            seconds = answer.seconds
            if answer.attempts > 1:
                # With what came before: of a turn that is known, of a judgement it is guessed.
                seconds *= answer.attempts
                if not judges and name in self._turned:
                    seconds = max(answer.seconds, min(seconds, answer.at - self._turned[name]))
            self._seconds[who].append((answer.at, seconds))
            if len(self._early[who]) < _NEWEST // 2 and answer.at >= self._began:
                self._early[who].append(seconds)
            if (who, name) in self._left:
                self._left[who, name] -= 1
                self._done[answer.role] += 1
                if answer.at >= self._began:
                    self._answered.append((answer.at, seconds, who))
                    (self._judged if judges else self._turned)[name] = answer.at

    def calls(self, ended: Collection[Hashable]) -> dict[Role, tuple[int, int]]:
        """Of each role, the calls that were answered and those that are left."""
        left: Counter[Role] = Counter()
        for unit, calls in self._calls.items():
            if unit not in ended:
                for key in calls:
                    left[key[0][0]] += max(0, self._left[key])
        return {role: (self._done[role], left[role]) for role in {*self._done, *left}}

    def rate(self) -> float | None:
        """Calls answered per second, by the newest ones; None before there are two."""
        newest = self._answered[-max(_NEWEST, len(self._answered) // 4) :]
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
        left: Counter[Who] = Counter()
        for one in rest:
            left.update(one.left())
        if not left or not self._answered or not all(self._seconds[who] for who in left):
            return None
        limits = {name: most // part for name, most in limits.items()}
        times, twice = max(1, min(_MOST_TIMES, _MOST_PLAYED // left.total())), self._twice(rest, part, ended)
        drawn = self._lengths()
        played = (self._played(rest, limits, part, now, twice, drawn, Random(n)) for n in range(times))
        return max(fmean(played), self._by_rate(rest, part, left, drawn))

    def _lengths(self) -> dict[Who, list[float]]:
        """How long the newest calls took, ascending.

        Of a model that was not asked lately: as the others of its endpoint have become slower, so has it.
        """
        since = self._answered[-max(_NEWEST, len(self._answered) // 4) :][0][0]
        recent = {who: [seconds for at, seconds in calls if at >= since] for who, calls in self._seconds.items()}
        slower: dict[str, list[float]] = defaultdict(list)
        for who, lengths in recent.items():
            if len(lengths) >= _ENOUGH and any(self._early[who]):
                slower[self._limits[who][0]].append(fmean(lengths) / fmean(self._early[who]))
        for who, lengths in recent.items():
            if len(lengths) < _ENOUGH:
                factor = fmean(slower.get(self._limits[who][0], [1.0])) if who in self._limits else 1.0
                lengths += [factor * seconds for at, seconds in self._seconds[who] if at < since]
        return {who: sorted(lengths) for who, lengths in recent.items()}

    def _by_rate(
        self, rest: Sequence[_Rest], part: int, left: Counter[Who], drawn: Mapping[Who, Sequence[float]]
    ) -> float:
        """Seconds at the pace of the newest turns, where something limits it that we are not told, else 0."""
        # Units may run in step, so several of their rounds.
        newest = self._answered[-max(_NEWEST, 4 * part * len(rest), len(self._answered) // 4) :]
        passed = newest[-1][0] - newest[0][0]
        # Every unit always waits for one turn, so that as many are under way, or as many as may be.
        expected = min(self._concurrency, part * sum(one.next_turn() is not None for one in rest))
        took = fsum(seconds for _, seconds, who in newest[1:] if who[0] in _TURNS)
        if took >= _AS_EXPECTED * expected * passed:
            return 0.0
        # Calls of one model may be longer than those of another.
        share = Counter(who for _, _, who in newest[1:])
        lengths = [fsum(n * fmean(drawn[who]) for who, n in calls.items()) / calls.total() for calls in (left, share)]
        longer = lengths[0] / lengths[1] if lengths[1] else 1.0
        return longer * part * left.total() * passed / (len(newest) - 1)

    def _twice(self, rest: Sequence[_Rest], part: int, ended: Collection[Hashable]) -> float:
        """The share of judgements that were made twice, as of text that may address the judge.

        rest: Of every `part`-th unit that is left.
        """
        planned = sum(
            n
            for unit in self._calls
            if unit in ended
            for (who, _), n in self._calls[unit].items()
            if who[0] not in _TURNS
        )
        planned += part * sum(one.due[who] - one.open[who] for one in rest for who in one.judged)
        done = sum(n for role, n in self._done.items() if role not in _TURNS)
        return max(0.0, done / planned - 1) if planned else 0.0

    def _rest(self, unit: Unit, shared: Mapping[tuple[Who, str], int]) -> _Rest:
        """What is left of a unit. shared: units that make calls under the same name, those of other models."""
        rest, talks = _Rest(), isinstance(unit, ConversationUnit)
        finals = self._finals * talks
        for key, planned in self._calls[unit].items():
            who, name = key
            left = -(-self._left[key] // shared[key])
            if who[0] == "evaluated":
                rest.evaluated, rest.turns, rest.of = who, max(0, left), planned
                rest.since = self._turned.get(name, self._began) if talks else None
            elif who[0] == "user":
                rest.user, rest.messages = who, max(0, left)
            elif planned:
                # Turns come first in `calls`. More answers than were due: some texts were judged twice.
                whole = planned - finals
                rest.due[who] = due = whole * (rest.of - rest.turns) // rest.of if rest.of else whole
                rest.judged[who], rest.open[who] = whole, max(0, due - (planned - left))
                rest.finals += (who,) * finals
                rest.final_since = self._judged.get(name, rest.since)
        return rest

    def _played(
        self,
        rest: Sequence[_Rest],
        limits: Mapping[str, int],
        part: int,
        now: float,
        twice: float,
        drawn: Mapping[Who, Sequence[float]],
        rng: Random,
    ) -> float:
        """Seconds of one possible rest, of which every `part`-th unit is played. Turns go first, as in the client."""
        units, slots, free = [one.copy() for one in rest], self._concurrency // part, dict(limits)
        waiting: dict[str, tuple[deque[_Asked], deque[_Asked]]] = {name: (deque(), deque()) for name in limits}
        flying: list[tuple[float, int, _Rest, Who]] = []
        order = count()
        began = sorted((call for one in units for call in one.begin()), key=_first)
        for place, call in enumerate(began):
            # Where calls wait for slots, one was sent when another one was answered.
            index = len(self._answered) + place * part - self._concurrency
            freed = self._answered[index][0] if 0 <= index < len(self._answered) else self._began
            if call.since is None or len(began) > slots:
                call = call._replace(since=max(call.since or 0.0, freed))
            waiting[self._limits[call.who][0]][call.who[0] not in _TURNS].append(call)
        at, is_under_way = 0.0, True
        while True:
            for priority in (0, 1):
                for name, queues in waiting.items():
                    queue = queues[priority]
                    while queue and slots and free[name]:
                        call = queue.popleft()
                        passed = now - call.since if call.since and is_under_way else 0.0
                        seconds = _drawn(drawn[call.who], passed, rng)
                        heapq.heappush(flying, (at + seconds, next(order), call.unit, call.who))
                        slots -= 1
                        free[name] -= 1
            if not flying:
                return at
            is_under_way = False
            at, _, unit, who = heapq.heappop(flying)
            slots += 1
            free[self._limits[who][0]] += 1
            for each in unit.answered(who, twice, rng):
                waiting[self._limits[each][0]][each[0] not in _TURNS].append(_Asked(unit, each))


def _first(call: _Asked) -> tuple[bool, float]:
    return call.who[0] not in _TURNS, call.since or 0.0


def _drawn(seconds: Sequence[float], passed: float, rng: Random) -> float:
    """The rest of a call that has taken so long. seconds: what others took, ascending."""
    least = bisect_left(seconds, passed / _LATE) if passed else 0
    # One that takes longer than all others may be answered at any moment.
    return max(0.0, seconds[rng.randrange(least, len(seconds))] - passed) if least < len(seconds) else 0.0
