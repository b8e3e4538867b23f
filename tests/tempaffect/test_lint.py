"""The authoring rules: the bundled suite keeps all of them, and each rule catches its fault."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from pytest_spiral.tempaffect.lint import lint_bundled, lint_scenario
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.suite import load_suite

SUITE = load_suite()


def test_the_bundled_suite_keeps_every_rule():
    """75 scenarios, no fault."""
    assert [f"{f.scenario} {f.rule}: {f.message}" for f in lint_bundled(SUITE.scenarios)] == []


def altered(path, value, scenario_id="pi-01"):
    data = json.loads(json.dumps(SUITE[scenario_id].model_dump(mode="json", by_alias=True)))
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return Scenario.model_validate(data)


REPLY = ["expected", "reply"]


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (["user_message"], "Too short by far.", "message_words"),
        (["user_message"], "word " * 61, "message_words"),
        ([*REPLY, "word_range"], [20, 40], "word_range"),
        ([*REPLY, "prohibited_acts"], ["one wording"], "prohibited_acts"),
        ([*REPLY, "issue_anchors", 0, "any"], ["four words are many"], "alternative_tokens"),
        ([*REPLY, "extra_forbidden_phrases"], [{"text": f"p {i}", "severity": "boilerplate"} for i in range(6)],
         "extra_forbidden_phrases"),
        (["agent_context"], "The caller talked about suicide.", "scope"),
        (["reference_reply"], "I hear you. Your feelings are valid.", "reference_reply"),
    ],
)  # fmt: skip
def test_each_rule_of_a_scenario_catches_its_fault(path, value, rule):
    """One thing wrong, one rule named."""
    assert rule in {fault.rule for fault in lint_scenario(altered(path, value))}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda s: s[:74], "count"),
        (lambda s: [x.model_copy(update={"canary": ""}) for x in s], "canary"),
        (lambda s: [x.model_copy(update={"rationale": ""}) for x in s], "complete"),
        (lambda s: [x.model_copy(update={"meta": x.meta.model_copy(update={"domain": "same"})}) for x in s], "quota"),
        (lambda s: [x.model_copy(update={"meta": x.meta.model_copy(update={"traits": ()})}) for x in s], "quota"),
        (lambda s: [x.model_copy(update={"meta": x.meta.model_copy(update={"power_relation": "boss"})}) for x in s],
         "quota"),
        (lambda s: [x.model_copy(update={"user_message": f"Such anger and fear. {x.user_message}"}) for x in s],
         "label_words"),
        (lambda s: [x.model_copy(update={"reference_reply": s[0].reference_reply}) for x in s], "similarity"),
    ],
    ids=["count", "canary", "complete", "domain", "trait", "power", "label_words", "similarity"],
)  # fmt: skip
def test_each_rule_of_the_suite_catches_its_fault(change, rule):
    """Quotas are counted, not assumed."""
    assert lint_bundled(SUITE.scenarios, [rule]) == []
    assert {fault.rule for fault in lint_bundled(change(list(SUITE.scenarios)), [rule])} == {rule}


def test_labels_follow_the_blueprint():
    """Slots keep strategy, stage, need, boundary and escalation; emotion and intensity keep their totals per family."""
    folder = os.environ.get("SPIRAL_FACTS_DIR")
    if not folder:
        pytest.skip("needs SPIRAL_FACTS_DIR")
    slots = {row["slot"]: row for row in json.loads((Path(folder) / "tempaffect_blueprint75.json").read_text())}

    assert set(slots) == set(SUITE.by_id)
    for name, slot in slots.items():
        key = SUITE[name].expected
        assert key.response_strategy == (slot["response_strategy"],)
        assert key.support_stage == (slot["support_stage"],)
        assert key.user_need == (slot["user_need"],)
        assert key.boundary_action == slot["boundary_action"]
        assert key.should_escalate == slot["should_escalate"]
    for family in ("ps", "pi", "rm"):
        own = [name for name in slots if name.startswith(family)]
        wanted = Counter(tuple(sorted(slots[n]["detected_emotion"])) for n in own)
        found = Counter(tuple(sorted(SUITE[n].expected.detected_emotion)) for n in own)
        assert found == wanted
        assert Counter(tuple(SUITE[n].expected.intensity) for n in own) == Counter(
            tuple(slots[n]["intensity"]) for n in own
        )
