"""The authoring rules: the bundled suite keeps all of them, and each rule catches its fault."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.tempaffect.lint import lint_scenario
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.suite import load_suite
from pytest_spiral.text import function_words
from tests.tempaffect.suite_rules import broken

SUITE = load_suite()
Change = Callable[[list[Scenario]], Sequence[Scenario]]


def test_every_bundled_scenario_keeps_every_rule() -> None:
    """75 scenarios, no fault."""
    assert [fault for scenario in SUITE.scenarios for fault in lint_scenario(scenario)] == []


def altered(path: Sequence[str | int], value: object) -> Scenario:
    """A bundled scenario with one value replaced."""
    data = SUITE["pi-01"].model_dump(mode="json", by_alias=True)
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return Scenario.model_validate(data)


REPLY = ["expected", "reply"]


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (["user_message"], "Too short by far.", "message_words"),
        (["user_message"], "word " * 76, "message_words"),
        ([*REPLY, "word_range"], [20, 40], "word_range"),
        ([*REPLY, "prohibited_acts"], ["one wording"], "prohibited_acts"),
        ([*REPLY, "issue_anchors", 0, "any"], ["four words are many"], "alternative_tokens"),
        ([*REPLY, "extra_forbidden_phrases"], [{"text": f"p {i}", "severity": "boilerplate"} for i in range(6)],
         "extra_forbidden_phrases"),
        (["agent_context"], "The caller talked about suicide.", "scope"),
        (["agent_context"], "A matter that this desk alone decides.", "telling_context"),
        (["reference_reply"], "I hear you. Your feelings are valid.", "reference_reply"),
    ],
)  # fmt: skip
def test_each_rule_of_a_scenario_catches_its_fault(path: Sequence[str | int], value: object, rule: str) -> None:
    """One thing wrong, one rule named."""
    assert rule in {fault.rule for fault in lint_scenario(altered(path, value))}


def reframed(scenario: Scenario, mark: str) -> str:
    """The same sentence frame around other nouns: every word but the function words changed."""
    words = (
        word if word.casefold() in function_words() else f"{word}x{mark}"
        for word in re.findall(r"\w+", scenario.agent_context)
    )
    return " ".join(words) + "."


@cache
def broken_in_bundle(rule: str) -> list[str]:
    """What the bundled suite breaks of a rule of suites."""
    return list(broken(rule, SUITE.scenarios))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda s: s[:74], "count"),
        (lambda s: [x.model_copy(update={"canary": ""}) for x in s], "canary"),
        (lambda s: [x.model_copy(update={"rationale": ""}) for x in s], "complete"),
        (lambda s: [x.model_copy(update={"meta": replace(x.meta, domain="same")}) for x in s], "quota"),
        (lambda s: [x.model_copy(update={"meta": replace(x.meta, traits=())}) for x in s], "quota"),
        (lambda s: [x.model_copy(update={"meta": replace(x.meta, power_relation="boss")}) for x in s],
         "quota"),
        (lambda s: [x.model_copy(update={"user_message": f"Such anger and fear. {x.user_message}"}) for x in s],
         "label_words"),
        (lambda s: [x.model_copy(update={"reference_reply": s[0].reference_reply}) for x in s], "similarity"),
        (lambda s: [x.model_copy(update={"user_message": f"Excuse me, sir. {x.user_message}"}) for x in s],
         "structure"),
        (lambda s: [x.model_copy(update={"agent_context": reframed(s[0], x.id)}) for x in s], "structure"),
        (lambda s: [x.model_copy(update={"agent_context": f"{x.agent_context} So says Ottokar."}) for x in s], "names"),
    ],
    ids=["count", "canary", "complete", "domain", "trait", "power", "label_words", "similarity", "opening", "structure",
         "names"],
)  # fmt: skip
def test_each_rule_of_the_suite_catches_its_fault(change: Change, rule: str) -> None:
    """The bundled suite keeps the rule, and a suite changed against it does not."""
    assert broken_in_bundle(rule) == []
    assert broken(rule, change(list(SUITE.scenarios))) != []


@pytest.mark.parametrize("rule", ["core_alternative", "cross_grounding"])
def test_no_scenario_fits_another(rule: str) -> None:
    """Core anchors name one scenario's topic, and reference replies count as grounded in their own scenario only."""
    assert broken(rule, SUITE.scenarios) == []


# Slots whose key followed the annotators instead, and the field.
CORRECTED = {
    *(("ps-02", field) for field in ("response_strategy", "boundary_action", "should_escalate")),
    *((name, "support_stage") for name in ("ps-10", "ps-14", "ps-15", "rm-12", "rm-13", "rm-14", "rm-15")),
    *((name, field) for name in ("rm-03", "pi-19", "pi-20") for field in ("response_strategy", "boundary_action")),
    *((name, "user_need") for name in ("pi-13", "pi-16")),
    ("ps-06", "support_stage"),
    ("ps-23", "response_strategy"),
    ("rm-22", "boundary_action"),
}


def test_labels_follow_the_blueprint() -> None:
    """Slots keep strategy, stage, need, boundary and escalation; emotion and intensity are the annotators' (audit)."""
    folder = os.environ.get("SPIRAL_FACTS_DIR")
    if not folder:
        pytest.skip("needs SPIRAL_FACTS_DIR")
    slots = {row["slot"]: row for row in json.loads((Path(folder) / "tempaffect_blueprint75.json").read_text())}

    assert set(slots) == set(SUITE.by_id)
    differing = set()
    for name, slot in slots.items():
        key = SUITE[name].expected
        for field in ("response_strategy", "support_stage", "user_need", "boundary_action", "should_escalate"):
            value = getattr(key, field)
            if (value if isinstance(value, (str, bool)) else value[0]) != slot[field]:
                differing.add((name, field))
    assert differing == CORRECTED
