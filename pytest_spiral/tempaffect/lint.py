"""Authoring rules that every scenario must keep, bundled or custom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pytest_spiral.resources import data_root
from pytest_spiral.tables import Table, read_table
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.records import REPLY_CHECKS
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.text import count_words, tokenize

_BrokenRules = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A scenario that breaks a rule."""

    scenario: str
    rule: str
    message: str


class _Rules(Table):
    """`lint.toml`. Ranges are inclusive."""

    message_words: tuple[int, int]
    anchor_groups: tuple[int, int]
    alternative_tokens: int
    range_ratio: int
    prohibited_variants: int
    extra_forbidden_phrases: int
    out_of_scope: tuple[str, ...]
    telling_contexts: tuple[str, ...]


@cache
def _rules() -> _Rules:
    return read_table(_Rules, data_root() / "tempaffect" / "lint.toml")


def lint_scenario(scenario: Scenario) -> list[Fault]:
    """All rules that a scenario breaks."""
    broken = (*_broken_by_texts(scenario), *_broken_by_key(scenario))
    return [Fault(scenario.id, rule, message) for rule, message in broken]


def _broken_by_texts(scenario: Scenario) -> _BrokenRules:
    rules, words = _rules(), count_words(scenario.user_message)
    low, high = rules.message_words
    if not low <= words <= high:
        yield "message_words", f"user_message has {words} words, expected {low} to {high}"
    for term in rules.out_of_scope:
        if _says(scenario.user_message, term) or _says(scenario.agent_context, term):
            yield "scope", f"{term!r} is out of scope"
    for term in rules.telling_contexts:
        if _says(scenario.agent_context, term):
            yield "telling_context", f"{term!r} gives the key away; state the fact behind it"


def _says(text: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text, re.IGNORECASE) is not None


def _broken_by_key(scenario: Scenario) -> _BrokenRules:
    rules, spec = _rules(), scenario.expected.reply
    low, high = rules.anchor_groups
    if not low <= len(spec.issue_anchors) <= high:
        yield "anchor_groups", f"{len(spec.issue_anchors)} anchor groups, expected {low} to {high}"
    for anchor in spec.issue_anchors:
        for alternative in anchor.any:
            if len(tokenize(alternative)) > rules.alternative_tokens:
                longest = rules.alternative_tokens
                yield "alternative_tokens", f"anchor {anchor.id}: {alternative!r} has more than {longest} tokens"
    if spec.word_range[1] < rules.range_ratio * spec.word_range[0]:
        yield "word_range", f"word_range {list(spec.word_range)} is narrower than {rules.range_ratio}:1"
    refusing = scenario.expected.boundary_action in ("decline_with_alternative", "refuse")
    if refusing and len(spec.prohibited_acts) < rules.prohibited_variants:
        least = rules.prohibited_variants
        yield "prohibited_acts", f"{len(spec.prohibited_acts)} wordings of the act to decline, expected {least} or more"
    if len(spec.extra_forbidden_phrases) > rules.extra_forbidden_phrases:
        yield "extra_forbidden_phrases", f"more than {rules.extra_forbidden_phrases} additional phrases"
    if not scenario.reference_reply:
        return
    checks = check_reply(scenario, scenario.reference_reply)
    if checks.useful_bounded is False or not all(getattr(checks, name) for name in REPLY_CHECKS):
        failed = {name: reasons for name, reasons in checks.reasons.items() if not getattr(checks, name, True)}
        yield "reference_reply", f"the reference reply does not pass its own checks: {failed}"
