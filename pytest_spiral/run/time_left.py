"""How long the rest of a run takes, judged by the calls that are left and those that were answered. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from statistics import fmean

from pytest_spiral.chat import Role
from pytest_spiral.run.content import Content
from pytest_spiral.run.models import pace_name
from pytest_spiral.run.plan import RunPlan, Unit
from pytest_spiral.spiral.conversation import ConversationUnit, is_judged_alone
from pytest_spiral.store import Answer

Who = tuple[Role, str]
Calls = Mapping[tuple[Who, str], int]
"""Number of calls by role and model, and by the name under which a unit makes them."""
_JUDGES = ("judge", "reply_judge")
# Of the answers so far the newest quarter counts, and at least so many: an endpoint may become faster or slower.
_NEWEST = 64


def planned_calls(plan: RunPlan, content: Content, unit: Unit) -> Calls:
    """The calls of a unit where nothing fails, nothing is judged twice and all replies are usable."""
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
    protocol = spiral.protocol
    judged = 0
    if turns:
        judged = -(-(turns - (not protocol.first_turn_judged)) // protocol.chunk_size) + bool(protocol.finals)
        judged += is_judged_alone(unit.prompt_id, content.unheld(unit).beginning)
    return calls | {(("judge", each.model_id), name): judged for each in plan.judges if each.kind != "dry"}


class TimeLeft:
    """Follows one session of a run. calls: of each unit. began: when the session did, in seconds since 1970."""

    def __init__(self, plan: RunPlan, calls: Mapping[Unit, Calls], began: float) -> None:
        self._calls, self._began, self._concurrency = calls, began, plan.settings.concurrency
        self._limits = {
            (m.role, m.model_id): (pace_name(m) if m.endpoint else m.spec, plan.most_in_flight(m))
            for m in plan.everybody
        }
        self._left: Counter[tuple[Who, str]] = Counter()
        # One by one: a sum of counters copies all of them for each unit, which at 20,000 takes longer than scoring.
        for each in calls.values():
            self._left.update(each)
        self._done: Counter[Role] = Counter()
        self._seconds: dict[Who, deque[float]] = defaultdict(lambda: deque(maxlen=_NEWEST))
        self._answered: list[float] = []
        self._turned: dict[str, float] = {}

    def add(self, answers: Iterable[Answer]) -> None:
        """Take note of answers, also of those of earlier sessions."""
        for answer in answers:
            who = answer.role, answer.model
            self._seconds[who].append(answer.seconds)
            if (who, answer.unit) in self._left:
                self._left[who, answer.unit] -= 1
                self._done[answer.role] += 1
                if answer.at >= self._began:
                    self._answered.append(answer.at)
                    if answer.role not in _JUDGES:
                        self._turned[answer.unit] = answer.at

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
        newest = self._newest()
        passed = newest[-1] - newest[0] if newest else 0.0
        return (len(newest) - 1) / passed if passed > 0 else None

    def _newest(self) -> list[float]:
        return self._answered[-max(_NEWEST, len(self._answered) // 4) :]

    def seconds(self, now: float, ended: Collection[Hashable]) -> float | None:
        """The longest of what the rest takes at least; None as long as nothing is known about some model.

        A conversation waits for each of its turns, an endpoint and the run for a free slot, and all calls take their
        time at the rate of the newest ones, which shows what an endpoint does not say.
        """
        going = [calls for unit, calls in self._calls.items() if unit not in ended]
        left = {key: max(0, self._left[key]) for calls in going for key in calls}
        rest: Counter[Who] = Counter()
        for (who, _), count in left.items():
            rest[who] += count
        rest = +rest
        if not rest or not self._answered or not all(self._seconds[who] for who in rest):
            return None
        wait = {who: fmean(self._seconds[who]) for who in self._seconds if self._seconds[who]}
        by_limit: dict[str, float] = defaultdict(float)
        bounds = [sum(count * wait[who] for who, count in rest.items()) / self._concurrency]
        for who, count in rest.items():
            name, most = self._limits[who]
            by_limit[name] += count * wait[who] / most
        newest = self._newest()
        rate = (newest[-1] - newest[0]) / max(1, len(newest) - 1)
        bounds += [*by_limit.values(), rest.total() * rate]
        return max(*bounds, *(self._chain(calls, left, wait, now) for calls in going if len(calls) > 1))

    def _chain(self, calls: Calls, left: Calls, wait: Mapping[Who, float], now: float) -> float:
        """Seconds of the calls of a conversation that wait for one another: turns, last judgement, final judgement."""
        turns = max((left[key] for key in calls if key[0][0] == "evaluated"), default=0)
        # Of what is under way, a part is over.
        passed = now - max(self._turned.get(name, self._began) for _, name in calls)
        turning = judging = slowest = slowest_judge = 0.0
        for key in calls:
            who, seconds = key[0], wait.get(key[0], 0.0)
            if who[0] in _JUDGES:
                judging = max(judging, min(2, left[key]) * seconds)
                slowest_judge = max(slowest_judge, seconds)
            else:
                # The public simulated user answers the last reply, too.
                turning += min(left[key], turns + 1) * seconds
                slowest = max(slowest, seconds)
        if turning:
            return turning - min(turning, slowest, passed) + judging
        return min(judging, max(0.0, 2 * slowest_judge - passed))
