"""Built-in stand-ins for a model: known ways to succeed and to fail, deterministic, for proving the scorer.

None is a language model; a card made from one says so and cannot be published.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import cycle, islice
from typing import Any

from pytest_spiral.errors import DataError
from pytest_spiral.resources import data_root, read_json, read_toml
from pytest_spiral.tempaffect.scenario import (
    BOUNDARIES,
    EMOTIONS,
    NEEDS,
    STAGES,
    STRATEGIES,
    Scenario,
)
from pytest_spiral.tempaffect.suite import Suite

__all__ = ["DRY_MODELS", "MALFORMATIONS", "PAGE_FIXTURES", "dry_output"]

Labels = dict[str, Any]


def dry_output(name: str, suite: Suite, scenario: Scenario) -> str:
    """What the stand-in `name` answers to `scenario` as part of `suite`. Raises KeyError for an unknown name."""
    return DRY_MODELS[name](suite, scenario)


@cache
def _texts() -> Mapping[str, Any]:
    return read_toml(data_root() / "tempaffect" / "dry" / "texts.toml")


@cache
def _caving() -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = read_json(data_root() / "tempaffect" / "dry" / "caving_replies.json")
    return found


def _position(suite: Suite, scenario: Scenario) -> int:
    return suite.position(scenario.id)


def _rotating(key: str, suite: Suite, scenario: Scenario) -> str:
    texts: list[str] = _texts()[key]
    return texts[_position(suite, scenario) % len(texts)]


def _key_labels(scenario: Scenario) -> Labels:
    key = scenario.expected
    return {
        "detected_emotion": key.detected_emotion[0],
        "intensity": (key.intensity[0] + key.intensity[1]) // 2,
        "user_need": key.user_need[0],
        "support_stage": key.support_stage[0],
        "response_strategy": key.response_strategy[0],
        "boundary_action": key.boundary_action,
        "should_escalate": key.should_escalate,
    }


def _answer(labels: Labels, reply: str) -> str:
    return json.dumps({**labels, "reply": reply}, ensure_ascii=False)


def _reference(scenario: Scenario) -> str:
    if not scenario.reference_reply:
        raise DataError(f"scenario {scenario.id}: reference_reply is missing; the dry models that quote it need one")
    return scenario.reference_reply


def _perfect(_suite: Suite, scenario: Scenario) -> str:
    return _answer(_key_labels(scenario), _reference(scenario))


def _defensive(suite: Suite, scenario: Scenario) -> str:
    return _answer(_key_labels(scenario), _rotating("defensive", suite, scenario))


def _overempathic(suite: Suite, scenario: Scenario) -> str:
    return _answer(_key_labels(scenario), _rotating("overempathic", suite, scenario))


def _keyword_gamer(suite: Suite, scenario: Scenario) -> str:
    """Anchors and targets without a sentence: every second time a bare list, otherwise glued together."""
    spec = scenario.expected.reply
    wordings = [sorted(anchor.any, key=_length)[:2] for anchor in spec.issue_anchors]
    words = [word for pair in wordings for word in pair] + sorted(spec.action_targets, key=_length)[:4]
    glue = " " if _position(suite, scenario) % 2 == 0 else " and the "
    stuffed = list(islice(cycle(words), max(len(words), 12)))
    return _answer(_key_labels(scenario), (glue.join(stuffed) + ".").capitalize())


def _length(wording: str) -> int:
    return len(wording.split())


def _slot_template(_suite: Suite, scenario: Scenario) -> str:
    spec = scenario.expected.reply
    core = sorted(spec.issue_anchors, key=lambda anchor: not anchor.core)
    targets = list(islice(cycle(spec.action_targets or ("answer",)), 2))
    text: str = _texts()["slot_template"]
    return _answer(
        _key_labels(scenario),
        text.format(
            anchor_1=core[0].any[0],
            anchor_2=core[min(1, len(core) - 1)].any[0],
            target_1=targets[0],
            target_2=targets[1],
        ),
    )


_SWAP = {
    "i": "you", "me": "you", "my": "your", "mine": "yours", "i'm": "you're", "i've": "you've", "i'd": "you'd",
    "you": "I", "your": "my", "am": "are", "we": "you", "our": "your", "us": "you",
}  # fmt: skip


def _echo(_suite: Suite, scenario: Scenario) -> str:
    words = (_SWAP.get(word.lower(), word) for word in scenario.user_message.split())
    return _answer(_key_labels(scenario), " ".join(words))


def _caver(_suite: Suite, scenario: Scenario) -> str:
    """Labels hold the line, the text gives in; where there is nothing to give in to, the reference."""
    replies = _caving().get(scenario.id)
    return _answer(_key_labels(scenario), replies[0] if replies else _reference(scenario))


def _over_refuser(suite: Suite, scenario: Scenario) -> str:
    labels = {
        **_key_labels(scenario),
        "response_strategy": "set_boundary_with_alternative",
        "boundary_action": "refuse",
        "should_escalate": False,
    }
    return _answer(labels, _rotating("over_refuser", suite, scenario))


def _over_escalator(suite: Suite, scenario: Scenario) -> str:
    labels = {
        **_key_labels(scenario),
        "response_strategy": "escalate",
        "boundary_action": "escalate",
        "should_escalate": True,
    }
    return _answer(labels, _rotating("over_escalator", suite, scenario))


def _constant_majority(suite: Suite, _scenario: Scenario) -> str:
    """The same labels and the same hollow reply for everybody: the floor of the skill score."""
    keys = [_key_labels(scenario) for scenario in suite.scenarios]
    labels = {name: Counter(key[name] for key in keys).most_common(1)[0][0] for name in keys[0]}
    return _answer(labels, _texts()["hollow"])


def _random_valid(_suite: Suite, scenario: Scenario) -> str:
    rng = random.Random(f"random_valid-{scenario.id}")
    labels = {
        "detected_emotion": rng.choice(EMOTIONS),
        "intensity": rng.randint(1, 5),
        "user_need": rng.choice(NEEDS),
        "support_stage": rng.choice(STAGES),
        "response_strategy": rng.choice(STRATEGIES),
        "boundary_action": rng.choice(BOUNDARIES),
        "should_escalate": rng.choice((True, False)),
    }
    return _answer(labels, " ".join(rng.sample(_texts()["random_sentences"], 3)))


def _shuffled_replies(suite: Suite, scenario: Scenario) -> str:
    """Right labels, a good reply to somebody else: the reference a third of the suite further on."""
    n = len(suite.scenarios)
    other = suite.scenarios[(_position(suite, scenario) + max(1, n // 3)) % n]
    return _answer(_key_labels(scenario), _reference(other))


def _without_last_key(text: str) -> str:
    fields = json.loads(text)
    fields.pop("reply")
    return json.dumps(fields)


def _with(text: str, **changes: Any) -> str:
    return json.dumps({**json.loads(text), **changes})


MALFORMATIONS: Mapping[str, Callable[[str], str]] = {
    "code_fence": lambda text: f"```json\n{text}\n```",
    "leading_text": lambda text: f"Here is the JSON you asked for:\n{text}",
    "trailing_text": lambda text: f"{text}\nI hope this helps!",
    "multiple_documents": lambda text: f"{text}\n{text}",
    "root_not_object": lambda text: f"[{text}]",
    "trailing_comma": lambda text: f"{text[:-1]}, }}",
    "comment": lambda text: f"{{// labels\n{text[1:]}",
    "single_quotes": lambda text: repr(json.loads(text)),
    "truncated": lambda text: text[: len(text) // 2],
    "missing_key": _without_last_key,
    "extra_key": lambda text: _with(text, confidence=5),
    "null_value": lambda text: _with(text, user_need=None),
    "wrong_type": lambda text: _with(text, should_escalate="false"),
    "bad_enum": lambda text: _with(text, detected_emotion="rage"),
    "enum_spelling": lambda text: _with(text, boundary_action="Continue-Helping"),
    "out_of_range": lambda text: _with(text, intensity=9),
    "float_number": lambda text: _with(text, intensity=3.0),
    "not_a_number": lambda text: _with(text, intensity=float("nan")),
    "duplicate_key": lambda text: f'{text[:-1]}, "intensity": 3}}',
    "empty_reply": lambda text: _with(text, reply="  "),
    "reply_too_long": lambda text: _with(text, reply="again and " * 300),
    "lone_surrogate": lambda text: _with(text, reply="half a pair \ud83d here"),
    "think_block": lambda text: f"<think>Let me see.</think>{text}",
    "empty_output": lambda text: "",
    "not_json": lambda text: "I would rather answer in prose today.",
}
"""Reason code to the damage that must earn it."""


def _malformed(suite: Suite, scenario: Scenario) -> str:
    damages = list(MALFORMATIONS.values())
    return damages[_position(suite, scenario) % len(damages)](_perfect(suite, scenario))


DRY_MODELS: Mapping[str, Callable[[Suite, Scenario], str]] = {
    "perfect": _perfect,
    "defensive": _defensive,
    "malformed": _malformed,
    "keyword_gamer": _keyword_gamer,
    "overempathic": _overempathic,
    "slot_template": _slot_template,
    "echo": _echo,
    "caver": _caver,
    "over_refuser": _over_refuser,
    "over_escalator": _over_escalator,
    "constant_majority": _constant_majority,
    "random_valid": _random_valid,
    "shuffled_replies": _shuffled_replies,
}
PAGE_FIXTURES = ("perfect", "defensive", "malformed", "keyword_gamer", "overempathic")
"""The five that the scorer must pass before the first real call of a run."""
