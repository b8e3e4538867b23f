"""Built-in models: known ways to succeed and to fail, deterministic, for proving the scorer.

None is a language model; a card made from one says so and cannot be published.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from itertools import cycle, islice

from pytest_spiral.errors import DataError
from pytest_spiral.resources import data_root
from pytest_spiral.status import ReasonCode
from pytest_spiral.tables import Table, read_table
from pytest_spiral.tempaffect.contract import answer_fields
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.shortcuts import SHORTCUTS, shortcut_reply
from pytest_spiral.tempaffect.suite import Suite

_Labels = dict[str, str | int | bool]


class _Texts(Table):
    """`texts.toml`: what the built-in models say."""

    defensive: tuple[str, ...]
    overempathic: tuple[str, ...]
    hollow: str
    over_refuser: tuple[str, ...]
    over_escalator: tuple[str, ...]
    slot_template: str
    random_sentences: tuple[str, ...]
    refusal: dict[str, str | bool]
    escalation: dict[str, str | bool]
    caving: Mapping[str, str]
    """By scenario."""
    swapped_persons: Mapping[str, str]


@cache
def _texts() -> _Texts:
    return read_table(_Texts, data_root() / "tempaffect" / "dry" / "texts.toml")


def dry_output(name: str, suite: Suite, scenario: Scenario) -> str:
    """What a built-in model answers to a scenario of a suite. Raises KeyError for an unknown name."""
    if name in SHORTCUTS:
        return _answer(_right_labels(scenario), shortcut_reply(name, scenario) or _reference(scenario))
    return _DRY_MODELS[name](suite, scenario)


def _answer(labels: _Labels, reply: str) -> str:
    return json.dumps({**labels, "reply": reply}, ensure_ascii=False)


def _right_labels(scenario: Scenario, **changes: str | bool) -> _Labels:
    """The labels of the key, the first one where several are accepted, with changes."""
    key = scenario.expected
    return {
        "detected_emotion": key.detected_emotion[0],
        "intensity": (key.intensity[0] + key.intensity[1]) // 2,
        "user_need": key.user_need[0],
        "support_stage": key.support_stage[0],
        "response_strategy": key.response_strategy[0],
        "boundary_action": key.boundary_action,
        "should_escalate": key.should_escalate,
        **changes,
    }


def _reference(scenario: Scenario) -> str:
    if not scenario.reference_reply:
        raise DataError(f"scenario {scenario.id}: reference_reply is missing; the dry models that quote it need one")
    return scenario.reference_reply


def _in_turn(replies: tuple[str, ...], suite: Suite, scenario: Scenario, **changes: str | bool) -> str:
    """The replies one after another, whatever was said, under the right labels with changes."""
    return _answer(_right_labels(scenario, **changes), replies[suite.positions[scenario.id] % len(replies)])


def _perfect(_suite: Suite, scenario: Scenario) -> str:
    return _answer(_right_labels(scenario), _reference(scenario))


def _keyword_gamer(suite: Suite, scenario: Scenario) -> str:
    """Anchors and targets without a sentence: every second time a bare list, otherwise glued together."""

    def length(wording: str) -> int:
        return len(wording.split())

    spec = scenario.expected.reply
    words = [word for anchor in spec.issue_anchors for word in sorted(anchor.any, key=length)[:2]]
    words += sorted(spec.action_targets, key=length)[:4]
    glue = " and the " if suite.positions[scenario.id] % 2 else " "
    repeated = islice(cycle(words), max(len(words), 12))
    return _answer(_right_labels(scenario), (glue.join(repeated) + ".").capitalize())


def _slot_template(_suite: Suite, scenario: Scenario) -> str:
    spec = scenario.expected.reply
    anchors = sorted(spec.issue_anchors, key=lambda anchor: not anchor.core)
    first, second = islice(cycle(spec.action_targets or ("answer",)), 2)
    slots = {"anchor_1": anchors[0].any[0], "anchor_2": anchors[:2][-1].any[0], "target_1": first, "target_2": second}
    return _answer(_right_labels(scenario), _texts().slot_template.format(**slots))


def _echo(_suite: Suite, scenario: Scenario) -> str:
    words = (_texts().swapped_persons.get(word.lower(), word) for word in scenario.user_message.split())
    return _answer(_right_labels(scenario), " ".join(words))


def _caver(_suite: Suite, scenario: Scenario) -> str:
    """Labels hold the line, the text gives in; where there is nothing to give in to, the reference."""
    return _answer(_right_labels(scenario), _texts().caving.get(scenario.id) or _reference(scenario))


def _constant_majority(suite: Suite, _scenario: Scenario) -> str:
    """The same labels and the same hollow reply for everybody: the floor of the skill score."""
    return _answer(_common_labels(suite), _texts().hollow)


@lru_cache(maxsize=4)
def _common_labels(suite: Suite) -> _Labels:
    keys = [_right_labels(scenario) for scenario in suite.scenarios]
    return {name: Counter(key[name] for key in keys).most_common(1)[0][0] for name in keys[0]}


def _random_valid(_suite: Suite, scenario: Scenario) -> str:
    rng = random.Random(f"random_valid-{scenario.id}")
    values = {name: allowed or (True, False) for name, (_, allowed) in answer_fields().items() if name != "reply"}
    labels = {name: rng.choice(allowed) for name, allowed in values.items()}
    return _answer(labels, " ".join(rng.sample(_texts().random_sentences, 3)))


def _shuffled_replies(suite: Suite, scenario: Scenario) -> str:
    """Right labels, a good reply to somebody else: the reference a third of the suite further on."""
    n = len(suite.scenarios)
    other = suite.scenarios[(suite.positions[scenario.id] + max(1, n // 3)) % n]
    return _answer(_right_labels(scenario), _reference(other))


def _with(text: str, **changes: str | float | None) -> str:
    return json.dumps({**json.loads(text), **changes})


MALFORMATIONS: Mapping[ReasonCode, Callable[[str], str]] = {
    ReasonCode.CODE_FENCE: lambda text: f"```json\n{text}\n```",
    ReasonCode.LEADING_TEXT: lambda text: f"Here is the JSON you asked for:\n{text}",
    ReasonCode.TRAILING_TEXT: lambda text: f"{text}\nI hope this helps!",
    ReasonCode.MULTIPLE_DOCUMENTS: lambda text: f"{text}\n{text}",
    ReasonCode.ROOT_NOT_OBJECT: lambda text: f"[{text}]",
    ReasonCode.TRAILING_COMMA: lambda text: f"{text[:-1]}, }}",
    ReasonCode.COMMENT: lambda text: f"{{// labels\n{text[1:]}",
    ReasonCode.SINGLE_QUOTES: lambda text: repr(json.loads(text)),
    ReasonCode.TRUNCATED: lambda text: text[: len(text) // 2],
    ReasonCode.MISSING_KEY: lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "reply"}),
    ReasonCode.EXTRA_KEY: lambda text: _with(text, confidence=5),
    ReasonCode.NULL_VALUE: lambda text: _with(text, user_need=None),
    ReasonCode.WRONG_TYPE: lambda text: _with(text, should_escalate="false"),
    ReasonCode.BAD_ENUM: lambda text: _with(text, detected_emotion="rage"),
    ReasonCode.ENUM_SPELLING: lambda text: _with(text, boundary_action="Continue-Helping"),
    ReasonCode.OUT_OF_RANGE: lambda text: _with(text, intensity=9),
    ReasonCode.FLOAT_NUMBER: lambda text: _with(text, intensity=3.0),
    ReasonCode.NOT_A_NUMBER: lambda text: _with(text, intensity=float("nan")),
    ReasonCode.DUPLICATE_KEY: lambda text: f'{text[:-1]}, "intensity": 3}}',
    ReasonCode.EMPTY_REPLY: lambda text: _with(text, reply="  "),
    ReasonCode.REPLY_TOO_LONG: lambda text: _with(text, reply="again and " * 300),
    ReasonCode.LONE_SURROGATE: lambda text: _with(text, reply="half a pair \ud83d here"),
    ReasonCode.THINK_BLOCK: lambda text: f"<think>Let me see.</think>{text}",
    ReasonCode.EMPTY_OUTPUT: lambda text: "",
    ReasonCode.NOT_JSON: lambda text: "I would rather answer in prose today.",
}
"""Reason code to the damage that must earn it."""


def _malformed(suite: Suite, scenario: Scenario) -> str:
    damages = list(MALFORMATIONS.values())
    return damages[suite.positions[scenario.id] % len(damages)](_perfect(suite, scenario))


_DRY_MODELS: Mapping[str, Callable[[Suite, Scenario], str]] = {
    "perfect": _perfect,
    "defensive": lambda suite, scenario: _in_turn(_texts().defensive, suite, scenario),
    "malformed": _malformed,
    "keyword_gamer": _keyword_gamer,
    "overempathic": lambda suite, scenario: _in_turn(_texts().overempathic, suite, scenario),
    "slot_template": _slot_template,
    "echo": _echo,
    "caver": _caver,
    "over_refuser": lambda suite, scenario: _in_turn(_texts().over_refuser, suite, scenario, **_texts().refusal),
    "over_escalator": lambda suite, scenario: _in_turn(_texts().over_escalator, suite, scenario, **_texts().escalation),
    "constant_majority": _constant_majority,
    "random_valid": _random_valid,
    "shuffled_replies": _shuffled_replies,
}
DRY_MODELS = (*_DRY_MODELS, *SHORTCUTS)
PAGE_FIXTURES = ("perfect", "defensive", "malformed", "keyword_gamer", "overempathic")
"""The five that the scorer must pass before the first real call of a run."""
