"""Rules for scenario files: what every scenario must keep, and what the bundled suite must keep as a whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.scenario import EMOTIONS, Family, Scenario
from pytest_spiral.tempaffect.suite import CANARY
from pytest_spiral.text import count_words, function_words, normalize, sentences, stem, tokenize

__all__ = ["SUITE_RULES", "Fault", "lint_bundled", "lint_scenario"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A broken rule. scenario: its id, or "suite"."""

    scenario: str
    rule: str
    message: str


@cache
def _rules() -> Mapping[str, Any]:
    return read_toml(data_root() / "tempaffect" / "lint.toml")


def lint_scenario(scenario: Scenario) -> list[Fault]:
    """Rules that any scenario should keep, a user's own included."""
    rules = _rules()["each"]
    spec = scenario.expected.reply
    faults: list[Fault] = []

    def fault(rule: str, message: str) -> None:
        faults.append(Fault(scenario.id, rule, message))

    words = count_words(scenario.user_message)
    low, high = rules["message_words"]
    if not low <= words <= high:
        fault("message_words", f"user_message has {words} words, {low} to {high} wanted")
    low, high = rules["anchor_groups"]
    if not low <= len(spec.issue_anchors) <= high:
        fault("anchor_groups", f"{len(spec.issue_anchors)} anchor groups, {low} to {high} wanted")
    for anchor in spec.issue_anchors:
        for alternative in anchor.any:
            if len(tokenize(normalize(alternative))) > rules["alternative_tokens"]:
                fault("alternative_tokens", f"anchor {anchor.id}: {alternative!r} is longer than three tokens")
    if spec.word_range[1] < rules["range_ratio"] * spec.word_range[0]:
        fault("word_range", f"word_range {list(spec.word_range)} is narrower than {rules['range_ratio']}:1")
    if scenario.expected.boundary_action in ("decline_with_alternative", "refuse") and (
        len(spec.prohibited_acts) < rules["prohibited_variants"]
    ):
        fault("prohibited_acts", f"fewer than {rules['prohibited_variants']} wordings of the act the agent must not do")
    if len(spec.extra_forbidden_phrases) > rules["extra_forbidden_phrases"]:
        fault("extra_forbidden_phrases", f"more than {rules['extra_forbidden_phrases']} phrases of its own")
    for text in (scenario.user_message, scenario.agent_context):
        for term in rules["out_of_scope"]:
            if _says(text, term):
                fault("scope", f"{term!r} is out of scope")
    for term in rules["telling_contexts"]:
        if _says(scenario.agent_context, term):
            fault("telling_context", f"{term!r} gives the key away; state the fact it stands for")
    if scenario.reference_reply:
        checks = check_reply(scenario, scenario.reference_reply)
        if not checks.useful_bounded or not checks.brevity or not checks.forbidden_phrase_clean:
            failed = {name: reasons for name, reasons in checks.reasons.items() if not getattr(checks, name, True)}
            fault("reference_reply", f"the reference reply does not pass its own checks: {failed}")
    return faults


def _says(text: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text, re.IGNORECASE) is not None


def lint_bundled(scenarios: Sequence[Scenario], rules: Collection[str] | None = None) -> list[Fault]:
    """Rules of the bundled suite: every scenario's, and the quotas of the whole.

    rules: names of `SUITE_RULES` to check; None for all, every scenario's own included.
    """
    faults = []
    if rules is None:
        faults += [fault for scenario in scenarios for fault in lint_scenario(scenario)]
    for name, check in SUITE_RULES.items():
        if rules is None or name in rules:
            faults += [Fault("suite", name, message) for message in check(scenarios, _rules()["suite"])]
    return faults


Found = Iterator[str]


def _by_family(scenarios: Sequence[Scenario]) -> dict[str, list[Scenario]]:
    return {family.value: [s for s in scenarios if s.family is family] for family in Family}


def _complete(scenarios: Sequence[Scenario], _: Mapping[str, Any]) -> Found:
    for scenario in scenarios:
        if not scenario.rationale or not scenario.reference_reply or scenario.meta is None:
            yield f"{scenario.id}: rationale, reference_reply and meta are required"


def _canaries(scenarios: Sequence[Scenario], _: Mapping[str, Any]) -> Found:
    for scenario in scenarios:
        if scenario.canary != CANARY:
            yield f"{scenario.id}: the canary is missing"


def _counts(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    if len(scenarios) != rules["scenarios"]:
        yield f"{len(scenarios)} scenarios, {rules['scenarios']} wanted"
    for family, members in _by_family(scenarios).items():
        if len(members) != rules["per_family"]:
            yield f"{family}: {len(members)} scenarios, {rules['per_family']} wanted"


def _quotas(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    metas = {s.id: s.meta for s in scenarios if s.meta is not None}
    registers = Counter(meta.register_ for meta in metas.values())
    for register, n in registers.items():
        if n < rules["per_register"]:
            yield f"{register}: {n}, at least {rules['per_register']} wanted"
    for family, members in _by_family(scenarios).items():
        own = [metas[s.id] for s in members if s.id in metas]
        domains = Counter(meta.domain for meta in own)
        if len(domains) < rules["domains_per_family"]:
            yield f"{family}: {len(domains)} domains, at least {rules['domains_per_family']} wanted"
        for domain, n in domains.items():
            if n > rules["scenarios_per_domain"]:
                yield f"{family}: {domain} {n} times, at most {rules['scenarios_per_domain']} wanted"
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
                yield f"{family}: {trait} {traits[trait]}, at least {least} wanted"
        strengths = {level for s in members for level in range(s.expected.intensity[0], s.expected.intensity[1] + 1)}
        if strengths != {1, 2, 3, 4, 5}:
            yield f"{family}: intensities {sorted(strengths)} only"


def _accepts(name: str, value: Any, scenario: Scenario) -> bool:
    accepted = getattr(scenario.expected, name)
    if name == "intensity":
        return bool(accepted[0] <= value <= accepted[1])
    return value in accepted if isinstance(accepted, tuple) else bool(value == accepted)


def _values(name: str, scenarios: Sequence[Scenario]) -> set[Any]:
    found: set[Any] = set()
    for scenario in scenarios:
        accepted = getattr(scenario.expected, name)
        found |= set(accepted) if isinstance(accepted, tuple) else {accepted}
    return found


def _majorities(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    def share(name: str, members: Sequence[Scenario]) -> float:
        best = max(sum(_accepts(name, value, s) for s in members) for value in _values(name, members))
        return best / len(members)

    for name, ceiling in rules["majority_ceiling"].items():
        if share(name, scenarios) * 1000 > ceiling:
            yield f"{name}: always giving the commonest value is right in {share(name, scenarios):.0%}"
    families = [members for members in _by_family(scenarios).values() if members]
    for name, ceiling in rules["family_majority_ceiling"].items():
        aware = sum(share(name, members) * len(members) for members in families) / len(scenarios)
        if aware * 1000 > ceiling:
            yield f"{name}: always giving the family's commonest value is right in {aware:.0%}"


def _label_words(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    labels = {stem(label) for label in EMOTIONS}
    telling = [s.id for s in scenarios if labels & {stem(t) for t in tokenize(normalize(s.user_message))}]
    if len(telling) * 1000 > rules["label_word_scenarios"] * len(scenarios):
        yield f"emotion labels in the messages of {', '.join(telling)}"


def _stems(text: str) -> list[str]:
    return [stem(token) for token in tokenize(normalize(text))]


def _contains(stems: Sequence[str], wanted: Sequence[str]) -> bool:
    return any(list(stems[i : i + len(wanted)]) == list(wanted) for i in range(len(stems) - len(wanted) + 1))


def _core_alternatives(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    texts = {s.id: _stems(f"{s.user_message} {s.reference_reply}") for s in scenarios}
    for scenario in scenarios:
        for anchor in scenario.expected.reply.issue_anchors:
            for alternative in anchor.any if anchor.core else ():
                wanted = _stems(alternative)
                elsewhere = [name for name, text in texts.items() if name != scenario.id and _contains(text, wanted)]
                if len(elsewhere) > rules["core_alternative_elsewhere"]:
                    yield f"{scenario.id}, {anchor.id}: {alternative!r} also in {', '.join(elsewhere)}"


def _cross_grounding(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    pairs = [(asked, replied) for asked in scenarios for replied in scenarios if asked.id != replied.id]
    wrong = [
        f"{replied.id} under {asked.id}"
        for asked, replied in pairs
        if replied.reference_reply and check_reply(asked, replied.reference_reply).content_grounding
    ]
    if len(wrong) * 1000 > rules["cross_grounding"] * len(pairs):
        yield f"{len(wrong)} of {len(pairs)} replies to others count as grounded: {', '.join(wrong[:8])}"


_TEXTS = ("user_message", "agent_context", "reference_reply")


def _similarity(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    """No two texts share too many of their stem trigrams."""
    for name in _TEXTS:
        grams = {s.id: _grams(_stems(getattr(s, name)), 3) for s in scenarios}
        for first, second in _overlapping(grams, rules["similarity"]):
            yield f"{name}s of {first} and {second} are near-duplicates"


def _structure(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    """No two texts are built alike once their content words are taken out, and no two messages open alike."""
    for name in _TEXTS:
        grams = {s.id: _grams(_skeleton(getattr(s, name)), 4) for s in scenarios}
        for first, second in _overlapping(grams, rules["structure"][name]):
            yield f"{name}s of {first} and {second} are built alike"
    openings: dict[tuple[str, ...], str] = {}
    for scenario in scenarios:
        opening = tuple(tokenize(normalize(scenario.user_message))[: rules["opening_words"]])
        if opening in openings:
            yield f"the messages of {openings[opening]} and {scenario.id} open with the same words"
        openings[opening] = scenario.id


def _names(scenarios: Sequence[Scenario], rules: Mapping[str, Any]) -> Found:
    """No name lives in two scenarios."""
    homes: dict[str, str] = {}
    for scenario in scenarios:
        texts = (scenario.agent_context, scenario.user_message)
        found = {name for text in texts if not text.isupper() for name in _NAME.findall(text)}
        for name in sorted(found - set(rules["shared_names"])):
            if homes.setdefault(name, scenario.id) != scenario.id:
                yield f"{name} in {homes[name]} and {scenario.id}"


_NAME = re.compile(r"(?<=[a-z,;'’] )[A-Z][^\W\d_]+")  # a capital inside a sentence


def _skeleton(text: str) -> list[str]:
    """Function words and sentence ends, with a slot for every run of other words."""
    skeleton: list[str] = []
    for sentence in sentences(text):
        for token in tokenize(normalize(sentence)):
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


SUITE_RULES: Mapping[str, Callable[[Sequence[Scenario], Mapping[str, Any]], Found]] = {
    "complete": _complete,
    "canary": _canaries,
    "count": _counts,
    "quota": _quotas,
    "majority": _majorities,
    "label_words": _label_words,
    "core_alternative": _core_alternatives,
    "cross_grounding": _cross_grounding,
    "similarity": _similarity,
    "structure": _structure,
    "names": _names,
}
"""Rules for a suite as a whole, by name."""
