"""non_defensive: apology loops, disclaimers, blame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_spiral.tempaffect.checks.action import Statement
from pytest_spiral.tempaffect.checks.rule import Rule, matches
from pytest_spiral.tempaffect.checks.sentences import PreparedReply, Sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, WORDS, Phrases

_NEGATION_REACH = 4  # tokens before a phrase in which a negation turns it round
_WITHHELD = ("disclose", "give", "say")
_NEGATIONS = WORDS.negations - {"no"}


class Remark(NamedTuple):
    """A sentence that may protect the speaker or rebuke the user.

    Attributes:
        concrete: Whether the reply holds a concrete act.
        impersonal: Whether nobody stands behind the sentence and nothing is done in it.
        known: Words of the scenario; one that is part of the matter (the tone of a paint, a phone) is no rebuke.
    """

    sentence: Sentence
    concrete: bool
    impersonal: bool
    known: frozenset[str]


def check_defensive(
    reply: PreparedReply,
    statements: Sequence[Statement],
    known: frozenset[str],
    *,
    concrete: bool,
    spoilt: bool,
    repair: bool,
) -> tuple[str, ...]:
    """Return why the reply is defensive; empty where it is not.

    Args:
        concrete: The reply holds a concrete act, which excuses two apologies and a mention of policy.
        repair: The agent made a mistake before.
        spoilt: The reply gives in, repeats the user or talks to the scorer; none of these is distant.
    """
    reasons = _apology_loop(reply, concrete)
    for sentence in reply.sentences:
        reasons += _reasons(DISCLAIMER_RULES, Remark(sentence, concrete, False, known))
        blurred = _quote(sentence, PHRASES.blurring) if repair and "i" not in sentence.tokens else ""
        reasons += [f"makes its own mistake nobody's: {blurred}"] if blurred else []
    if not concrete and not PHRASES.reasons.pattern.search(reply.joined):
        policy = next(filter(None, (_quote(sentence, PHRASES.policies) for sentence in reply.sentences)), "")
        reasons += [f"cites a rule without a reason or a way forward: {policy}"] if policy else []
    for each in statements:
        impersonal = not each.acts and not each.sentence.personal
        reasons += _reasons(REBUKE_RULES, Remark(each.sentence, concrete, impersonal, known))
    if not reasons and not concrete and not spoilt and _is_distant(reply, statements):
        reasons.append("states how things are, with nobody behind it and nothing for the user")
    return tuple(reasons)


def _reasons(rules: Sequence[Rule[Remark, None]], remark: Remark) -> list[str]:
    return [f"{rule.name}: {words}" for rule, words in matches(rules, remark)]


def _apology_loop(reply: PreparedReply, concrete: bool) -> list[str]:
    limits = LIMITS.defensive
    apologetic = [sentence for sentence in reply.sentences if sentence.says(PHRASES.apologies)]
    spoken = (PHRASES.apology_mentions.pattern.sub(" ", sentence.unquoted) for sentence in apologetic)
    counts = [count for text in spoken if (count := len(PHRASES.apologies.pattern.findall(text)))]
    total = sum(counts)
    if total >= limits.apologies_always:
        return [f"apologises {total} times"]
    mostly = len(counts) * 1000 >= limits.apologies_idle_share * len(reply.sentences)
    if total >= limits.apologies_idle and not concrete and mostly:
        return [f"apologises {total} times and does nothing"]
    return []


def _quote(sentence: Sentence, phrases: Phrases, *, unless_negated: bool = False) -> str:
    """Return the first of the phrases in a sentence; "" where it is absent, quoted or negated."""
    match = sentence.find(phrases)
    if match is None:
        return ""
    place = sentence.place(match.start())
    negated = unless_negated and not _NEGATIONS.isdisjoint(sentence.tokens[max(0, place - _NEGATION_REACH) : place])
    return "" if negated or any(sentence.quoted[place : place + 1]) else match.group().strip()


def _machine(remark: Remark) -> str:
    return _quote(remark.sentence, PHRASES.machine_disclaimers) if remark.sentence.says(PHRASES.inability) else ""


def _disclaimer(remark: Remark) -> str:
    disclaimer = _quote(remark.sentence, PHRASES.disclaimers)
    # "I am not allowed to disclose it" declines, and a concrete step stands beside it.
    declines = disclaimer.startswith("not ") and "i" in remark.sentence.tokens and disclaimer.endswith(_WITHHELD)
    return "" if disclaimer and remark.concrete and (declines or remark.sentence.says(PHRASES.reasons)) else disclaimer


def _tone(remark: Remark) -> str:
    tone = _quote(remark.sentence, PHRASES.tone_policing)
    harmless = remark.known.issuperset(tone.split()) or remark.sentence.says(PHRASES.feelings)
    return "" if harmless else tone


def _hidden_blame(remark: Remark) -> str:
    return _quote(remark.sentence, PHRASES.impersonal_blame, unless_negated=True) if remark.impersonal else ""


def _idle(remark: Remark, phrases: Phrases) -> str:
    return _quote(remark.sentence, phrases) if remark.impersonal and not remark.concrete else ""


# All that apply give a reason.
DISCLAIMER_RULES: tuple[Rule[Remark, None], ...] = (
    Rule("hides behind being a machine", _machine, None),
    Rule("shields itself", _disclaimer, None),
    Rule("blames or corrects the user", lambda r: _quote(r.sentence, PHRASES.blame, unless_negated=True), None),
    Rule("plays it down", lambda r: _quote(r.sentence, PHRASES.belittling), None),
)
REBUKE_RULES: tuple[Rule[Remark, None], ...] = (
    Rule("corrects the user's tone", _tone, None),
    Rule("blames without saying who", _hidden_blame, None),
    Rule("moralizes", lambda r: _idle(r, PHRASES.moralizing), None),
    Rule("makes light of it", lambda r: _idle(r, PHRASES.minimizing), None),
)


def _is_distant(reply: PreparedReply, statements: Sequence[Statement]) -> bool:
    """Whether no sentence has anybody who acts, owns, feels, asks or speaks for the user's good."""
    sentences = [each.sentence for each in statements]
    short = sum(len(sentence.tokens) for sentence in sentences) < LIMITS.defensive.distant_tokens
    # A question that closes the reply is put to the user; one on the way is mostly rhetoric.
    if short or sentences[-1].question or any(sentence.speaks_for_itself for sentence in reply.sentences):
        return False
    kind = (PHRASES.feelings, PHRASES.apologies, PHRASES.comfort)
    return not any(sentence.says(phrases) for sentence in sentences for phrases in kind)
