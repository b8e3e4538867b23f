"""Six suite-level detectors: is the model repeating itself, or being hollow? Computed over all valid answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

from pytest_spiral.report.model.tempaffect import Detector
from pytest_spiral.tempaffect.params import Band, TemplateParams, load_params
from pytest_spiral.tempaffect.records import Answer, ItemScore
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.text import Gram, grams, stem, tokenize

DETECTORS = (
    *("template_repetition", "strategy_repetition", "support_stage_repetition"),
    *("strategy_overuse", "overvalidation", "reply_ignores_user_content"),
)
Pair = tuple[str, tuple[str, ...]]
"""A predicted value with the accepted ones."""

_SLOT = "□"
_QUOTED = re.compile(r"[\"“”«»][^\"“”«»]{1,200}[\"“”«»]|(?<!\w)['‘][^'‘’]{2,200}['’](?!\w)")
_CAPITALISED = re.compile(r"(?<=[a-z,;:)\d] )[A-Z][\w'’-]*")
_IS_I = re.compile(r"I(?:$|['’])")
_NEAR_DUPLICATE_GRAM = 3


@dataclass(frozen=True, slots=True)
class Detectors:
    """All six detectors of a card, and what the template detector saw.

    Attributes:
        detections: The detectors by name.
        templated: For each scored output, in order, whether its reply is a near-duplicate of others.
    """

    detections: dict[str, Detector]
    templated: tuple[bool, ...]


def detect(replies: Sequence[ItemScore]) -> Detectors:
    """Detectors over the scored outputs of one card in one epoch. Invalid outputs are left out.

    Their order does not matter, except that `templated` follows it.
    """
    valid = [reply for reply in replies if reply.valid]
    n = len(valid)
    masked = [_mask(reply.scenario, reply.answer) for reply in valid if reply.answer is not None]
    params = load_params().detectors
    templated = _templated(masked, params.template_repetition)
    flags = iter(templated)
    in_order = tuple(reply.valid and next(flags) for reply in replies)
    if n < params.template_repetition.min_replies:
        unknown = Detector(value=None, band="not_enough_replies", n=n)
        return Detectors(dict.fromkeys(DETECTORS, unknown), in_order)

    def detection(value: float, band: Band) -> Detector:
        return Detector(value=value, band=band.of(value), n=n)

    strategies = Counter(map(strategy_pair, valid))
    stages = Counter(map(stage_pair, valid))
    frames = _long_frame_share(masked, params.template_repetition)
    template, repeated = params.template_repetition, sum(templated) / n
    band = "flag" if frames * 1000 >= template.frame_flag else template.of(repeated)
    detections = {
        "template_repetition": Detector(value=repeated, band=band, n=n, long_frame_share=frames),
        "strategy_repetition": detection(repetition(strategies), params.strategy_repetition),
        "support_stage_repetition": detection(repetition(stages), params.support_stage_repetition),
        "strategy_overuse": detection(overuse(strategies), params.strategy_overuse),
        "overvalidation": detection(sum(map(is_overvalidated, valid)) / n, params.overvalidation),
        "reply_ignores_user_content": detection(sum(map(ignores_user, valid)) / n, params.reply_ignores_user_content),
    }
    return Detectors(detections, in_order)


def is_overvalidated(reply: ItemScore) -> bool:
    """Whether the reply is mostly statements about feelings, without an action in them."""
    return reply.checks is not None and reply.checks.overvalidated


def ignores_user(reply: ItemScore) -> bool:
    """Whether the reply touches no anchor and next to none of the user's own content words."""
    least = load_params().detectors.reply_ignores_user_content.min_user_stems
    return reply.checks is not None and reply.checks.anchor_groups == 0 and reply.checks.user_stems < least


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


def _mask(scenario: Scenario, answer: Answer) -> tuple[str, ...]:
    """Tokens of a reply with everything that varies by scenario replaced by one slot symbol, runs collapsed."""
    # Loaded when first needed: processes that score nothing start faster without the lexicon.
    from pytest_spiral.tempaffect.checks import own_stems

    own = own_stems(scenario)
    text = _QUOTED.sub(f" {_SLOT} ", answer.reply)
    text = _CAPITALISED.sub(lambda match: match.group() if _IS_I.match(match.group()) else _SLOT, text)
    masked: list[str] = []
    for piece in re.split(f"({_SLOT})", text):
        for token in [_SLOT] if piece == _SLOT else tokenize(piece):
            numbered = not token.isalpha() and any(map(str.isdigit, token))
            slot = token == _SLOT or numbered or stem(token) in own
            if slot and masked and masked[-1] == _SLOT:
                continue
            masked.append(_SLOT if slot else token)
    return tuple(masked)


def _templated(masked: Sequence[Sequence[str]], params: TemplateParams) -> list[bool]:
    """Which replies are templated: close to another reply, or mostly made of sequences that several replies share."""
    near = _near_duplicates(masked, params.trigram_jaccard)
    size = params.shared_gram
    shared_by = Counter(gram for tokens in masked for gram in set(grams(tokens, size)))
    least = max(params.shared_gram_min_replies, -(-params.shared_gram_min_share * len(masked) // 1000))
    for i, tokens in enumerate(masked):
        covered: set[int] = set()
        for k in range(len(tokens) - size + 1):
            if shared_by[tuple(tokens[k : k + size])] >= least:
                covered.update(range(k, k + size))
        if tokens and len(covered) * 1000 >= params.shared_token_share * len(tokens):
            near[i] = True
    return near


def _near_duplicates(masked: Sequence[Sequence[str]], least: int) -> list[bool]:
    """Which replies share `least` per mille of their masked trigrams with another one (Jaccard similarity).

    Two such replies share one of the rarest trigrams of either, so only replies that do are compared.
    Source: Chaudhuri, Ganti and Kaushik 2006, A primitive operator for similarity joins in data cleaning.
    """
    times = Counter(map(tuple, masked))
    near = {tokens: count > 1 for tokens, count in times.items()}
    trigrams = {tokens: set(grams(tokens, _NEAR_DUPLICATE_GRAM)) for tokens in times}
    common = Counter(gram for own in trigrams.values() for gram in own)
    holders: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for tokens, own in trigrams.items():
        for gram in _rarest(own, common, least):
            holders.setdefault(gram, []).append(tokens)
    for tokens, own in trigrams.items():
        others = {} if near[tokens] else {o: None for gram in _rarest(own, common, least) for o in holders[gram]}
        for other in others:
            shared = len(own & trigrams[other])
            if other != tokens and shared * 1000 >= least * (len(own) + len(trigrams[other]) - shared):
                near[tokens] = near[other] = True
                break
    return [near[tuple(tokens)] for tokens in masked]


def _rarest(own: set[Gram], common: Mapping[Gram, int], least: int) -> list[Gram]:
    """So many of the rarest that the others are fewer than `least` per mille."""
    ordered = sorted(own, key=lambda gram: (common[gram], gram))
    return ordered[: len(ordered) - -(-least * len(ordered) // 1000) + 1]


def _long_frame_share(masked: Sequence[Sequence[str]], params: TemplateParams) -> float:
    """Share of replies with a long sequence of masked tokens that several others share."""

    def frames(tokens: Sequence[str]) -> set[tuple[str, ...]]:
        found = grams(tokens, params.frame_gram)
        return {gram for gram in found if len(gram) - gram.count(_SLOT) >= params.frame_min_words}

    # Anew for the second look: of a large suite they take 80 MB.
    shared_by = Counter(frame for tokens in masked for frame in frames(tokens))
    common = {frame for frame, count in shared_by.items() if count >= params.frame_min_replies}
    return sum(not common.isdisjoint(frames(tokens)) for tokens in masked) / len(masked) if masked else 0.0
