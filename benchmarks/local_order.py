"""Whether a local model replies the same in another order and with other requests beside it, and how long it takes.

    python -m benchmarks.local_order [--scenarios 75] [--model local/smollm2-135m] [--seed 1]

TempAffect is run twice in both prompting modes, each time with servers and a store of its own: scenario by scenario,
and in an order by chance with three requests at once. Everything that was stored is compared. Prints figures of
both runs and every request whose reply differs; exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from pytest_spiral.chat import ChatReply
from pytest_spiral.run.content import Content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.models import Chats, Connections
from pytest_spiral.run.plan import make_plan, scenario_units
from pytest_spiral.run.runner import Runner
from pytest_spiral.settings import Settings


def run(model: str, scenarios: int, seed: int | None) -> Mapping[str, ChatReply]:
    """The replies of one run by the keys of their requests. seed: of the order, None for scenario by scenario."""
    settings = Settings(model=(model,), suite=("tempaffect",), concurrency=8 if seed is None else 3)
    with tempfile.TemporaryDirectory() as folder:
        content = Content(settings, Path(folder))
        plan = make_plan(settings, content, {}, datetime.now(UTC))
        controller = RunController(plan, content, os.environ)
        began = time.perf_counter()
        try:
            controller.prepare()
            controller.check_models()
            plan, store = controller.plan, controller.store
            chosen = {scenario.id for scenario in content.suite.scenarios[:: max(1, 75 // scenarios)][:scenarios]}
            units = [unit for unit in scenario_units(plan, content) if unit.scenario_id in chosen]
            units.sort(key=lambda unit: unit.scenario_id)
            if seed is not None:
                random.Random(seed).shuffle(units)
            runner = Runner(Chats(plan, content, store, Connections(plan, content, store, {})))
            try:
                for unit in units:
                    runner.submit(unit)
                items = [runner.wait(unit) for unit in units]
            finally:
                runner.stop()
            replies = {exchange.request.key: exchange.reply for exchange in store.exchanges()}
        finally:
            controller.close()
    seconds, tokens = time.perf_counter() - began, sum(reply.usage.completion_tokens for reply in replies.values())
    states = [f"{item.status.value} {item.reason.code.value if item.reason else ''}".strip() for item in items]
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{len(units)} items, {len(replies)} replies, {tokens:,} tokens in {seconds:.0f} s, {load}")
    print("   " + ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))), flush=True)
    return replies


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=75)
    parser.add_argument("--model", default="local/smollm2-135m")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    one = run(options.model, options.scenarios, None)
    other = run(options.model, options.scenarios, options.seed)
    both = one.keys() & other.keys()
    differing = [key for key in both if _compared(one[key]) != _compared(other[key])]
    for key in differing:
        print(f"{key}: {_compared(one[key])!r} and {_compared(other[key])!r}")
    alone = len(one.keys() ^ other.keys())
    print(f"{len(differing)} of {len(both)} replies differ; {alone} were given in one run only")
    return bool(differing or alone)


def _compared(reply: ChatReply) -> object:
    """What must be the same: all but how long it took."""
    return reply.text, reply.finish, reply.reasoning, reply.usage


if __name__ == "__main__":
    sys.exit(main())
