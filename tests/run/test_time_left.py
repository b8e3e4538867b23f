"""How long the rest of a run takes, against runs on a clock that only counts."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan, Unit, all_units, make_plan
from pytest_spiral.run.time_left import TimeLeft, planned_calls
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.store import AnsweredCall
from tests.simulation.worker import ENVIRON

Role = Any
Latency = Callable[[Role, float], float]


@dataclass
class Played:
    """A run whose calls take as long as `latency` says. slots: calls at once; queue: whether the endpoint hides them.

    Turns go before judgements, as in a real run, unless the endpoint queues what it gets. extras: the share of replies
    that are judged twice, and that of calls which fail once.
    """

    plan: RunPlan
    units: list[Unit]
    turns: Callable[[Unit], int]
    latency: Latency
    slots: int
    queue: bool = False
    extras: tuple[float, float] = (0.0, 0.0)
    now: float = 0.0
    answers: list[AnsweredCall] = field(default_factory=list)
    ends: dict[Unit, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._order = itertools.count()
        self._random = Random(0)
        self._waiting: list[tuple[int, int, float, Unit, str, int]] = []
        self._flying: list[tuple[float, int, float, Unit, str, int]] = []
        self._open: Counter[Unit] = Counter()
        self._said: set[Unit] = set()
        for unit in self.units:
            self._send(unit, "evaluated", 0)
        while self._waiting or self._flying:
            while self._waiting and len(self._flying) < self.slots:
                _, n, asked, unit, role, turn = heapq.heappop(self._waiting)
                began = self.now
                if self.queue:
                    # The client sends no more than 64 at once.
                    began = max(asked, self.answers[-64].at if len(self.answers) >= 64 else 0.0)
                heapq.heappush(self._flying, (self.now + self.latency(role, self.now), n, began, unit, role, turn))
            self.now, n, began, unit, role, turn = heapq.heappop(self._flying)
            if began >= 0 and self._random.random() < self.extras[1]:
                # It waits for a second and is sent again. That it did is kept in the sign of its start.
                again = self.now + 1.0
                heapq.heappush(self._flying, (again + self.latency(role, again), n, -again, unit, role, turn))
            else:
                self._answered(unit, role, turn, self.now - abs(began), 2 if began < 0 else 1)

    def _send(self, unit: Unit, role: str, turn: int) -> None:
        priority = int(role == "judge" and not self.queue)
        self._open[unit] += role == "judge"
        heapq.heappush(self._waiting, (priority, next(self._order), self.now, unit, role, turn))

    def _answered(self, unit: Unit, role: Role, turn: int, seconds: float, attempts: int) -> None:
        talk = isinstance(unit, ConversationUnit)
        name = f"{unit.prompt_id}-{unit.index}" if isinstance(unit, ConversationUnit) else unit.scenario_id
        model = next(each.model_id for each in self.plan.everybody if each.role == role)
        self.answers.append(AnsweredCall(role, model, name, seconds, self.now, attempts))
        last = self.turns(unit) - 1
        if role == "evaluated" and talk:
            for _ in range(1 + (self._random.random() < self.extras[0])):
                self._send(unit, "judge", turn)
            if turn < last:
                self._send(unit, "user", turn)
            else:
                self._said.add(unit)
        elif role == "user":
            self._send(unit, "evaluated", turn + 1)
        elif role == "judge":
            self._open[unit] -= 1
            # The chunk after the last one is the whole conversation.
            if turn > last:
                self.ends[unit] = self.now
            elif not self._open[unit] and unit in self._said:
                self._send(unit, "judge", last + 1)
        if not talk:
            self.ends[unit] = self.now


def steady(_role: Role, _now: float) -> float:
    return 4.0


def by_role(role: Role, _now: float) -> float:
    """A judge that thinks."""
    return {"evaluated": 2.0, "user": 3.0, "judge": 9.0}[role]


def played(
    tmp_path: Path,
    latency: Latency,
    slots: int,
    *,
    queue: bool = False,
    extras: tuple[float, float] = (0.0, 0.0),
    **options: Any,
) -> tuple[Played, TimeLeft]:
    """A run, and what is to estimate it. 30 conversations of 20 turns and twelve twins of four, or 150 scenarios."""
    settings = Settings(model=("m",), user_model="u", judge_model=("j",), floors=False, **options)
    content = Content(settings, tmp_path)
    plan = make_plan(settings, content, ENVIRON, datetime(2026, 1, 1, tzinfo=UTC))
    units = all_units(plan, content)
    twins = content.spiral.twins if "spiral" in settings.suite else ()
    short = {each.prompt_id for each in twins}

    def turns(unit: Unit) -> int:
        if not isinstance(unit, ConversationUnit):
            return 1
        return content.spiral.twin_turns if unit.prompt_id in short else settings.num_turns

    return Played(plan, units, turns, latency, slots, queue, extras), TimeLeft(plan, content, units, 0.0)


def wrong(
    run: Played, estimate: TimeLeft, first: float, last: float = 0.95, skipped: int = 0, call: float = 4.0
) -> list[float]:
    """Those of 40 errors between two shares of a run's time that are more than 20 % of the truth, or one call.

    skipped: answers that an earlier session has stored. Of the others, `first` and `last` are meant.
    """
    # Judges label their anchors before the first conversation.
    estimate.add([AnsweredCall("judge", "j", "(anchor)", run.latency("judge", 0.0), -1.0) for _ in range(48)])
    began = run.answers[skipped - 1].at if skipped else 0.0
    estimate.add(run.answers[:skipped])
    answers, found = deque(run.answers[skipped:]), []
    for step in range(41):
        now = began + (run.now - began) * (first + (last - first) * step / 40)
        while answers and answers[0].at <= now:
            estimate.add([answers.popleft()])
        said = estimate.seconds(now, {unit for unit, at in run.ends.items() if at <= now})
        if said is None:
            # Nobody knows how long the simulated user takes before it was asked.
            assert not any(answer.role == "user" and 0 < answer.at <= now for answer in run.answers)
            continue
        found.append((said / (run.now - now) - 1, abs(said - (run.now - now))))
    return [round(share, 2) for share, seconds in found if abs(share) > 0.2 and seconds > call]


SPIRAL: dict[str, Any] = {"suite": ("spiral",)}
TEMPAFFECT: dict[str, Any] = {"suite": ("tempaffect",)}


@pytest.mark.parametrize(
    ("latency", "slots", "queue", "last", "options"),
    [
        pytest.param(steady, 64, False, 0.98, SPIRAL, id="conversations side by side"),
        pytest.param(by_role, 200, False, 0.98, SPIRAL | {"concurrency": 200}, id="a judge that thinks"),
        pytest.param(steady, 4, False, 0.98, SPIRAL | {"concurrency": 4}, id="four calls at once"),
        pytest.param(by_role, 4, False, 0.98, SPIRAL | {"concurrency": 4}, id="four at once, a judge that thinks"),
        pytest.param(steady, 1, False, 0.98, SPIRAL | {"concurrency": 1}, id="conversations, one call at once"),
        # At its end the queue becomes shorter, so the last calls are faster than the newest.
        pytest.param(steady, 1, True, 0.75, SPIRAL | {"benign_twins": "off"}, id="conversations in a queue"),
        pytest.param(steady, 8, False, 0.98, TEMPAFFECT | {"concurrency": 8}, id="scenarios"),
        pytest.param(steady, 1, True, 0.98, TEMPAFFECT, id="scenarios in a queue"),
    ],
)
def test_the_time_left_is_right_from_the_first_tenth_on(
    tmp_path: Path, latency: Latency, slots: int, queue: bool, last: float, options: dict[str, Any]
) -> None:
    """Within 20 %, or one call, while a run is steady; an endpoint may hide that it lets calls wait."""
    run, estimate = played(tmp_path, latency, slots, queue=queue, **options)

    assert wrong(run, estimate, 0.1, last) == []


@pytest.mark.parametrize("seed", range(10))
def test_any_run(tmp_path: Path, seed: int) -> None:
    """Models of different speed, scattered by a fifth, any limit, texts judged twice and calls that fail once."""
    random = Random(seed)
    lengths = {role: random.uniform(1, 12) for role in ("evaluated", "user", "judge")}
    slots, turns = random.choice([1, 2, 4, 8, 16, 32, 64, 100]), random.choice([4, 10, 20])
    extras = random.choice([0.0, 0.02]), random.choice([0.0, 0.05])

    def latency(role: Role, _now: float) -> float:
        return lengths[role] * random.lognormvariate(0, 0.2)

    options = SPIRAL | {"concurrency": slots, "num_turns": turns}
    run, estimate = played(tmp_path, latency, slots, extras=extras, **options)

    # One call, with what it takes to repeat it.
    assert wrong(run, estimate, 0.1, 0.98, call=1.4 * max(lengths.values())) == []


@pytest.mark.parametrize("slots", [4, 64])
def test_a_resumed_run(tmp_path: Path, slots: int) -> None:
    """Only what the earlier session left counts, at the rate of this one."""
    run, _ = played(tmp_path, steady, slots, **SPIRAL, concurrency=slots)
    skipped = len(run.answers) * 6 // 10
    content = Content(run.plan.settings, tmp_path)
    estimate = TimeLeft(run.plan, content, run.units, run.answers[skipped - 1].at + 1e-9)

    assert wrong(run, estimate, 0.1, skipped=skipped) == []


@pytest.mark.parametrize("slots", [4, 64])
def test_an_endpoint_that_becomes_slow(tmp_path: Path, slots: int) -> None:
    """Half way through the calls it takes twice as long; soon the estimate follows."""
    middle = 972.0 if slots == 4 else 82.0

    def slower(_role: Role, now: float) -> float:
        return 8.0 if now >= middle else 4.0

    run, estimate = played(tmp_path, slower, slots, **SPIRAL, concurrency=slots)

    assert wrong(run, estimate, 0.5, 0.98) == []


def test_quick_refusals(tmp_path: Path) -> None:
    """Of the calls 30 % are refused twice at once and answered 2.4 s later: their earlier attempts took no time."""
    random = Random(0)

    def latency(_role: Role, _now: float) -> float:
        return 6.4 if random.random() < 0.3 else 4.0

    run, estimate = played(tmp_path, latency, 64, **SPIRAL)
    run.answers[:] = [
        answer._replace(seconds=4.0, attempts=3) if answer.seconds > 5 else answer for answer in run.answers
    ]

    # At the end only judgements are left, of which the time of earlier attempts is guessed.
    assert wrong(run, estimate, 0.1, 0.9, call=0.0) == []


def test_nothing_is_said_without_a_basis(tmp_path: Path) -> None:
    """Neither before the first answer, nor while nobody knows how long a judge takes, nor when all has ended."""
    run, estimate = played(tmp_path, steady, 64, **SPIRAL)
    first = [next(answer for answer in run.answers if answer.role == role) for role in ("evaluated", "user", "judge")]

    assert estimate.seconds(1.0, ()) is None
    estimate.add(first[:2])
    assert estimate.seconds(9.0, ()) is None
    estimate.add(first[2:])
    assert estimate.seconds(9.0, ()) is not None
    assert estimate.seconds(9.0, run.units) is None


def test_two_modes_ask_under_one_name(tmp_path: Path) -> None:
    """Each call counts once: 75 scenarios in two modes."""
    run, estimate = played(tmp_path, steady, 8, **TEMPAFFECT)

    assert estimate.calls(()) == {"evaluated": (0, 150)}
    estimate.add(run.answers[:10])
    assert estimate.calls(()) == {"evaluated": (10, 140)}


def test_judges_of_replies_are_planned(tmp_path: Path) -> None:
    """One call of each for every scenario, beside the evaluated model's; a built-in one is not called."""
    judges = ("j", "dry/lexical")
    settings = Settings(model=("m",), suite=("tempaffect",), prompting=("raw",), reply_judge=judges)
    content = Content(settings, tmp_path)
    plan = make_plan(settings, content, {"OPENAI_API_KEY": "key"}, datetime.now(UTC))
    unit = all_units(plan, content)[0]

    calls = planned_calls(plan, content, unit)

    assert {role: count for ((role, _), _), count in calls.items()} == {"evaluated": 1, "reply_judge": 1}
