"""Six suite-level detectors: is the model repeating itself, or being hollow? Computed over all valid answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
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
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Detectors:
    """All six detectors of a card, and what the template detector saw.

    Attributes:
        detections: The detectors by name.
        templated: For each scored output, in order, whether its reply is a near-duplicate of others.
    """

    detections: dict[str, Detector]
    templated: tuple[bool, ...]


def detect(replies: Sequence[ItemScore], further: int = 0, most: bool = False) -> Detectors:
    """Detectors over the scored outputs of one card in one epoch. Invalid outputs are left out.

    Their order does not matter, except that `templated` follows it. further: replies that are missing, which make as
    many others near-duplicates as they can, useful ones first, for `most`, and as few otherwise.
    """
    valid = [reply for reply in replies if reply.valid]
    n, params = len(valid), load_params().detectors.template_repetition
    masked = [_mask(reply.scenario, reply.answer) for reply in valid if reply.answer is not None]
    templated = _templated(masked, params, further, most)
    if further and most:
        own = sorted((i for i, near in enumerate(templated) if not near), key=lambda i: not valid[i].useful_bounded)
        for place in own[: further * _most_near([masked[i] for i in own], params.trigram_jaccard)]:
            templated[place] = True
    flags = iter(templated)
    in_order = tuple(reply.valid and next(flags) for reply in replies)
    if n < params.min_replies:
        return Detectors({name: detection(name, None, n) for name in DETECTORS}, in_order)
    strategies = Counter(map(strategy_pair, valid))
    values = {
        "template_repetition": sum(templated) / n,
        "strategy_repetition": repetition(strategies),
        "support_stage_repetition": repetition(Counter(map(stage_pair, valid))),
        "strategy_overuse": overuse(strategies),
        "overvalidation": sum(map(is_overvalidated, valid)) / n,
        "reply_ignores_user_content": sum(map(ignores_user, valid)) / n,
    }
    frames = {"template_repetition": _long_frame_share(masked, params)}
    return Detectors({name: detection(name, value, n, frames.get(name)) for name, value in values.items()}, in_order)


def detection(name: str, value: float | None, n: int, long_frame_share: float | None = None) -> Detector:
    """A detector's value over n valid replies, None for too few, with its band."""
    params = load_params().detectors
    limits: Band = getattr(params, name)
    framed = long_frame_share is not None and long_frame_share * 1000 >= params.template_repetition.frame_flag
    band = "not_enough_replies" if value is None else "flag" if framed else limits.of(value)
    return Detector(value=value, band=band, n=n, long_frame_share=long_frame_share)


def is_overvalidated(reply: ItemScore) -> bool:
    """Whether the reply is mostly statements about feelings, without an action in them."""
    return reply.checks is not None and reply.checks.overvalidated


def ignores_user(reply: ItemScore) -> bool:
    """Whether the reply touches no anchor and next to none of the user's own content words."""
    least = load_params().detectors.reply_ignores_user_content.min_user_stems
    return reply.checks is not None and reply.checks.anchor_groups == 0 and reply.checks.user_stems < least


def _pair(name: str, reply: ItemScore) -> Pair:
    return getattr(reply.answer, name), getattr(reply.scenario.expected, name)


strategy_pair = partial(_pair, "response_strategy")
stage_pair = partial(_pair, "support_stage")


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


def _templated(masked: Sequence[Sequence[str]], params: TemplateParams, further: int, sharing: bool) -> list[bool]:
    """Which replies are templated: close to another reply, or mostly made of sequences that several replies share.

    further: missing replies, which share every sequence or none.
    """
    near = _near_duplicates(masked, params.trigram_jaccard)
    size = params.shared_gram
    shared_by = Counter(gram for tokens in masked for gram in set(grams(tokens, size)))
    least = max(params.shared_gram_min_replies, -(-params.shared_gram_min_share * (len(masked) + further) // 1000))
    least -= further * sharing
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


def _most_near(masked: Sequence[Sequence[str]], least: int) -> int:
    """At most how many of these replies one further reply could be a near-duplicate of.

    With j the least similarity, a reply of s trigrams shares at least (s + n) j / (1 + j) of them with each
    near-duplicate of n. Of a trigram that k of the replies have, 1 / k falls to each: what falls to all near-duplicates
    together is at most s.
    """
    sets = [own for tokens in masked if (own := set(grams(tokens, _NEAR_DUPLICATE_GRAM)))]
    had_by = Counter(gram for own in sets for gram in own)
    parts = [list(accumulate(sorted(1 / had_by[gram] for gram in own))) for own in sets]
    # Replies of one or two tokens have no trigrams, and are near-duplicates of their like only.
    most = int(bool(masked))
    for size in range(1, max(map(len, sets), default=0) * 1000 // least + 1):
        similar = (own for own in parts if least * size <= 1000 * len(own) and least * len(own) <= 1000 * size)
        taken = accumulate(sorted(own[-(-(size + len(own)) * least // (1000 + least)) - 1] for own in similar))
        most = max(most, sum(total <= size + _ROUNDING for total in taken))
    return most


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
