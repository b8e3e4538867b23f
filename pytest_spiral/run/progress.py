"""How far a run is: calls, rate, time left, cost, retries and throttling by role, as a line for people or as JSON."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from pydantic import TypeAdapter

from pytest_spiral.chat import Role
from pytest_spiral.run.costs import usage_by_role
from pytest_spiral.run.models import pace_name
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.run.time_left import TimeLeft
from pytest_spiral.store import EndpointPace, RunStore


@dataclass(frozen=True, slots=True)
class RoleProgress:
    """Calls of one role.

    Attributes:
        done: Those that were answered and belong to units of this session.
        planned: Those and the ones that are left, where nothing fails.
        retries: Over the whole life of the run, as `failures` (calls that failed for good).
        most_in_flight: What its endpoint bears since it last answered 429; None if it never did.
    """

    done: int = 0
    planned: int = 0
    retries: int = 0
    failures: int = 0
    most_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far a run is at one moment.

    Attributes:
        event: Kind of record, for programs.
        at: Seconds since 1970.
        units: Scenarios and conversations of this session, of which so many are `finished`; None where not known.
        rate: Calls answered per second lately; None before the second one.
        seconds_left: None as long as it is not known.
        cost_usd: So far; None where a price is unknown.
        expected_usd: Of the whole, if the rest costs what the calls so far did.
        paused: Models that are paused, with the reason.
    """

    at: float
    finished: int
    units: int | None
    replies: int
    rate: float | None = None
    seconds_left: float | None = None
    cost_usd: float | None = None
    expected_usd: float | None = None
    roles: Mapping[Role, RoleProgress] = field(default_factory=dict)
    paused: Sequence[str] = ()
    event: str = "progress"

    def line(self) -> str:
        """For people, what matters most first."""
        done, planned = (sum(getattr(role, name) for role in self.roles.values()) for name in ("done", "planned"))
        parts = [f"{self.finished} of {self.units} units" if self.units else f"{self.finished} units"]
        parts.append(f"{done} of {planned} calls" if planned else f"{self.replies} replies")
        if self.rate is not None:
            parts.append(f"{self.rate:.3g}/s")
        if self.seconds_left is not None:
            parts.append(duration(self.seconds_left))
        if self.cost_usd:
            whole = "" if self.expected_usd is None else f"of {self.expected_usd:.2f} "
            parts.append(f"{self.cost_usd:.2f} {whole}USD")
        for name, role in self.roles.items():
            counts = [(role.retries, "retries"), (role.failures, "failed")]
            troubles = [f"{n} {what}" for n, what in counts if n]
            troubles += [] if role.most_in_flight is None else [f"throttled to {role.most_in_flight}"]
            parts += [f"{name} {' '.join(troubles)}"] if troubles else []
        return "; ".join([", ".join(parts), *self.paused])

    def json(self) -> bytes:
        """One line of the event file, without its end."""
        return _ADAPTER.dump_json(self)


_ADAPTER = TypeAdapter(Snapshot)


def duration(seconds: float) -> str:
    """In seconds or minutes, so that rounding adds no 10 %.

    >>> duration(150.0), duration(480.0)
    ('150 s left', '8 min left')
    """
    return f"{seconds / 60:.0f} min left" if seconds >= 300 else f"{seconds:.0f} s left"


def _cost_of_whole(cost: float | None, done: int, left: int) -> float | None:
    """What all calls of a role cost if the rest costs what those so far did; None where that is not known."""
    if not cost:
        return cost
    return cost * (done + left) / done if done else None


def _borne(paces: Sequence[EndpointPace], now: float) -> int:
    """Calls at once that an endpoint bore on average lately: after each 429 their number is halved and grows again."""
    begin = (now + next(pace.at for pace in paces if pace.reason == "429")) / 2
    ends = [*(pace.at for pace in paces[1:]), now]
    spans = [max(0.0, end - max(begin, pace.at)) for pace, end in zip(paces, ends, strict=True)]
    mean = sum(pace.most * span for pace, span in zip(paces, spans, strict=True)) / sum(spans) if any(spans) else 1.0
    return ceil(mean)


def snapshot(
    plan: RunPlan,
    store: RunStore,
    rest: TimeLeft | None,
    now: float,
    ended: Collection[Hashable],
    counts: tuple[int, int | None, int],
    paused: Sequence[str],
) -> Snapshot:
    """How far a run is. rest: None where its units are not known. counts: units finished, units, replies stored."""
    calls = rest.calls(ended) if rest is not None else {}
    throttled = {name: paces for name, paces in store.paces().items() if any(p.reason == "429" for p in paces)}
    usage = usage_by_role(store, plan)
    roles: dict[Role, RoleProgress] = {}
    expected: list[float | None] = []
    for role in dict.fromkeys(model.role for model in plan.everybody):
        done, left = calls.get(role, (0, 0))
        names = {pace_name(model) for model in plan.everybody if model.role == role and model.endpoint}
        limit = min((throttled[name][-1].most for name in names & throttled.keys()), default=None)
        row = usage.by_role.get(role)
        roles[role] = RoleProgress(done, done + left, row.retries if row else 0, row.failures if row else 0, limit)
        expected.append(_cost_of_whole(row.cost_usd, done, left) if row else None if left else 0.0)
    known = [cost for cost in expected if cost is not None]
    borne = {name: _borne(paces, now) for name, paces in throttled.items()}
    return Snapshot(
        at=now,
        finished=counts[0],
        units=counts[1],
        replies=counts[2],
        rate=rest.rate() if rest is not None else None,
        seconds_left=rest.seconds(now, ended, borne) if rest is not None else None,
        cost_usd=usage.cost_usd,
        expected_usd=sum(known) if len(known) == len(expected) else None,
        roles=roles,
        paused=tuple(paused),
    )
