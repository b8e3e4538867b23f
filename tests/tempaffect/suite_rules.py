"""Rules that the bundled suite must keep as a whole: quotas, no shortcuts to the key, no scenario twice."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any, get_args

from pytest_spiral.tempaffect.checks.grounding import check_grounding, is_clause_like
from pytest_spiral.tempaffect.checks.prepare import prepare_scenario
from pytest_spiral.tempaffect.checks.sentences import prepare_reply
from pytest_spiral.tempaffect.scenario import Emotion, Family, Scenario
from pytest_spiral.tempaffect.suite import CANARY
from pytest_spiral.text import function_words, sentences, stem, tokenize

LIMITS = tomllib.loads((Path(__file__).parent / "data" / "suite_rules.toml").read_text(encoding="utf-8"))


def broken(rule: str, scenarios: Sequence[Scenario]) -> list[str]:
    """What breaks a rule of `SUITE_RULES`."""
    return list(SUITE_RULES[rule](scenarios, LIMITS))


Broken = Iterator[str]


def _by_family(scenarios: Sequence[Scenario]) -> dict[str, list[Scenario]]:
    return {family.value: [s for s in scenarios if s.family is family] for family in Family}


def _complete(scenarios: Sequence[Scenario], _: Mapping[str, Any]) -> Broken:
    for scenario in scenarios:
        if not scenario.rationale or not scenario.reference_reply or scenario.meta is None:
            yield f"{scenario.id}: rationale, reference_reply and meta are required"


def _canaries(scenarios: Sequence[Scenario], _: Mapping[str, Any]) -> Broken:
    for scenario in scenarios:
        if scenario.canary != CANARY:
            yield f"{scenario.id}: the canary is missing"


def _counts(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Broken:
    if len(scenarios) != rules["scenarios"]:
        yield f"{len(scenarios)} scenarios, {rules['scenarios']} expected"
    for family, members in _by_family(scenarios).items():
        if len(members) != rules["per_family"]:
            yield f"{family}: {len(members)} scenarios, {rules['per_family']} expected"


def _quotas(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Broken:
    metas = {s.id: s.meta for s in scenarios if s.meta is not None}
    registers = Counter(meta.register_ for meta in metas.values())
    for register, n in registers.items():
        if n < rules["per_register"]:
            yield f"{register}: {n}, expected at least {rules['per_register']}"
    # The top of the scale need not occur in every family: in two of them no text was read as overwhelming.
    strengths = {
        family: {level for s in members for level in range(s.expected.intensity[0], s.expected.intensity[1] + 1)}
        for family, members in _by_family(scenarios).items()
    }
    for family, members in _by_family(scenarios).items():
        own = [metas[s.id] for s in members if s.id in metas]
        domains = Counter(meta.domain for meta in own)
        if len(domains) < rules["domains_per_family"]:
            yield f"{family}: {len(domains)} domains, at least {rules['domains_per_family']} expected"
        for domain, n in domains.items():
            if n > rules["scenarios_per_domain"]:
                yield f"{family}: {domain} {n} times, at most {rules['scenarios_per_domain']} expected"
        foreign = sum(meta.register_ in ("non_native", "dialect") for meta in own)
        if foreign < rules["non_native_or_dialect_per_family"]:
            yield f"{family}: {foreign} non-native or dialect"
        powers = {meta.power_relation for meta in own}
        if len(powers) < rules["power_relations_per_family"]:
            yield f"{family}: only {sorted(powers)}"
        traits: Counter[str] = Counter(trait for meta in own for trait in meta.traits)
        traits["incongruent_or_sarcastic"] = sum(
            "emotion_incongruent" in meta.traits or meta.register_ == "sarcastic" for meta in own
        )
        for trait, least in {**rules["traits"], **rules["traits_of_family"].get(family, {})}.items():
            if traits[trait] < least:
                yield f"{family}: {trait} {traits[trait]}, at least {least} expected"
        if not strengths[family] >= {1, 2, 3, 4}:
            yield f"{family}: intensities {sorted(strengths[family])} only"
    if 5 not in set().union(*strengths.values()):
        yield "no scenario of intensity 5"


def _label_words(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Broken:
    labels = {stem(label) for label in get_args(Emotion)}
    telling = [s.id for s in scenarios if labels & {stem(t) for t in tokenize(s.user_message)}]
    if len(telling) * 1000 > rules["label_word_scenarios"] * len(scenarios):
        yield f"emotion labels in the messages of {', '.join(telling)}"


def _stems(text: str) -> list[str]:
    return [stem(token) for token in tokenize(text)]


def _core_alternatives(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Broken:
    # Between blanks, so that whole stems are found.
    texts = {s.id: f" {' '.join(_stems(f'{s.user_message} {s.reference_reply}'))} " for s in scenarios}
    for scenario in scenarios:
        for anchor in scenario.expected.reply.issue_anchors:
            for alternative in anchor.any if anchor.core else ():
                wanted = f" {' '.join(_stems(alternative))} "
                elsewhere = [name for name, text in texts.items() if name != scenario.id and wanted in text]
                if len(elsewhere) > rules["core_alternative_elsewhere"]:
                    yield f"{scenario.id}, {anchor.id}: {alternative!r} also in {', '.join(elsewhere)}"


def _is_grounded(asked: Scenario, replied: Scenario) -> bool:
    """Whether the reference reply of one scenario counts as grounded in another: the one check of a reply needed."""
    if not replied.reference_reply:
        return False
    prepared, read = prepare_scenario(asked), _read(replied.reference_reply)
    spoken = [sentence for sentence in read.sentences if is_clause_like(prepared, sentence)]
    return check_grounding(prepared, read, spoken).passed


_read = cache(prepare_reply)


def _cross_grounding(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Broken:
    pairs = [pair for pair in product(scenarios, repeat=2) if pair[0].id != pair[1].id]
    if not os.environ.get("SPIRAL_SLOW_TESTS"):
        # All 5,550 take a quarter of a minute. 74 of them, and 5, have no common factor: every scenario is met.
        pairs = pairs[::5]
    wrong = [f"{replied.id} under {asked.id}" for asked, replied in pairs if _is_grounded(asked, replied)]
    if len(wrong) * 1000 > rules["cross_grounding"] * len(pairs):
        yield f"{len(wrong)} of {len(pairs)} replies to others count as grounded: {', '.join(wrong[:8])}"


_TEXTS = ("user_message", "agent_context", "reference_reply")


def _similarity(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Broken:
    """No two texts share too many of their stem trigrams."""
    for name in _TEXTS:
        grams = {s.id: _grams(_stems(getattr(s, name)), 3) for s in scenarios}
        for first, second in _overlapping(grams, rules["similarity"]):
            yield f"{name}s of {first} and {second} are near-duplicates"


def _structure(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Broken:
    """No two texts are built alike once their content words are taken out, and no two messages open alike."""
    for name in _TEXTS:
        grams = {s.id: _grams(_skeleton(getattr(s, name)), 4) for s in scenarios}
        for first, second in _overlapping(grams, rules["structure"][name]):
            yield f"{name}s of {first} and {second} are built alike"
    openings: dict[tuple[str, ...], str] = {}
    for scenario in scenarios:
        opening = tuple(tokenize(scenario.user_message)[: rules["opening_words"]])
        if opening in openings:
            yield f"the messages of {openings[opening]} and {scenario.id} open with the same words"
        openings[opening] = scenario.id


def _names(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Broken:
    """No name lives in two scenarios."""
    homes: dict[str, str] = {}
    for scenario in scenarios:
        texts = (scenario.agent_context, scenario.user_message)
        result = {name for text in texts if not text.isupper() for name in _NAME.findall(text)}
        for name in sorted(result - set(rules["shared_names"])):
            if homes.setdefault(name, scenario.id) != scenario.id:
                yield f"{name} in {homes[name]} and {scenario.id}"


_NAME = re.compile(r"(?<=[a-z,;'’] )[A-Z][^\W\d_]+")  # a capital inside a sentence


def _skeleton(text: str) -> list[str]:
    """Function words and sentence ends, with a slot for every run of other words."""
    skeleton: list[str] = []
    for sentence in sentences(text):
        for token in tokenize(sentence):
            if token in function_words():
                skeleton.append(token)
            elif skeleton[-1:] != [_SLOT]:
                skeleton.append(_SLOT)
        skeleton.append(".")
    return skeleton


_SLOT = "~"


def _grams(tokens: Sequence[str], size: int) -> set[tuple[str, ...]]:
    return {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}


def _overlapping(grams: Mapping[str, Set[tuple[str, ...]]], per_mille: int) -> Iterator[tuple[str, str]]:
    for first, second in combinations(grams, 2):
        union = len(grams[first] | grams[second])
        if union and len(grams[first] & grams[second]) * 1000 > per_mille * union:
            yield first, second


SUITE_RULES: Mapping[str, Callable[[Sequence[Scenario], Mapping[str, Any]], Broken]] = {
    "complete": _complete,
    "canary": _canaries,
    "count": _counts,
    "quota": _quotas,
    "label_words": _label_words,
    "core_alternative": _core_alternatives,
    "cross_grounding": _cross_grounding,
    "similarity": _similarity,
    "structure": _structure,
    "names": _names,
}
