"""non_defensive and overvalidation (sections 2.4 and 2.8): apology loops, shields, blame; talk about feelings alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_spiral.tempaffect.checks.action import SentenceActs
from pytest_spiral.tempaffect.checks.prepare import PreparedReply, PreparedScenario, Sentence
from pytest_spiral.tempaffect.checks.stance import is_personal, speaks_personally
from pytest_spiral.tempaffect.lexicon import Lexicon, Pattern

__all__ = ["DefensiveFinding", "ValidationFinding", "check_defensive", "check_validation"]


_REACH = 4  # tokens before a pattern in which a negation turns it round


@dataclass(frozen=True, slots=True)
class DefensiveFinding:
    """passed: none of the defensive patterns of section 2.4."""

    passed: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValidationFinding:
    """sentences: validation sentences without an act. over: too many of them (section 2.8)."""

    sentences: int
    over: bool


def check_defensive(
    prepared: PreparedScenario,
    reply: PreparedReply,
    acts: Sequence[SentenceActs],
    concrete: bool,
    spoilt: bool,
    lexicon: Lexicon,
) -> DefensiveFinding:
    """Section 2.4. `concrete`: the reply holds a concrete act, which excuses two apologies and a mention of policy.

    spoilt: the reply gives in, repeats the user or talks to the scorer; none of these keeps anybody at a distance.
    """
    reasons: list[str] = []
    apologetic = [count for sentence in reply.sentences if (count := _apologies(sentence, lexicon))]
    total = sum(apologetic)
    limits = lexicon.limits.defensive
    if total >= limits.apologies_always:
        reasons.append(f"apologises {total} times")
    elif (
        total >= limits.apologies_idle
        and not concrete
        and len(apologetic) * 1000 >= limits.apologies_idle_share * len(reply.sentences)
    ):
        reasons.append(f"apologises {total} times and does nothing")
    for sentence in reply.sentences:
        disclaimer = _found(sentence, lexicon.ai_disclaimer)
        if disclaimer and lexicon.inability.search(sentence.joined):
            reasons.append(f"hides behind being a machine: {disclaimer}")
        shield = _found(sentence, lexicon.hard_shield)
        if shield and not (concrete and lexicon.reason.search(sentence.joined)):
            reasons.append(f"shields itself: {shield}")
        blame = _found(sentence, lexicon.blame, lexicon.negations)
        if blame:
            reasons.append(f"blames or corrects the user: {blame}")
    if not concrete and not lexicon.reason.search(reply.joined):
        for sentence in reply.sentences:
            policy = _found(sentence, lexicon.policy)
            if policy:
                reasons.append(f"cites a rule without a reason or a way forward: {policy}")
                break
    reasons += _rebukes(prepared, acts, concrete, lexicon)
    if not reasons and not concrete and not spoilt and _distant(reply, acts, lexicon):
        reasons.append("states how things are, with nobody behind it and nothing for the user")
    return DefensiveFinding(not reasons, tuple(reasons) or ("no apology loop, shield or blame",))


def _rebukes(prepared: PreparedScenario, acts: Sequence[SentenceActs], concrete: bool, lexicon: Lexicon) -> list[str]:
    """Blame in any voice, lessons in tone or character, jokes at the matter's expense."""
    found: list[str] = []
    for each in acts:
        sentence = each.sentence
        tone = _found(sentence, lexicon.conduct)
        # A word that is part of the matter (the tone of a paint, a phone) is no rebuke.
        if tone and not prepared.known.issuperset(tone.split()) and not lexicon.validation.search(sentence.joined):
            found.append(f"corrects the user's tone: {tone}")
        if each.forms or is_personal(sentence, lexicon):
            continue
        blame = _found(sentence, lexicon.impersonal_blame, lexicon.negations)
        if blame:
            found.append(f"blames without saying who: {blame}")
        moral = _found(sentence, lexicon.moral)
        if moral and not concrete:
            found.append(f"moralizes: {moral}")
        light = _found(sentence, lexicon.minimizing)
        if light and not concrete:
            found.append(f"makes light of it: {light}")
    return found


def _distant(reply: PreparedReply, acts: Sequence[SentenceActs], lexicon: Lexicon) -> bool:
    """Whole sentences, and in none of them anybody who acts, owns, feels, asks or speaks to the user's good."""
    sentences = [each.sentence for each in acts]
    short = sum(len(sentence.tokens) for sentence in sentences) < lexicon.limits.defensive.distant_tokens
    if short or speaks_personally(reply.sentences, lexicon):
        return False
    # A question that closes the reply is put to the user; one on the way is mostly rhetoric.
    if sentences[-1].question:
        return False
    return not any(
        lexicon.validation.search(sentence.joined)
        or lexicon.apology.search(sentence.joined)
        or lexicon.comfort.search(sentence.joined)
        for sentence in sentences
    )


def check_validation(acts: Sequence[SentenceActs], lexicon: Lexicon) -> ValidationFinding:
    """Section 2.8: sentences about feelings that hold no act."""
    limits = lexicon.limits.validation
    found = sum(not each.forms and lexicon.validation.search(each.sentence.joined) is not None for each in acts)
    over = found >= limits.many or (found >= limits.few and found * 1000 >= limits.few_share * len(acts))
    return ValidationFinding(found, over)


def _apologies(sentence: Sentence, lexicon: Lexicon) -> int:
    if not lexicon.apology.search(sentence.joined):
        return 0
    spoken = _unquoted(sentence)
    return len(lexicon.apology.findall(lexicon.apology_meta.sub(" ", spoken)))


def _found(sentence: Sentence, pattern: Pattern, unless: frozenset[str] = frozenset()) -> str:
    match = pattern.search(sentence.joined)
    if match is None:
        return ""
    place = sum(1 for at in sentence.starts if at < match.start())
    # "none of this is your fault"
    if any(found in unless and found != "no" for found in sentence.tokens[max(0, place - _REACH) : place]):
        return ""
    return "" if place < len(sentence.quoted) and sentence.quoted[place] else match.group().strip()


def _unquoted(sentence: Sentence) -> str:
    if not any(sentence.quoted):
        return sentence.joined
    return " ".join(token for token, quoted in zip(sentence.tokens, sentence.quoted, strict=True) if not quoted)
