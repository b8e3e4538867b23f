"""A model for the fake server: answers the bundled scenarios as a built-in stand-in does, except where told otherwise.

with FakeOpenAI(ScriptedModel("perfect", replies={"ps-01": Reply.refused()})) as server:
    ...
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import build_messages, load_suite
from tests.fakes.openai_server import Fault, Reply

__all__ = ["ScriptedModel", "schema_bound"]


def schema_bound(body: Mapping[str, Any]) -> str:
    """The first document that the schema of a request allows."""

    def first(schema: Mapping[str, Any]) -> Any:
        if schema["type"] == "object":
            return {name: first(part) for name, part in schema["properties"].items()}
        return schema["enum"][0] if "enum" in schema else {"boolean": False, "array": []}.get(schema["type"], 0)

    return json.dumps(first(body["response_format"]["json_schema"]["schema"]))


class ScriptedModel:
    """A handler for `FakeOpenAI`.

    replies: by scenario id, in place of the stand-in's. enforces: whether schemas are held to, as the endpoint's probe
    shows it. answers: after so many scored answers, `then` is all that is said; None for no end. asked: scored requests
    so far, as (mode, scenario id); probes: requests that were no scenario.
    """

    def __init__(
        self,
        name: str = "perfect",
        *,
        replies: Mapping[str, str | Reply | Fault] | None = None,
        enforces: bool = True,
        answers: int | None = None,
        then: Fault | None = None,
    ) -> None:
        self.name = name
        self.replies = replies or {}
        self.enforces = enforces
        self.answers = answers
        self.then = then or Fault.status_code(402, "out of credit")
        self.asked: list[tuple[str, str]] = []
        self.probes = 0
        self._suite = load_suite()
        self._scenarios = {build_messages(scenario)[1].content: scenario for scenario in self._suite.scenarios}
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any], number: int) -> str | Reply | Fault:
        scenario = self._scenarios.get(body["messages"][-1]["content"])
        if scenario is None:
            self.probes += 1
            return schema_bound(body) if self.enforces and "response_format" in body else "ready"
        with self._lock:
            self.asked.append(("schema" if "response_format" in body else "raw", scenario.id))
            if self.answers is not None and len(self.asked) > self.answers:
                return self.then
        return self.replies.get(scenario.id) or dry_output(self.name, self._suite, scenario)
