"""A handler for the fake server with faults in it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from tests.fakes.openai_server import Fault, Handler, Reply


@dataclass(frozen=True)
class Rule:
    """When a handler is overruled. All conditions that are given must hold.

    fault: what is answered, or what makes it of the handler's own text. model: the requests of this model, which is how
    a server that serves several roles tells them apart. calls: numbers from 0 among that model's requests.
    rate: share of the requests, drawn by `Script.seed` and the request's number.
    """

    fault: Reply | Fault | Callable[[str], Reply | Fault]
    model: str | None = None
    calls: Container[int] | None = None
    rate: float = 1.0


class Script:
    """A handler with faults in it. The first rule that applies decides; `rules` may be changed at any time.

    counts: requests by model. faults: answers by a rule, by model.
    """

    def __init__(self, handler: Handler, rules: Iterable[Rule] = (), *, seed: int = 0) -> None:
        self.handler = handler
        self.rules = list(rules)
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def __call__(self, body: dict[str, Any], number: int) -> str | Reply | Fault:
        model = str(body.get("model"))
        index = self.counts[model]
        self.counts[model] += 1
        for place, rule in enumerate(self.rules):
            if self._applies(rule, place, model, index):
                self.faults[model] += 1
                fault = rule.fault
                return fault if isinstance(fault, Reply | Fault) else fault(str(self.handler(body, number)))
        return self.handler(body, number)

    def _applies(self, rule: Rule, place: int, model: str, index: int) -> bool:
        if rule.model not in (None, model) or (rule.calls is not None and index not in rule.calls):
            return False
        return rule.rate >= 1 or random.Random(f"{self.seed}-{model}-{index}-{place}").random() < rule.rate
