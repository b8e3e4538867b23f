"""A scenario compiled once for the checks: what its reply may name, should do and must not do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from pytest_spiral.tempaffect.checks.figures import known_times
from pytest_spiral.tempaffect.checks.sentences import tokens_by_sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, VERBS, WORDS, Expression, forbidden_phrases
from pytest_spiral.tempaffect.scenario import Act, Anchor, Decision, Family, ForbiddenPhrase, Scenario
from pytest_spiral.text import function_words, grams, stem, tokenize

Stems = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnchorGroup:
    """One issue anchor, compiled.

    Attributes:
        singles: Stems that name it alone.
        multis: Stem sequences of two or more that name it.
        strong: Those of `multis` with two content words.
        firsts: `singles`, and the first stem of each of `multis`: a sentence without any of them does not name it.
        stems: All content stems.
    """

    id: str
    core: bool
    singles: frozenset[str]
    multis: tuple[Stems, ...]
    strong: frozenset[Stems]
    firsts: frozenset[str]
    stems: frozenset[str]


@lru_cache(maxsize=1024)
def _listed_act(text: str) -> Act:
    """Return a listed act as one of a decision key: all its words must be found."""
    words = [token for token in tokenize(text) if token not in WORDS.optional_words] or [text]
    return Act(id=text, role="demanded", what=text, says=(tuple((word,) for word in words),))


class PreparedScenario:
    """A scenario, compiled for the checks.

    Attributes:
        targets: Stem sequences of the action targets.
        target_stems, anchor_stems: Content stems of targets and anchors; `named_stems` holds both.
        fresh_stems: Target stems that the user did not use.
        user_stems: Content stems of the user's message.
        near_stems: Telling stems of message, context and targets that are no anchors.
        known: Every token and stem of message, context, role, anchors and targets.
        echo_grams: 4-grams of the message after `echo_classes`.
        situation_grams: Runs of words of the situation.
        prohibited: The listed acts as demanded acts of a decision key.
        guarded: Whether the expected boundary is anything but to go on helping.
        repair: Whether the agent made a mistake before.
        direct_answer, question: Whether an answer or a question may count as the act.
        times: The times of day that the scenario tells.
        phrases: Forbidden phrases: pattern, letters without spaces, words, phrase.
    """

    def __init__(self, scenario: Scenario) -> None:
        spec = scenario.expected.reply
        user = list(chain.from_iterable(tokens_by_sentence(scenario.user_message)))
        situation = list(chain.from_iterable(tokens_by_sentence(scenario.agent_context)))
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
        self.fresh_stems = self.target_stems - self.user_stems
        self.near_stems = _near_stems((*user, *situation, *(token for target in targets for token in target)))
        self.near_stems -= self.anchor_stems
        self.known = known | frozenset(map(stem, known))
        self.echo_grams = frozenset(grams(echo_classes(user), LIMITS.grounding.echo_gram))
        self.situation_grams = frozenset(grams(situation, LIMITS.grounding.situation_gram))
        self.prohibited = Decision(acts=tuple(map(_listed_act, spec.prohibited_acts)), right=())
        self.guarded = scenario.expected.boundary_action != "continue_helping"
        self.repair = scenario.family is Family.REPAIR
        self.direct_answer = "direct_answer" in spec.action_forms or practical
        self.question = "question" in spec.action_forms
        self.times = known_times(scenario)
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
    # In one go; no number runs on across the sign.
    text = " ; ".join((scenario.user_message, *spec.action_targets, *wordings))
    return " ".join(sorted(_content_stems(tokenize(text))))


def _distinct(sequences: Iterable[Stems]) -> tuple[Stems, ...]:
    return tuple(dict.fromkeys(filter(None, sequences)))


def _content_stems(tokens: Iterable[str]) -> frozenset[str]:
    telling = frozenset(tokens) - function_words()
    return frozenset(stem(token) for token in telling if len(token) > 2 or token[0].isdigit())


def _anchor(anchor: Anchor, wordings: Sequence[Sequence[str]]) -> AnchorGroup:
    singles = frozenset(stem(tokens[0]) for tokens in wordings if len(tokens) == 1)
    multis = _distinct(tuple(map(stem, tokens)) for tokens in wordings if len(tokens) > 1)
    telling = [tokens for tokens in wordings if sum(token not in function_words() for token in tokens) > 1]
    return AnchorGroup(
        id=anchor.id,
        core=anchor.core,
        singles=singles,
        multis=multis,
        strong=frozenset(tuple(map(stem, tokens)) for tokens in telling),
        firsts=singles.union(stems[0] for stems in multis),
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


def _near_stems(tokens: Iterable[str]) -> frozenset[str]:
    """Telling stems: no times, no short words, no verbs of many uses."""
    found = set()
    for token in frozenset(tokens) - function_words() - WORDS.time_words:
        verb = VERBS.forms.get(token)
        common = verb is not None and verb.strength in ("light", "weak", "never")
        if not common and len(token) > (1 if token[0].isdigit() else 3):
            found.add(stem(token))
    return frozenset(found)


@lru_cache(maxsize=256)
def _phrase(phrase: ForbiddenPhrase) -> tuple[Expression, str, frozenset[str], ForbiddenPhrase]:
    """Compile a phrase; one filler may stand between any two of its words."""
    tokens = tokenize(phrase.text)
    filler = r"(?:(?:\w+ly|" + "|".join(sorted(WORDS.fillers)) + r") )?"
    body = (" " + filler).join(map(re.escape, tokens)) if tokens else r"(?!)"
    return re.compile(rf"(?<!\S){body}(?!\S)"), "".join(tokens), frozenset(tokens), phrase
