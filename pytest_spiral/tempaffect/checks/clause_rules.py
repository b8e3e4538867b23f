"""How a verb is used in its clause: ordered rules, one table per form of the verb."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from pytest_spiral.tempaffect.checks.clauses import (
    BREAKS,
    FINITE_WORDS,
    HELPING_VERBS,
    Clause,
    Kind,
    clause_spans,
    describe,
)
from pytest_spiral.tempaffect.checks.rule import Rule, first_rule
from pytest_spiral.tempaffect.checks.sentences import Sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, VERBS, WORDS

__all__ = ["CLAUSE_RULES", "decide_clauses", "read_clauses"]

Form = Literal["ing", "past", "base", "third"]


def read_clauses(sentence: Sentence) -> tuple[Clause, ...]:
    """Return the clauses of all verbs by which somebody acts, in order."""
    return tuple(clause for clause, _ in decide_clauses(sentence) if clause.kind is not Kind.NONE)


def decide_clauses(sentence: Sentence) -> Iterator[tuple[Clause, Rule[Clause, Kind] | None]]:
    """Yield the clause of every verb with the rule that decided how the verb is used."""
    last: Clause | None = None
    for at, span in enumerate(clause_spans(sentence, LIMITS.action.max_scanned_tokens)):
        verb = VERBS.forms.get(sentence.tokens[at])
        if verb is None or sentence.quoted[at] or (verb.lemma == "do" and _supports(sentence, at)):
            continue
        clause = describe(sentence, at, span, verb, last)
        rule = _deciding_rule(clause)
        if rule and rule.kind is not Kind.NONE:
            inherited = clause.joined.kind if clause.joined else Kind.NONE
            clause = last = replace(clause, kind=inherited if rule.kind is Kind.AS_BEFORE else rule.kind)
        yield clause, rule


def _deciding_rule(clause: Clause) -> Rule[Clause, Kind] | None:
    """Return the first rule that applies; a verb that may have two forms is no act only if both say so."""
    rule = None
    for form in _forms(clause):
        rule = first_rule(CLAUSE_RULES[form], clause)
        if rule and rule.kind is not Kind.NONE:
            break
    return rule


def _forms(clause: Clause) -> tuple[Form, ...]:
    verb = clause.verb
    if verb.ing:
        return ("ing",)
    as_base = verb.base and (clause.opens or clause.previous in ("will", "shall", "can", "to"))
    if (verb.past or verb.participle) and not as_base:
        return ("past", "base") if verb.base else ("past",)
    if verb.base:
        return ("base",)
    return ("third",) if verb.third else ()


def _supports(sentence: Sentence, at: int) -> bool:
    """Whether "do" merely supports another verb ("I do apologize", "what I can do is")."""
    following = sentence.tokens[at + 1] if at + 1 < len(sentence.tokens) else ""
    verb = VERBS.forms.get(following)
    return following in ("", "not", "is", "so") or (verb is not None and verb.base)


# --- "sending" ---


def _speaker_is(c: Clause) -> bool:
    if c.previous not in WORDS.be_forms:
        return False
    return c.earlier in WORDS.speakers or c.earlier == "will" or (c.previous == "am" and not c.earlier)


def _gerund_subject(c: Clause) -> bool:
    rest = c.tokens[c.at + 1 : _phrase_end(c)]
    return not rest or any(word in WORDS.finite_verbs or word in HELPING_VERBS for word in rest)


def _phrase_end(c: Clause) -> int:
    """Position of the first punctuation mark after the verb."""
    before = c.sentence.before
    return next((at for at in range(c.at + 1, len(before)) if not BREAKS.isdisjoint(before[at])), len(before))


def _joins_another_ing(c: Clause) -> bool:
    return c.joined is not None and c.joined.verb.ing and c.joined.kind in (Kind.PROMISE, Kind.PROGRESS)


def _sets_in(c: Clause) -> bool:
    """Whether the clause starts the sentence, or follows a punctuation mark or "and"."""
    return c.start == 0 or c.follows_break or c.opener == "and"


def _announces(c: Clause) -> bool:
    return _sets_in(c) and (c.start == 0 or any(sign in ":;(>-." for sign in c.break_before))


# --- "sent" ---


def _speaker_has(c: Clause) -> bool:
    return _after_have(c) and (c.earlier in WORDS.speakers or "i" in c.tokens[max(c.first, c.back - 2) : c.back])


def _user_has(c: Clause) -> bool:
    return _after_have(c) and (c.earlier == "you" or "you" in c.tokens[max(c.first, c.back - 2) : c.back])


def _after_have(c: Clause) -> bool:
    return c.verb.participle and c.previous in ("have", "has")


def _is_passive(c: Clause) -> bool:
    """Whether "been", "being", "be", or "was ... now" makes the participle a completed passive."""
    if c.previous == "been":
        return c.earlier in ("have", "has", "will")
    if c.previous == "being":
        # "the lock's being changed"
        short = c.back > c.first and c.sentence.raws[c.back - 1].endswith(("'s", "\u2019s"))
        return short or c.earlier in WORDS.be_forms
    if c.previous == "be":
        return c.earlier in ("will", "shall")
    return c.previous in ("was", "were") and c.now and c.earlier != "you"


def _is_state(c: Clause) -> bool:
    return (c.previous in ("is", "are", "am") and c.earlier != "you") or c.previous in WORDS.linking_verbs


def _has_finite_word(c: Clause, start: int, end: int) -> bool:
    return not FINITE_WORDS.isdisjoint(c.tokens[start:end])


def _opening_fragment(c: Clause) -> bool:
    return not _has_finite_word(c, c.at + 1, c.end) and c.opener not in WORDS.conditional_openers


def _takes_object(c: Clause) -> bool:
    """Whether an object follows, which a participle cannot take: "The officer got the whole story"."""
    after = c.tokens[c.at + 1 : c.at + 3]
    return c.verb.past and len(after) == 2 and after[0] in WORDS.determiners and after[1] not in WORDS.time_words


def _other_verb_governs(c: Clause) -> bool:
    """Whether an earlier word is the verb of the clause: "using the details printed on the letter"."""
    for at in range(c.first, c.back):
        verb = VERBS.forms.get(c.tokens[at])
        if verb is None:
            continue
        acting = at > c.first and (verb.base or verb.third) and verb.lemma not in WORDS.noun_like
        if verb.ing or acting:
            return True
    return False


_PARTICLES = frozenset({"up", "out", "off", "over"})
_ENDED = (Kind.REPORT, Kind.DONE, Kind.PAST, Kind.STATE, Kind.FRAGMENT)


# --- "send" ---


def _has_speaker(c: Clause) -> bool:
    return not WORDS.speakers.isdisjoint(c.tokens[c.first : c.back])


def _you_alone(c: Clause) -> bool:
    """Whether "you" stands alone before the verb, in a clause that nothing but "and", "so" or "then" opens."""
    alone = c.back == c.first or (c.back > c.first and c.tokens[c.back - 1] == "of")
    return alone and not c.verb.past and (c.first == c.start or c.opener in ("and", "so", "then"))


def _numbered_noun(c: Clause) -> bool:
    """Whether the verb is a noun with its number, subject of another verb: "stand 14 stays shut"."""
    if c.tokens[c.at] not in WORDS.noun_like or c.at + 2 >= c.end or not c.next_word[:1].isdigit():
        return False
    verb = VERBS.forms.get(c.tokens[c.at + 2])
    return c.tokens[c.at + 2] in WORDS.be_forms or (verb is not None and verb.third)


def _plural_subject(c: Clause) -> bool:
    """Whether a plural and its verb stand before: "Neighbors see a van and draw conclusions"."""
    if c.start == c.at or c.last is not None or c.follows_break:
        return False
    forms = VERBS.forms
    return any(
        c.tokens[at - 1].endswith("s") and (verb := forms.get(c.tokens[at])) is not None and verb.base
        for at in range(1, c.start)
    )


def _orders(c: Clause) -> bool:
    """Whether a base form that opens its clause reads as an order rather than as a noun."""
    after = c.next_word
    third = c.tokens[c.at + 2] if c.at + 2 < c.end else ""
    if after in HELPING_VERBS:
        return False
    if c.tokens[c.at] in WORDS.noun_like:
        return _noun_like_orders(c, after, third)
    # "Duplicate submissions are ignored"
    return third not in WORDS.be_forms or after in WORDS.determiners or after in WORDS.noun_substitutes


def _noun_like_orders(c: Clause, after: str, third: str) -> bool:
    if c.at + 2 == c.end and after in WORDS.noun_like and "!" in c.sentence.text:
        return False
    # "Box 6 would not have been lost"
    bare = after not in WORDS.determiners and after not in WORDS.object_pronouns
    if bare and not HELPING_VERBS.isdisjoint(c.tokens[c.at + 1 : c.end]):
        return False
    comma = "," in c.sentence.before[c.at]
    if not after:
        # "..., file, ..." inside a chain of orders
        return c.at > 0 and comma
    if after in ("of", "for", "from") or after in WORDS.clause_openers:
        return False
    if after in ("to", "in", "at", "by", "with", "on") and third and third not in WORDS.determiners:
        return comma or c.verb.strength == "light" or c.verb.lemma in WORDS.travel_verbs
    following = VERBS.forms.get(after)
    if following is None:
        return True
    participle = (following.participle or following.third) and not following.base
    return not participle and (not following.ing or after in WORDS.noun_like)


def _joins_base(c: Clause, kinds: tuple[Kind, ...] = (Kind.PROMISE, Kind.INSTRUCTION, Kind.OTHERS)) -> bool:
    return c.opens and c.at > c.start and c.joined is not None and c.joined.kind in kinds


# One rule per paragraph; the formatter would give every argument a line of its own.
# fmt: off
_ING: tuple[Rule[Clause, Kind], ...] = (
    Rule("I am sending", _speaker_is, Kind.PROMISE, ("I am [sending] it.", "Will be [sending] it."),
         ("You are [sending] it.",)),
    Rule("you are sending",
         lambda c: c.previous in WORDS.be_forms and c.earlier in ("you", "") and c.previous != "be", Kind.NONE,
         ("You are [sending] it.", "Was [sending] it fair?"), ("They are [sending] it.",)),
    Rule("they are sending", lambda c: c.previous in WORDS.be_forms, Kind.PROGRESS,
         ("The desk is [sending] it.",)),
    Rule("a noun in -ing", lambda c: not c.opens, Kind.NONE, ("The [sending] takes time.",), ("Now [sending] it.",)),
    Rule("sending as a subject", _gerund_subject, Kind.NONE, ("[Deleting] the folder was my doing.", "[Sending]."),
         ("[Deleting] the folder, which was mine.",)),
    Rule("joined to another -ing", _joins_another_ing, Kind.AS_BEFORE, ("I am opening it and [sending] it.",)),
    Rule("sending it now", _announces, Kind.PROMISE, ("[Calling] your number now.",), ("A bag, [sending] it now.",)),
    Rule("a promise goes on", lambda c: _sets_in(c) and c.last is not None and c.last.kind is Kind.PROMISE,
         Kind.PROMISE, ("I will open it at noon, [sending] it on.",), ("They open it, [sending] it on.",)),
)

_PAST: tuple[Rule[Clause, Kind], ...] = (
    Rule("I have sent", _speaker_has, Kind.REPORT, ("I have just [sent] it.",), ("You have [sent] it.",)),
    Rule("you have sent", _user_has, Kind.NONE, ("You have [sent] it.",), ("They have [sent] it.",)),
    Rule("they have sent", _after_have, Kind.DONE, ("The desk has [sent] it.",)),
    Rule("it has been sent", lambda c: c.verb.participle and _is_passive(c), Kind.DONE,
         ("It has been [sent].", "The lock's being [changed].", "It will be [sent].", "It was just [sent]."),
         ("It might be [sent].", "It was [sent].")),
    Rule("it is sent", lambda c: c.verb.participle and _is_state(c), Kind.STATE,
         ("It is [sent].", "The line stays [closed]."), ("Because you are [covered].",)),
    Rule("a passive without end",
         lambda c: c.verb.participle and c.previous in ("been", "being", "be", "is", "are", "am", "was", "were"),
         Kind.NONE, ("It might be [sent].", "It was [sent].", "You are [covered].")),
    Rule("I sent", lambda c: c.verb.past and c.previous in WORDS.speakers, Kind.PAST, ("I [sent] it.",),
         ("They [sent] it.",)),
    Rule("joined to a completed act",
         lambda c: c.opens and c.verb.participle and c.joined is not None and c.joined.kind in _ENDED, Kind.AS_BEFORE,
         ("It is signed and [sent].",), ("They sign and [sent] it.",)),
    Rule("sent at once", lambda c: c.opens and c.verb.participle and _opening_fragment(c), Kind.FRAGMENT,
         ("[Sent] this minute.",), ("[Sent] it was.",)),
    Rule("a past form opens the clause", lambda c: c.opens, Kind.NONE, ("If [sent] today.", "[Went] home.")),
    Rule("sent after a pronoun or article",
         lambda c: not c.verb.participle or c.follows(WORDS.noun_substitutes, WORDS.determiners), Kind.NONE,
         ("They [sent] it.", "The [closed] door."), ("Recall [sent] today.",)),
    Rule("sent after a preposition", lambda c: c.previous in WORDS.prepositions and c.previous not in _PARTICLES,
         Kind.NONE, ("A report on [closed] lines.",)),
    Rule("sent with an object", _takes_object, Kind.NONE, ("The officer [got] the whole story.",)),
    Rule("describes a noun", _other_verb_governs, Kind.NONE, ("Using the details [printed] on the letter.",),
         ("Details [printed] on the letter.",)),
    Rule("sent after a conjunction or modal",
         lambda c: c.follows(WORDS.clause_openers, WORDS.firm_modals, WORDS.soft_modals), Kind.NONE,
         ("The desk could [sent] it.",)),
    Rule("another verb is finite",
         lambda c: _has_finite_word(c, c.first, c.at) or _has_finite_word(c, c.at + 1, c.end), Kind.NONE,
         ("The code [sent] will work.",)),
    Rule("recall sent", lambda c: True, Kind.FRAGMENT, ("Recall [sent] today.",), ("The code [sent] will work.",)),
)

_BASE: tuple[Rule[Clause, Kind], ...] = (
    Rule("I will send", lambda c: c.previous in WORDS.firm_modals and c.earlier in WORDS.speakers,
         Kind.PROMISE, ("We will [send] it.",), ("We could [send] it.",)),
    Rule("you can send",
         lambda c: c.earlier == "you" and (c.previous in WORDS.firm_modals or c.previous in ("should", "must")),
         Kind.INSTRUCTION, ("You can [send] it.", "You should [send] it."), ("You could [send] it.",)),
    Rule("they will send", lambda c: c.previous in WORDS.firm_modals and c.earlier != "", Kind.OTHERS,
         ("The desk will [send] it.",), ("Will [send] it.",)),
    Rule("send after a modal", lambda c: c.previous in WORDS.firm_modals or c.previous in WORDS.soft_modals,
         Kind.NONE, ("We could [send] it.", "Can [send] it.")),
    Rule("I am going to send", lambda c: (c.earlier, c.previous) == ("going", "to"), Kind.PROMISE,
         ("We are going to [send] it.",)),
    Rule("you need to send",
         lambda c: c.previous == "to" and c.earlier in WORDS.need_verbs and "you" in c.tokens[c.first : c.back],
         Kind.INSTRUCTION, ("You need to [send] it.",), ("We need to [send] it.",)),
    Rule("to send", lambda c: c.previous == "to", Kind.NONE, ("We need to [send] it.", "It is good to [send] it.")),
    Rule("let me send", lambda c: c.previous in ("me", "us") and c.earlier == "let", Kind.PROMISE,
         ("Let me [send] it.",), ("They let you [send] it.",)),
    Rule("what I will do is send", lambda c: (c.earlier, c.previous) == ("do", "is") and _has_speaker(c), Kind.PROMISE,
         ("What I will do is [send] it.",), ("What they do is [send] it.",)),
    Rule("what I call", lambda c: c.previous in WORDS.speakers and c.earlier == "what", Kind.NONE,
         ("That is bad luck, or what I [call] it.",)),
    Rule("I send", lambda c: c.previous in WORDS.speakers, Kind.PROMISE, ("I [send] it on Friday.",),
         ("They [send] it.",)),
    Rule("you send", lambda c: c.previous == "you" and _you_alone(c), Kind.INSTRUCTION,
         ("Then you [send] it.", "Both of you [send] it."), ("When you [send] it.",)),
    Rule("that you send", lambda c: c.previous == "you", Kind.NONE, ("When you [send] it.",), ("You [send] it.",)),
    Rule("a relative or a numbered noun", lambda c: c.opens and (c.opener in ("who", "which") or _numbered_noun(c)),
         Kind.NONE, ("The desks which [send] it.", "[Stand] 14 stays shut."), ("[Stand] by 14.",)),
    Rule("joined to a base form", lambda c: _joins_base(c) and c.joined is not None and c.joined.verb.base,
         Kind.AS_BEFORE, ("We will open it and [send] it.",), ("Open it and [send] it.",)),
    Rule("joined to another form", _joins_base, Kind.ORDER, ("I am opening it, then [send] it back.",)),
    Rule("joined to a plural's verb", lambda c: c.opens and _plural_subject(c), Kind.NONE,
         ("Neighbors see a van and [draw] conclusions.",), ("See the van and [draw] it.",)),
    Rule("send it", lambda c: c.opens and _orders(c), Kind.ORDER, ("Please [send] it.", "[Box] the rings."),
         ("[Duplicate] submissions are ignored.", "[Box] 6 would be lost.")),
    Rule("they send", lambda c: not c.opens and c.previous in ("they", "people", "team", "colleagues", "everyone"),
         Kind.OTHERS, ("They [send] it.",), ("Dogs [send] it.",)),
)

_THIRD: tuple[Rule[Clause, Kind], ...] = (
    Rule("joined to another third person", lambda c: _joins_base(c, (Kind.OTHERS,)), Kind.OTHERS,
         ("The desk opens it and [sends] it.",), ("We open it and [sends] it.",)),
    Rule("and sends you", lambda c: c.opens and c.at > c.start and c.next_word in WORDS.object_pronouns,
         Kind.OTHERS, ("A clerk and [sends] you the code.",)),
    Rule("a plural noun",
         lambda c: c.opens or c.previous[:1].isdigit()
         or c.follows(WORDS.determiners, WORDS.prepositions, WORDS.be_forms), Kind.NONE,
         ("The [calls] were many.", "[Codes] open doors.", "A list of [codes].", "These are [codes]."),
         ("The desk [codes] it.",)),
    Rule("the desk sends", lambda c: True, Kind.OTHERS, ("The desk [sends] it.",)),
)
# fmt: on

CLAUSE_RULES: Mapping[Form, tuple[Rule[Clause, Kind], ...]] = {
    "ing": _ING,
    "past": _PAST,
    "base": _BASE,
    "third": _THIRD,
}
