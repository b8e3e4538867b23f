"""Records that the store returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pytest_spiral.chat import ChatReply, ChatRequest, Role


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """One request with its reply, as stored.

    Attributes:
        at: When the reply was stored, in seconds since 1970.
    """

    request: ChatRequest
    reply: ChatReply
    at: float


class AnsweredCall(NamedTuple):
    """That a call of a unit was answered, the last of its `attempts`, after so many seconds. at: as in the store."""

    role: Role
    model: str
    unit: str
    seconds: float
    at: float
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What one model was asked for in one role, over the whole life of a run.

    Attributes:
        requests: Requests that were answered.
        with_reasoning: Replies that came with reasoning.
        retries: Further HTTP requests that answered and failed calls needed.
        failures: Calls that failed for good.
    """

    role: Role
    model: str
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    with_reasoning: int = 0
    retries: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class EndpointPace:
    """One value of an endpoint's limit on requests in flight, over all processes of the run.

    Attributes:
        most: Requests that may be in flight.
        ceiling: The last value that proved too high; at first the starting value.
        epoch: How often the limit was halved so far.
        at: Seconds since 1970.
    """

    most: int
    ceiling: int
    reason: Literal["start", "429", "growth"] = "start"
    epoch: int = 0
    at: float = 0.0
