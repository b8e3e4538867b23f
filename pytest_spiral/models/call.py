"""The attempts of one call to a model: whether to make another one, and how long to wait before it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from pytest_spiral.chat import ChatRequest
from pytest_spiral.errors import ChatError
from pytest_spiral.models.attempt import AttemptError
from pytest_spiral.models.circuit import Circuit
from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.models.refusals import read_refusal
from pytest_spiral.status import ReasonCode

# Waits double from `first_wait`; beyond 2**60 a float would overflow, and every cap has long been reached.
_MAX_DOUBLINGS = 60
# After a Retry-After, waits are spread over this share of it: all requests in flight were told the same time.
_SPREAD = 0.1


@dataclass(eq=False)
class Call:
    """One call: its attempts, its waits, and the seconds that its requests may take still.

    A failure counts against the call only if the endpoint has answered others since the call's last one, or answered
    this one with something unusable. Otherwise it is the endpoint that is failing, and the circuit's patience decides.
    """

    endpoint: Endpoint
    circuit: Circuit
    rng: random.Random
    attempts: int = 0
    last: AttemptError | None = None
    before: AttemptError | None = None
    seconds_left: float = field(init=False)
    _waited: float = 0.0
    _failures: int = 0
    _answers: int = -1
    _counts: Counter[ReasonCode] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.seconds_left = self.endpoint.timeout

    def wait_after(self, error: AttemptError) -> float | None:
        """Seconds to wait before another attempt, None to make none.

        A wait is drawn from the upper half of a span that doubles with every failure. An endpoint can ask for a longer
        one, within what is left of patience, but not for a shorter one.
        """
        policy, circuit = self.endpoint.retry, self.circuit
        self.before, self.last = self.last, error
        self._failures += 1
        if error.is_unusable or circuit.answers != self._answers:
            self._counts[error.code] += 1
        self._answers = circuit.answers
        span = min(policy.max_wait, policy.first_wait * 2 ** min(self._failures - 1, _MAX_DOUBLINGS))
        wait = self.rng.uniform(span / 2, span)
        left = self.endpoint.patience - self._waited
        if error.retry_after is not None:
            asked = max(0.0, min(error.retry_after, left, circuit.patience_left()))
            wait = max(wait, asked + min(wait, _SPREAD * asked))
        if not error.again or circuit.given_up or min(left, self.seconds_left) <= 0 or self._is_exhausted():
            return None
        self._waited += wait
        return wait

    def _is_exhausted(self) -> bool:
        policy, counts = self.endpoint.retry, self._counts
        limited = counts[ReasonCode.RATE_LIMITED]
        unusable = counts[ReasonCode.BAD_RESPONSE] + counts[ReasonCode.UNFINISHED]
        return (
            limited >= policy.max_rate_limited
            or unusable >= policy.max_bad_responses
            or counts.total() - limited >= policy.max_attempts
        )

    def failed(self, request: ChatRequest) -> ChatError:
        """The error of a call whose last attempt failed."""
        last = self.last
        assert last is not None
        gave_up = ""
        if self.circuit.given_up and last.again:
            gave_up = f"; nothing was answered for {self.endpoint.patience:g} s (--patience)"
        after = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        out_of_time = last.code is ReasonCode.TIMEOUT and not last.again
        before = f", before that: {self.before.message}" if out_of_time and self.before is not None else ""
        wait = f", it asks to wait {last.retry_after:.0f} s" if last.retry_after else ""
        remedy = f": {last.remedy}" if last.remedy else ""
        message = f"{self.endpoint.host}: {last.message}{after}{before}{wait}{gave_up}{remedy}"
        failed = ChatError(last.code, message, attempts=self.attempts, http_status=last.status)
        failed.refusal = read_refusal(last.status, last.said, request) if last.said is not None else None
        return failed
