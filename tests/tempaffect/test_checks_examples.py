"""Every language rule decides its own examples and none of its near misses: the examples are the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.resources import read_toml
from pytest_spiral.tempaffect.checks.action import ACT_RULES, VERBLESS_RULES, ActCandidate, Statement, read_statements
from pytest_spiral.tempaffect.checks.clauses import CLAUSE_RULES, decide_clauses
from pytest_spiral.tempaffect.checks.commitment import ASK_RULES, DECISION_RULES
from pytest_spiral.tempaffect.checks.decision import read_decision
from pytest_spiral.tempaffect.checks.defensive import DISCLAIMER_RULES, REBUKE_RULES, Remark
from pytest_spiral.tempaffect.checks.prepare import prepare_scenario
from pytest_spiral.tempaffect.checks.rule import Rule, first_rule, matches
from pytest_spiral.tempaffect.checks.sentences import Sentence, prepare_reply
from pytest_spiral.tempaffect.scenario import Act, Decision
from pytest_spiral.text import tokenize
from tests.tempaffect.test_checks_rules import BASE, REPAIR

AnyRule = Rule[Any, Any]
AFTER_A_MISTAKE = {"perhaps the mistake itself"}
DECISION = Decision(
    acts=(
        Act(id="code", role="right", what="send a code", says=((("send",), ("code", "codes")),)),
        Act(
            id="courier",
            role="wrong",
            what="send a courier",
            says=((("send", "put"), ("courier",)), (("courier",), ("price",))),
        ),
        Act(id="open", role="demanded", what="open it", says=((("open",), ("parcel", "parcels")),)),
        Act(id="rings", role="impossible", what="nobody minds", says=((("mind", "be"), ("rings",), ("late",)),)),
        Act(
            id="number",
            role="ask",
            what="ask for the number",
            says=((("number", "state"), ("card",)), (("which",), ("card",))),
        ),
    ),
    right=(("code",),),
)
EXAMPLES = read_toml(Path(__file__).parent / "data" / "rule_examples.toml")


def marked_verb(example: str) -> tuple[tuple[Sentence, ...], Sentence, int]:
    """The sentences of an example, the one that holds the verb in brackets, and the place of the verb in it."""
    place = len(tokenize(example[: example.index("[")]))
    sentences = prepare_reply(example.replace("[", "").replace("]", "")).sentences
    for sentence in sentences:
        if place < len(sentence.tokens):
            return sentences, sentence, place
        place -= len(sentence.tokens)
    raise AssertionError(f"no verb is marked in {example!r}")


def decides_clause(rule: AnyRule, example: str) -> bool:
    """Whether the rule decides how the marked verb is used."""
    _, sentence, place = marked_verb(example)
    return any(clause.at == place and decided is rule for clause, decided in decide_clauses(sentence))


def read(rule: AnyRule, sentences: Iterable[Sentence]) -> list[Statement]:
    """The sentences as the scenario of the rule reads them."""
    return read_statements(prepare_scenario(REPAIR if rule.name in AFTER_A_MISTAKE else BASE), tuple(sentences))


def decides_act(rule: AnyRule, example: str) -> bool:
    """Whether the rule decides if the marked verb is a concrete act."""
    sentences, sentence, place = marked_verb(example)
    return any(
        clause.at == place and first_rule(ACT_RULES, ActCandidate(clause, statement)) is rule
        for statement in read(rule, sentences)
        if statement.sentence is sentence
        for clause in statement.clauses
    )


def decides_verbless(rule: AnyRule, example: str) -> bool:
    """Whether the rule decides about the sentence as an act without a verb."""
    return first_rule(VERBLESS_RULES, read(rule, prepare_reply(example).sentences)[-1]) is rule


def gives_reason(rules: tuple[AnyRule, ...]) -> Callable[[AnyRule, str], bool]:
    """Whether the rule is among those of its table that find the sentence defensive."""

    def decide(rule: AnyRule, example: str) -> bool:
        sentence = prepare_reply(example).sentences[-1]
        remark = Remark(sentence, False, not sentence.personal, prepare_scenario(BASE).known)
        return any(result is rule for result, _ in matches(rules, remark))

    return decide


def decides_commitment(rule: AnyRule, example: str) -> bool:
    """Whether the rule decides if the reply commits to an act of the key."""
    return rule.name in [act.rule for act in read_decision(DECISION, prepare_reply(example)).acts]


TABLES: dict[str, tuple[tuple[AnyRule, ...], Callable[[AnyRule, str], bool]]] = {
    **{form: (rules, decides_clause) for form, rules in CLAUSE_RULES.items()},
    "act": (ACT_RULES, decides_act),
    "verbless": (VERBLESS_RULES, decides_verbless),
    "disclaimer": (DISCLAIMER_RULES, gives_reason(DISCLAIMER_RULES)),
    "decision": (DECISION_RULES, decides_commitment),
    "ask": (ASK_RULES, decides_commitment),
    "rebuke": (REBUKE_RULES, gives_reason(REBUKE_RULES)),
}
CASES = [
    pytest.param(rule, decides, text, kind == "examples", id=f"{table}: {rule.name}: {text}")
    for table, (rules, decides) in TABLES.items()
    for rule in rules
    for kind, texts in EXAMPLES[table].get(rule.name, {}).items()
    for text in texts
]


@pytest.mark.parametrize(("rule", "decides", "example", "expected"), CASES)
def test_a_rule_decides_its_examples(
    rule: AnyRule, decides: Callable[[AnyRule, str], bool], example: str, expected: bool
) -> None:
    """A rule decides each of its examples, and none of its near misses."""
    assert decides(rule, example) is expected


@pytest.mark.parametrize("table", TABLES)
def test_every_rule_has_a_name_of_its_own_and_an_example(table: str) -> None:
    """Rules and examples are listed in the same order, no rule is without an example, and no two share a name."""
    rules, _ = TABLES[table]

    assert list(EXAMPLES[table]) == [rule.name for rule in rules]
    assert all(entry["examples"] for entry in EXAMPLES[table].values())
