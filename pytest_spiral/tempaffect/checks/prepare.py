"""A scenario compiled once for the checks: what its reply may name, should do and must not do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pytest_spiral.tempaffect.checks.sentences import Sentence, prepare_reply
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS, Pattern, forbidden_phrases, synonyms
from pytest_spiral.tempaffect.scenario import Anchor, Family, ForbiddenPhrase, Scenario
from pytest_spiral.text import function_words, stem, tokenize

Stems = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnchorGroup:
    """One issue anchor, compiled.

    Attributes:
        singles: Stems that name it alone.
        multis: Stem sequences of two or more that name it.
        strong: Those of `multis` with two content words.
        stems: All content stems.
    """

    id: str
    core: bool
    singles: frozenset[str]
    multis: tuple[Stems, ...]
    strong: frozenset[Stems]
    stems: frozenset[str]


@dataclass(frozen=True, slots=True)
class Demand:
    """An act that the user asks for or the context forbids: lemmas of verbs, stems of what is acted on."""

    verbs: frozenset[str]
    objects: frozenset[str]


class PreparedScenario:
    """A scenario, compiled for the checks.

    Attributes:
        targets: Stem sequences of the action targets.
        target_stems, anchor_stems: Content stems of targets and anchors; `named_stems` holds both.
        permitted: Targets that the context allows and the user did not ask for.
        fresh_stems: Target stems that the user did not use.
        user_stems: Content stems of the user's message.
        near_stems: Telling stems of message, context and targets that are no anchors.
        known: Every token and stem of message, context, role, anchors and targets.
        echo_grams: 4-grams of the message after `echo_classes`.
        prohibited: Listed acts as tokens.
        demands: Acts asked for or forbidden.
        protected: Words for guarded things (names, codes, ...).
        guarded: Whether the expected boundary is anything but to go on helping.
        repair: Whether the agent made a mistake before.
        direct_answer, question: Whether an answer or a question may count as the act.
        phrases: Forbidden phrases: pattern, letters without spaces, first token, phrase.
    """

    def __init__(self, scenario: Scenario) -> None:
        spec = scenario.expected.reply
        context = prepare_reply(scenario.agent_context).sentences
        message = prepare_reply(scenario.user_message).sentences
        user = [token for sentence in message for token in sentence.tokens]
        situation = [token for sentence in context for token in sentence.tokens]
        targets = [tokenize(target) for target in spec.action_targets]
        anchors = [[tokenize(wording) for wording in anchor.any] for anchor in spec.issue_anchors]
        wordings = [*targets, *(wording for anchor in anchors for wording in anchor), tokenize(scenario.agent_role)]
        known = frozenset((*user, *situation, *(token for wording in wordings for token in wording)))
        listed = forbidden_phrases() if spec.forbidden_phrases is None else spec.forbidden_phrases
        practical = scenario.family is Family.PRACTICAL_SUPPORT and "specific_action" in scenario.expected.user_need

        self.scenario = scenario
        self.anchors = tuple(map(_anchor, spec.issue_anchors, anchors))
        self.targets = _distinct(tuple(map(stem, target)) for target in targets)
        self.user_stems = _content_stems(user)
        self.anchor_stems = frozenset[str]().union(*(group.stems for group in self.anchors))
        self.target_stems = _content_stems(token for target in targets for token in target)
        self.named_stems = self.target_stems | self.anchor_stems
        self.permitted = _permitted(scenario, context, self.targets, self.user_stems)
        self.fresh_stems = self.target_stems - self.user_stems
        self.near_stems = _near_stems((*user, *situation, *(token for target in targets for token in target)))
        self.near_stems -= self.anchor_stems
        self.known = known | frozenset(map(stem, known))
        self.echo_grams = frozenset(grams(echo_classes(user), LIMITS.grounding.echo_gram))
        self.prohibited = _distinct(tuple(tokenize(act)) for act in spec.prohibited_acts)
        self.demands = tuple(_demands(message, context, self.fresh_stems))
        self.guarded = scenario.expected.boundary_action != "continue_helping"
        self.protected = _protected(context) if self.guarded else frozenset[str]()
        self.repair = scenario.family is Family.REPAIR
        self.direct_answer = "direct_answer" in spec.action_forms or practical
        self.question = "question" in spec.action_forms
        self.phrases = tuple(map(_phrase, (*listed, *spec.extra_forbidden_phrases)))


# Enough for the scenarios in flight; each takes 30 KiB.
@lru_cache(maxsize=256)
def prepare_scenario(scenario: Scenario) -> PreparedScenario:
    """Return the scenario compiled for the checks; compiled once."""
    return PreparedScenario(scenario)


def own_stems(scenario: Scenario) -> frozenset[str]:
    """Content stems of the user's message, of the anchors and of the targets: what varies with the scenario."""
    return frozenset(_own_stems(scenario).split())


# One text each: the sets of a large suite would take 30 MB.
@lru_cache(maxsize=16384)
def _own_stems(scenario: Scenario) -> str:
    spec = scenario.expected.reply
    wordings = (wording for anchor in spec.issue_anchors for wording in anchor.any)
    texts = (scenario.user_message, *spec.action_targets, *wordings)
    return " ".join(sorted(_content_stems(token for text in texts for token in tokenize(text))))


def _distinct(sequences: Iterable[Stems]) -> tuple[Stems, ...]:
    return tuple(dict.fromkeys(filter(None, sequences)))


def _content_stems(tokens: Iterable[str]) -> frozenset[str]:
    functional = function_words()
    return frozenset(
        stem(token) for token in tokens if token not in functional and (len(token) > 2 or token[0].isdigit())
    )


def _anchor(anchor: Anchor, wordings: Sequence[Sequence[str]]) -> AnchorGroup:
    multis = [tuple(map(stem, tokens)) for tokens in wordings if len(tokens) > 1]
    telling = [tokens for tokens in wordings if sum(token not in function_words() for token in tokens) > 1]
    return AnchorGroup(
        id=anchor.id,
        core=anchor.core,
        singles=frozenset(stem(tokens[0]) for tokens in wordings if len(tokens) == 1),
        multis=_distinct(multis),
        strong=frozenset(tuple(map(stem, tokens)) for tokens in telling),
        stems=_content_stems(token for tokens in wordings for token in tokens),
    )


_ECHO_CLASSES = {
    **dict.fromkeys(("i", "me", "my", "mine", "myself", "we", "us", "our", "ours"), "@"),
    **dict.fromkeys(("you", "your", "yours", "yourself"), "@"),
    **dict.fromkeys(("am", "is", "are", "was", "were", "be"), "="),
}


def echo_classes(tokens: Iterable[str]) -> list[str]:
    """Replace persons and forms of "be" by signs for their class: an echo with the persons exchanged is still one."""
    return [_ECHO_CLASSES.get(token, token) for token in tokens]


def grams(tokens: Sequence[str], size: int) -> list[Stems]:
    """Return all runs of `size` tokens."""
    return [tuple(tokens[index : index + size]) for index in range(len(tokens) - size + 1)]


def _demands(message: Iterable[Sentence], context: Iterable[Sentence], fresh: frozenset[str]) -> Iterator[Demand]:
    """Yield the acts that the context forbids and the acts that the user asks for."""
    for sentence in context:
        for match in sentence.find_all(PHRASES.prohibitions):
            yield from _acts(sentence, range(sentence.place(match.end()), len(sentence.tokens)), fresh)
    for sentence in message:
        asked = (at for at in range(len(sentence.tokens)) if _is_asked(sentence, at))
        yield from _acts(sentence, asked, fresh)


def _acts(sentence: Sentence, places: Iterable[int], fresh: frozenset[str]) -> Iterator[Demand]:
    """Yield the base forms at the given places with what they act on, unless that is something new to offer."""
    for at in places:
        token = sentence.tokens[at]
        verb = VERBS.forms.get(token)
        if verb is None or verb.strength == "never" or not verb.base:
            continue
        window = sentence.tokens[at + 1 : at + 1 + LIMITS.prohibited.object_window]
        objects = _content_stems(window) - fresh
        if objects:
            same = map(synonyms, VERBS.lemmas[token])
            yield Demand(VERBS.lemmas[token].union(*same), objects)


def _is_asked(sentence: Sentence, at: int) -> bool:
    """Whether a verb of the user's message stands where an order or a request has its verb."""
    if at == 0 or sentence.before[at].strip():
        return True
    previous = sentence.tokens[at - 1]
    asking = ("to", "you", "just", "and", "or", "can", "could", "will")
    return previous in WORDS.lead_ins or previous in WORDS.adverbs or previous in asking


def _protected(context: Iterable[Sentence]) -> frozenset[str]:
    guarding = [sentence for sentence in context if sentence.says(PHRASES.prohibitions) or "off" in sentence.tokens]
    return frozenset(token for each in guarding for token in each.tokens) & WORDS.protected_words


def _near_stems(tokens: Iterable[str]) -> frozenset[str]:
    """Telling stems: no times, no short words, no verbs of many uses."""
    found = set()
    for token in tokens:
        verb = VERBS.forms.get(token)
        common = verb is not None and verb.strength in ("light", "weak", "never")
        long_enough = len(token) > (1 if token[0].isdigit() else 3)
        if long_enough and not common and token not in function_words() and token not in WORDS.time_words:
            found.add(stem(token))
    return frozenset(found)


def _permitted(
    scenario: Scenario, context: Iterable[Sentence], targets: Sequence[Stems], user_stems: frozenset[str]
) -> tuple[Stems, ...]:
    allowed: set[str] = set()
    continued = False
    for sentence in context:
        permits = continued or sentence.has(WORDS.permission_words)
        if permits and not sentence.says(PHRASES.prohibitions):
            allowed.update(sentence.stems)
        continued = permits and sentence.text.endswith(";")
    fresh = [target for target in targets if not all(found in user_stems or len(found) < 3 for found in target)]
    if scenario.expected.boundary_action == "escalate":
        # Naming the person who decides is itself the way forward.
        return tuple(fresh)
    named = [target for target in fresh if any(found in allowed and found not in user_stems for found in target)]
    return tuple(named or fresh)


@lru_cache(maxsize=256)
def _phrase(phrase: ForbiddenPhrase) -> tuple[Pattern, str, str, ForbiddenPhrase]:
    """Compile a phrase; one filler may stand between any two of its words."""
    tokens = tokenize(phrase.text)
    filler = r"(?:(?:\w+ly|" + "|".join(sorted(WORDS.fillers)) + r") )?"
    body = (" " + filler).join(map(re.escape, tokens)) if tokens else r"(?!)"
    return re.compile(rf"(?<!\S){body}(?!\S)"), "".join(tokens), tokens[0] if tokens else "", phrase
