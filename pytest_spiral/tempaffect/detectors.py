"""Six suite-level detectors: is the model repeating itself, or being hollow? Computed over all valid answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2

from pytest_spiral.tempaffect.params import TemplateParams, load_params
from pytest_spiral.tempaffect.records import ItemScore
from pytest_spiral.text import normalize, stem, tokenize

__all__ = [
    "DETECTORS",
    "Detection",
    "Detectors",
    "Pair",
    "detect",
    "ignores_user",
    "is_overvalidated",
    "overuse",
    "repetition",
    "stage_pair",
    "strategy_pair",
]

DETECTORS = (
    "template_repetition",
    "strategy_repetition",
    "support_stage_repetition",
    "strategy_overuse",
    "overvalidation",
    "reply_ignores_user_content",
)

_SLOT = "□"
_QUOTED = re.compile(r"[\"“”«»][^\"“”«»]{1,200}[\"“”«»]|(?<!\w)['‘][^'‘’]{2,200}['’](?!\w)")
_CAPITALISED = re.compile(r"(?<=[a-z,;:)\d] )[A-Z][\w'’-]*")
_IS_I = re.compile(r"I(?:$|['’])")


@dataclass(frozen=True, slots=True)
class Detection:
    """One detector. value: 0..1, None where there are too few valid replies; n: replies it was computed over."""

    value: float | None
    band: str
    n: int


@dataclass(frozen=True, slots=True)
class Detectors:
    """All six detectors of a card, and what the template detector saw.

    templated: per valid reply, in order, whether it is a near-duplicate of others (see `_templated`).
    long_frame_share: share of replies that contain a long frame shared with several others, None as above.
    """

    detections: dict[str, Detection]
    templated: tuple[bool, ...]
    long_frame_share: float | None


def detect(replies: Sequence[ItemScore]) -> Detectors:
    """Detectors over the scored items of one card (one epoch). Invalid outputs are left out.

    The result does not depend on the order of `replies`, apart from `templated`, which follows it.
    """
    valid = [reply for reply in replies if reply.answer is not None and reply.checks is not None]
    params = load_params().detectors
    n = len(valid)
    masked = [_mask(reply) for reply in valid]
    templated = _templated(masked, params.template_repetition)
    enough = n >= params.template_repetition.min_replies
    frames = _long_frame_share(masked, params.template_repetition) if enough else None

    def detection(name: str, value: float) -> Detection:
        if not enough:
            return Detection(None, "not_enough_replies", n)
        band: str = getattr(params, name).of(value)
        if (
            name == "template_repetition"
            and frames is not None
            and frames * 1000 >= params.template_repetition.frame_flag
        ):
            band = "flag"
        return Detection(value, band, n)

    values: dict[str, Callable[[], float]] = {
        "template_repetition": lambda: sum(templated) / n,
        "strategy_repetition": lambda: repetition(Counter(map(strategy_pair, valid))),
        "support_stage_repetition": lambda: repetition(Counter(map(stage_pair, valid))),
        "strategy_overuse": lambda: overuse(Counter(map(strategy_pair, valid))),
        "overvalidation": lambda: sum(is_overvalidated(reply) for reply in valid) / n,
        "reply_ignores_user_content": lambda: sum(ignores_user(reply) for reply in valid) / n,
    }
    detections = {name: detection(name, values[name]() if enough else 0.0) for name in DETECTORS}
    return Detectors(detections, tuple(templated), frames)


def is_overvalidated(reply: ItemScore) -> bool:
    """Whether the reply is mostly statements about feelings, without an action in them."""
    return reply.checks is not None and reply.checks.overvalidated


def ignores_user(reply: ItemScore) -> bool:
    """Whether the reply touches no anchor and next to none of the user's own content words."""
    least = load_params().detectors.reply_ignores_user_content.min_user_stems
    return reply.checks is not None and reply.checks.anchor_groups == 0 and reply.checks.user_stems < least


Pair = tuple[str, tuple[str, ...]]
"""A predicted value with the accepted ones."""


def strategy_pair(reply: ItemScore) -> Pair:
    """Predicted and accepted response strategies of a valid answer."""
    assert reply.answer is not None
    return reply.answer.response_strategy, reply.scenario.expected.response_strategy


def stage_pair(reply: ItemScore) -> Pair:
    """Predicted and accepted support stages of a valid answer."""
    assert reply.answer is not None
    return reply.answer.support_stage, reply.scenario.expected.support_stage


def repetition(pairs: Counter[Pair]) -> float:
    """max(0, 1 - H(predicted)/H(expected)), H being Shannon entropy: 0 as varied as the key, 1 constant.

    0 where the key itself is constant.
    """
    predicted: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for (prediction, accepted), count in pairs.items():
        predicted[prediction] += count
        expected[accepted[0]] += count
    ceiling = _entropy(expected)
    return max(0.0, 1 - _entropy(predicted) / ceiling) if ceiling else 0.0


def overuse(pairs: Counter[Pair]) -> float:
    """Largest share of items wrongly sent to one value: max over s of mean(pred = s and s not accepted)."""
    wrong: Counter[str] = Counter()
    for (prediction, accepted), count in pairs.items():
        if prediction not in accepted:
            wrong[prediction] += count
    return max(wrong.values(), default=0) / pairs.total() if pairs else 0.0


def _entropy(counts: Counter[str]) -> float:
    total = counts.total()
    return -sum(c / total * log2(c / total) for c in sorted(counts.values())) if total else 0.0


def _mask(reply: ItemScore) -> tuple[str, ...]:
    """Tokens of a reply with everything that varies by scenario replaced by one slot symbol, runs collapsed."""
    assert reply.answer is not None
    from pytest_spiral.tempaffect.checks import prepare_scenario

    prepared = prepare_scenario(reply.scenario)
    own = prepared.anchor_stems | prepared.target_stems | prepared.user_stems
    text = _QUOTED.sub(f" {_SLOT} ", reply.answer.reply)
    text = _CAPITALISED.sub(lambda match: match.group() if _IS_I.match(match.group()) else _SLOT, text)
    masked: list[str] = []
    for piece in re.split(f"({_SLOT})", text):
        for token in [_SLOT] if piece == _SLOT else tokenize(normalize(piece)):
            slot = token == _SLOT or any(char.isdigit() for char in token) or stem(token) in own
            if slot and masked and masked[-1] == _SLOT:
                continue
            masked.append(_SLOT if slot else token)
    return tuple(masked)


def _grams(tokens: Sequence[str], size: int) -> set[tuple[str, ...]]:
    return {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}


def _templated(masked: Sequence[Sequence[str]], params: TemplateParams) -> list[bool]:
    """A reply is templated if its masked trigrams overlap another reply's by the Jaccard bound, or if the bound share
    of its tokens lies in grams that several replies share."""
    trigrams = [_grams(tokens, 3) for tokens in masked]
    near = [False] * len(masked)
    for i, own in enumerate(trigrams):
        for j in range(i + 1, len(trigrams)):
            other = trigrams[j]
            common = len(own & other)
            union = len(own) + len(other) - common
            same = common * 1000 >= params.trigram_jaccard * union if union else tuple(masked[i]) == tuple(masked[j])
            if same:
                near[i] = near[j] = True
    size = params.shared_gram
    shared_by = Counter(gram for tokens in masked for gram in _grams(tokens, size))
    least = max(params.shared_gram_min_replies, -(-params.shared_gram_min_share * len(masked) // 1000))
    for i, tokens in enumerate(masked):
        covered: set[int] = set()
        for k in range(len(tokens) - size + 1):
            if shared_by[tuple(tokens[k : k + size])] >= least:
                covered.update(range(k, k + size))
        if tokens and len(covered) * 1000 >= params.shared_token_share * len(tokens):
            near[i] = True
    return near


def _long_frame_share(masked: Sequence[Sequence[str]], params: TemplateParams) -> float:
    def frames(tokens: Sequence[str]) -> set[tuple[str, ...]]:
        grams = _grams(tokens, params.frame_gram)
        return {gram for gram in grams if sum(token != _SLOT for token in gram) >= params.frame_min_words}

    own = [frames(tokens) for tokens in masked]
    shared_by = Counter(frame for found in own for frame in found)
    common = {frame for frame, count in shared_by.items() if count >= params.frame_min_replies}
    return sum(bool(found & common) for found in own) / len(masked) if masked else 0.0
