"""How each verb of a sentence is used, told by position and function words alone: no parser, no tagger.

A `Clause` holds a verb and the words around it. The first rule that applies, in the table for the form of the verb,
decides who acts, when, and how firmly.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from pytest_spiral.tempaffect.checks.rule import Rule, first_rule
from pytest_spiral.tempaffect.checks.sentences import BREAKS, Sentence
from pytest_spiral.tempaffect.lexicon import VERBS, WORDS, VerbForm
from pytest_spiral.text import Span

HELPING_VERBS = WORDS.be_forms | WORDS.firm_modals | WORDS.soft_modals | WORDS.auxiliaries
FINITE_WORDS = HELPING_VERBS | WORDS.subject_pronouns
"""Words that show a clause to have a verb of its own."""
_SKIPPED = WORDS.adverbs | {"not"}
_OPENING = WORDS.lead_ins | WORDS.adverbs
_BEFORE_FINITE = WORDS.clause_openers | WORDS.firm_modals | WORDS.soft_modals
_BEFORE_NOUNS = WORDS.determiners | WORDS.prepositions | WORDS.be_forms
_PREPOSITIONS = WORDS.prepositions - {"up", "out", "off", "over"}


class Use(Enum):
    """How a verb is used: who acts, when, and how firmly."""

    PROMISE = "I will send, I am sending, let me send"
    REPORT = "I have sent"
    PAST = "I sent"
    ORDER = "please send"
    INSTRUCTION = "you can send"
    DONE = "it has been sent"
    STATE = "it is sent"
    FRAGMENT = "recall sent"
    PROGRESS = "the desk is sending"
    OTHERS = "the desk sends"
    AS_BEFORE = "... and send: the kind of the verb it is joined to"
    NONE = "no act"


class Clause:
    """One verb with the words around it, as the rules read them.

    Attributes:
        sentence, tokens: The whole sentence and its tokens.
        verb: What the written form of the verb can be.
        at: Position of the verb in the sentence.
        start, end: The clause: position of its first token and of the one after its last.
        words: Tokens of the clause.
        opener, break_before: First word of the clause, and what stands between it and the word before.
        follows_break: Whether that is a punctuation mark.
        now: Whether the clause speaks of the present moment.
        next_word: The word after the verb; "" where the clause ends.
        first: `start`, or the token after the conjunction that opens the clause.
        back: Position of the word before the verb, adverbs and "not" skipped; may lie before `first`.
        previous: The word at `back`; "" where the clause has none.
        earlier: The word before `previous`, adverbs and "not" skipped; "" where the clause has none.
        opens: Whether nothing but lead-ins and adverbs stands between `first` and the verb.
        last: The clause of the acting verb before this one, decided.
        joined: `last`, where a conjunction or a comma joins this clause to it; `joined_kind`: how its verb is used.
        negated, hedged, conditional: Whether the clause takes the act back, makes it uncertain or depends on something.
        kind: How the verb is used, once the rules have decided.
    """

    def __init__(self, sentence: Sentence, verb: VerbForm, at: int, span: Span, last: Clause | None) -> None:
        self.sentence, self.verb, self.at, self.last = sentence, verb, at, last
        self.kind = Use.NONE
        self.tokens = tokens = sentence.tokens
        self.start, self.end = start, end = span
        self.words = tokens[start:end]
        self.opener = opener = tokens[start]
        self.break_before = sentence.before[start]
        self.follows_break = not BREAKS.isdisjoint(self.break_before)
        self.now = not WORDS.now_words.isdisjoint(self.words)
        self.next_word = tokens[at + 1] if at + 1 < end else ""
        self.first = first = start + 1 if opener in WORDS.clause_openers and start < at else start
        back = at - 1
        while back >= first and (tokens[back] in _SKIPPED or tokens[back].endswith("ly")):
            back -= 1
        earlier = back - 1
        while earlier >= first and tokens[earlier] in _SKIPPED:
            earlier -= 1
        self.back = back
        self.previous = tokens[back] if back >= first else ""
        self.earlier = tokens[earlier] if earlier >= first else ""
        self.opens = _OPENING.issuperset(tokens[first : back + 1])
        if self.opens and start and opener == "then" and tokens[start - 1] in WORDS.speakers:
            # "I then send"
            self.previous, self.opens = tokens[start - 1], False
        self.negated = sentence.is_negated(at, since=start)
        self.hedged = not WORDS.hedges.isdisjoint(tokens[start:at])
        self.conditional = first > start and opener in WORDS.conditional_openers
        self.joined = last if opener in WORDS.joining or "," in self.break_before else None
        self.joined_kind = self.joined.kind if self.joined else Use.NONE
        if self.joined and _OPENING.issuperset(tokens[start:at]):
            # "I could look and send": what softens or negates the first verb reaches the second.
            self.negated = self.negated or (self.joined.negated and opener in ("or", "and"))
            self.hedged = self.hedged or self.joined.hedged
            self.conditional = self.conditional or self.joined.conditional


def decide_clauses(sentence: Sentence) -> Iterator[tuple[Clause, Rule[Clause, Use] | None]]:
    """Yield the clause of every verb with the rule that decided how the verb is used, None where none applied."""
    last: Clause | None = None
    verbs = ((at, span, VERBS.forms.get(sentence.tokens[at])) for span in sentence.clauses for at in range(*span))
    for at, span, verb in verbs:
        if verb is None or sentence.quoted[at] or (verb.lemma == "do" and _supports(sentence, at)):
            continue
        clause = Clause(sentence, verb, at, span, last)
        rule = None
        for form in _forms(clause):
            rule = first_rule(CLAUSE_RULES[form], clause)
            # A verb that may have two forms is no act only if both say so.
            if rule and rule.kind is not Use.NONE:
                clause.kind = clause.joined_kind if rule.kind is Use.AS_BEFORE else rule.kind
                last = clause
                break
        yield clause, rule


def _supports(sentence: Sentence, at: int) -> bool:
    """Whether "do" merely supports another verb ("I do apologize", "what I can do is")."""
    following = sentence.tokens[at + 1] if at + 1 < len(sentence.tokens) else ""
    verb = VERBS.forms.get(following)
    return following in ("", "not", "is", "so") or (verb is not None and verb.base)


def _forms(c: Clause) -> tuple[str, ...]:
    """Return the tables that may decide about the verb, in order."""
    if c.verb.ing:
        return ("ing",)
    as_base = c.verb.base and (c.opens or c.previous in ("will", "shall", "can", "to"))
    if (c.verb.past or c.verb.participle) and not as_base:
        return ("past", "base") if c.verb.base else ("past",)
    return ("base",) if c.verb.base else ("third",)


# --- "sending" ---


def _gerund_subject(c: Clause) -> bool:
    """Whether the words up to the next punctuation mark hold a finite verb, or there are none."""
    before = c.sentence.before
    end = next((at for at in range(c.at + 1, len(before)) if not BREAKS.isdisjoint(before[at])), len(before))
    rest = c.tokens[c.at + 1 : end]
    return not rest or any(word in WORDS.finite_verbs or word in HELPING_VERBS for word in rest)


def _sets_in(c: Clause) -> bool:
    """Whether the clause starts the sentence, or follows a punctuation mark or "and"."""
    return c.start == 0 or c.follows_break or c.opener == "and"


_ING: tuple[Rule[Clause, Use], ...] = (
    Rule(
        "I am sending",
        lambda c: (
            c.previous in WORDS.be_forms
            and (c.earlier in WORDS.speakers or c.earlier == "will" or (c.previous == "am" and not c.earlier))
        ),
        Use.PROMISE,
    ),
    Rule(
        "you are sending",
        lambda c: c.previous in WORDS.be_forms and c.earlier in ("you", "") and c.previous != "be",
        Use.NONE,
    ),
    Rule("they are sending", lambda c: c.previous in WORDS.be_forms, Use.PROGRESS),
    Rule("a noun in -ing", lambda c: not c.opens, Use.NONE),
    Rule("sending as a subject", _gerund_subject, Use.NONE),
    Rule(
        "joined to another -ing",
        lambda c: c.joined is not None and c.joined.verb.ing and c.joined_kind in (Use.PROMISE, Use.PROGRESS),
        Use.AS_BEFORE,
    ),
    Rule(
        "sending it now",
        lambda c: _sets_in(c) and (c.start == 0 or any(sign in ":;(>-." for sign in c.break_before)),
        Use.PROMISE,
    ),
    Rule("a promise goes on", lambda c: _sets_in(c) and c.last is not None and c.last.kind is Use.PROMISE, Use.PROMISE),
)


# --- "sent" ---


def _has_sent(c: Clause, subject: str) -> bool:
    """Whether "have" makes a perfect of the participle, with the subject close before it."""
    if not c.verb.participle or c.previous not in ("have", "has"):
        return False
    return c.earlier == subject or subject in c.tokens[max(c.first, c.back - 2) : c.back]


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


_PAST: tuple[Rule[Clause, Use], ...] = (
    Rule("I have sent", lambda c: _has_sent(c, "i") or (c.earlier == "we" and _has_sent(c, "we")), Use.REPORT),
    Rule("you have sent", lambda c: _has_sent(c, "you"), Use.NONE),
    Rule("they have sent", lambda c: c.verb.participle and c.previous in ("have", "has"), Use.DONE),
    Rule("it has been sent", lambda c: c.verb.participle and _is_passive(c), Use.DONE),
    Rule("it is sent", lambda c: c.verb.participle and _is_state(c), Use.STATE),
    Rule("a passive without end", lambda c: c.verb.participle and c.previous in WORDS.be_forms, Use.NONE),
    Rule("I sent", lambda c: c.verb.past and c.previous in WORDS.speakers, Use.PAST),
    Rule(
        "joined to a completed act",
        lambda c: (
            c.opens and c.verb.participle and c.joined_kind in (Use.REPORT, Use.DONE, Use.PAST, Use.STATE, Use.FRAGMENT)
        ),
        Use.AS_BEFORE,
    ),
    Rule(
        "sent at once",
        lambda c: (
            c.opens
            and c.verb.participle
            and not _has_finite_word(c, c.at + 1, c.end)
            and c.opener not in WORDS.conditional_openers
        ),
        Use.FRAGMENT,
    ),
    Rule("a past form opens the clause", lambda c: c.opens, Use.NONE),
    Rule(
        "sent after a pronoun or article",
        lambda c: not c.verb.participle or c.previous in WORDS.noun_substitutes or c.previous in WORDS.determiners,
        Use.NONE,
    ),
    Rule("sent after a preposition", lambda c: c.previous in _PREPOSITIONS, Use.NONE),
    Rule("sent with an object", _takes_object, Use.NONE),
    Rule("describes a noun", _other_verb_governs, Use.NONE),
    Rule("sent after a conjunction or modal", lambda c: c.previous in _BEFORE_FINITE, Use.NONE),
    Rule(
        "another verb is finite",
        lambda c: _has_finite_word(c, c.first, c.at) or _has_finite_word(c, c.at + 1, c.end),
        Use.NONE,
    ),
    Rule("recall sent", lambda c: True, Use.FRAGMENT),
)


# --- "send" ---


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
    verbs = (VERBS.forms.get(c.tokens[at]) for at in range(1, c.start) if c.tokens[at - 1].endswith("s"))
    return any(verb is not None and verb.base for verb in verbs)


def _orders(c: Clause) -> bool:
    """Whether a base form that opens its clause reads as an order rather than as a noun."""
    at, after = c.at, c.next_word
    third = c.tokens[at + 2] if at + 2 < c.end else ""
    if after in HELPING_VERBS:
        return False
    if c.tokens[at] not in WORDS.noun_like:
        # "Duplicate submissions are ignored"
        return third not in WORDS.be_forms or after in WORDS.determiners or after in WORDS.noun_substitutes
    if at + 2 == c.end and after in WORDS.noun_like and "!" in c.sentence.text:
        return False
    # "Box 6 would not have been lost"
    bare = after not in WORDS.determiners and after not in WORDS.object_pronouns
    if bare and not HELPING_VERBS.isdisjoint(c.tokens[at + 1 : c.end]):
        return False
    comma = "," in c.sentence.before[at]
    if not after:
        # "..., file, ..." inside a chain of orders
        return at > 0 and comma
    if after in ("of", "for", "from") or after in WORDS.clause_openers:
        return False
    if after in ("to", "in", "at", "by", "with", "on") and third and third not in WORDS.determiners:
        return comma or c.verb.strength == "light" or c.verb.lemma in WORDS.travel_verbs
    following = VERBS.forms.get(after)
    if following is None:
        return True
    participle = (following.participle or following.third) and not following.base
    return not participle and (not following.ing or after in WORDS.noun_like)


def _joins_base(c: Clause) -> bool:
    kinds = (Use.PROMISE, Use.INSTRUCTION, Use.OTHERS)
    return c.opens and c.at > c.start and c.joined_kind in kinds


_BASE: tuple[Rule[Clause, Use], ...] = (
    Rule("I will send", lambda c: c.previous in WORDS.firm_modals and c.earlier in WORDS.speakers, Use.PROMISE),
    Rule(
        "you can send",
        lambda c: c.earlier == "you" and (c.previous in WORDS.firm_modals or c.previous in ("should", "must")),
        Use.INSTRUCTION,
    ),
    Rule("they will send", lambda c: c.previous in WORDS.firm_modals and c.earlier != "", Use.OTHERS),
    Rule("send after a modal", lambda c: c.previous in WORDS.firm_modals or c.previous in WORDS.soft_modals, Use.NONE),
    Rule("I am going to send", lambda c: (c.earlier, c.previous) == ("going", "to"), Use.PROMISE),
    Rule(
        "you need to send",
        lambda c: c.previous == "to" and c.earlier in WORDS.need_verbs and "you" in c.tokens[c.first : c.back],
        Use.INSTRUCTION,
    ),
    Rule("to send", lambda c: c.previous == "to", Use.NONE),
    Rule("let me send", lambda c: c.previous in ("me", "us") and c.earlier == "let", Use.PROMISE),
    Rule(
        "what I will do is send",
        lambda c: (c.earlier, c.previous) == ("do", "is") and not WORDS.speakers.isdisjoint(c.tokens[c.first : c.back]),
        Use.PROMISE,
    ),
    Rule("what I call", lambda c: c.previous in WORDS.speakers and c.earlier == "what", Use.NONE),
    Rule("I send", lambda c: c.previous in WORDS.speakers, Use.PROMISE),
    Rule("you send", lambda c: c.previous == "you" and _you_alone(c), Use.INSTRUCTION),
    Rule("that you send", lambda c: c.previous == "you", Use.NONE),
    Rule(
        "a relative or a numbered noun",
        lambda c: c.opens and (c.opener in ("who", "which") or _numbered_noun(c)),
        Use.NONE,
    ),
    Rule(
        "joined to a base form",
        lambda c: _joins_base(c) and c.joined is not None and c.joined.verb.base,
        Use.AS_BEFORE,
    ),
    Rule("joined to another form", _joins_base, Use.ORDER),
    Rule("joined to a plural's verb", lambda c: c.opens and _plural_subject(c), Use.NONE),
    Rule("send it", lambda c: c.opens and _orders(c), Use.ORDER),
    Rule(
        "they send",
        lambda c: not c.opens and c.previous in ("they", "people", "team", "colleagues", "everyone"),
        Use.OTHERS,
    ),
)

# --- "sends" ---

_THIRD: tuple[Rule[Clause, Use], ...] = (
    Rule(
        "joined to another third person",
        lambda c: c.opens and c.at > c.start and c.joined_kind is Use.OTHERS,
        Use.OTHERS,
    ),
    Rule("and sends you", lambda c: c.opens and c.at > c.start and c.next_word in WORDS.object_pronouns, Use.OTHERS),
    Rule("a plural noun", lambda c: c.opens or c.previous[:1].isdigit() or c.previous in _BEFORE_NOUNS, Use.NONE),
    Rule("the desk sends", lambda c: True, Use.OTHERS),
)

CLAUSE_RULES = {"ing": _ING, "past": _PAST, "base": _BASE, "third": _THIRD}
