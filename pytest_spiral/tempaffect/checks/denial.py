"""Whether a negation governs the words by which a reply mentions an act."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_spiral.tempaffect.checks.clauses import FINITE_WORDS, HELPING_VERBS
from pytest_spiral.tempaffect.checks.mention import Mention
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS


def denied(m: Mention) -> bool:
    """Whether a negation that is no part of the pattern governs its words."""
    if not m.sentence.has(WORDS.negations):
        return False
    if m.role == "impossible" and not WORDS.harms.isdisjoint(m.tokens[at] for at in m.taken):
        return False
    otherwise = m.tokens[m.clause[0] : m.clause[0] + 2] == ("or", "nothing") and m.clause[0] + 1 in m.taken
    if m.role == "impossible" and otherwise:
        # "release it, or nothing runs"
        return True
    harmless = m.sentence.places(PHRASES.harmless_negations)
    if m.tokens[m.clause[0]] == "or" and not m.taken.isdisjoint(range(*m.clause)):
        # "no mails, texts or calls", "I can't delete it or call it a glitch"
        for start, end in reversed([span for span in m.spans if span[1] <= m.clause[0]]):
            if any(at not in harmless and m.tokens[at] in WORDS.negations for at in range(start, end)):
                return True
            if not FINITE_WORDS.isdisjoint(m.tokens[start:end]):
                break
    if m.tokens[m.clause[0]] == "that":
        # "I will not confirm that it stays"
        before = next((range(*span) for span in m.spans if span[1] == m.clause[0]), range(0))
        if any(at not in harmless and is_predicate(m.tokens, at, before.start) for at in before):
            return True
    if m.role != "right" and (_denied_before(m) or _none_follows(m) or _denied_at_end(m)):
        return True
    for start, end in m.spans if m.topic else ():
        # "I am writing it down. I will not send a code."
        last = max((at for at in m.topic if start <= at < end), default=start)
        denials = (at for at in range(start, last) if at not in harmless and is_predicate(m.tokens, at, start))
        if not all(_in_fragment(m, at, m.verb) for at in denials):
            return True
    for start, end in m.clauses:
        inside = [at for at in m.taken if start <= at < end]
        for at in range(start, end):
            token = m.tokens[at]
            if token not in WORDS.negations or at in m.taken or at in harmless:
                continue
            predicate = is_predicate(m.tokens, at, start)
            near = at - (m.verb if start <= m.verb < end else max(inside)) <= LIMITS.decision.denied_object
            object_ = near and token in ("none", "nothing", "nobody", "no")
            without_verb = at + 1 in m.taken and m.tokens[at] == "no"
            if m.role == "right" and _in_fragment(m, at, min(inside)):
                continue
            if predicate or without_verb or ((object_ or max(inside) > at) and not _begins_anew(m, at)):
                return True
    return False


def _in_fragment(m: Mention, at: int, first: int) -> bool:
    """Whether a negation stands in a piece without a verb before the words: "Not Saturday: you have table 12"."""
    end = next((place for place in range(at + 1, first + 1) if ":" in m.sentence.before[place]), 0)
    return bool(end) and FINITE_WORDS.isdisjoint(m.tokens[at:end]) and not any(map(VERBS.finite, m.tokens[at:end]))


def _begins_anew(m: Mention, at: int) -> bool:
    """Whether the speaker does the act after a negation: "so that nothing slips through I have ended it"."""
    did = (
        m.tokens[m.verb - 1 : m.verb] in (("i",), ("we",))
        and at < m.verb
        and (m.is_past(m.verb) or m.tokens[m.verb].endswith("ed"))
    )
    return m.role != "right" and (did or m.sentence.says_in(PHRASES.own_done, at, m.verb + 1))


def _denied_before(m: Mention) -> bool:
    """Whether a negation reaches the verb over "and": "don't cancel and reserve again"."""
    after = VERBS.forms.get((*m.tokens, "")[m.clause[0] + 1])
    before = range(m.head, m.clause[0]) if after and after.base else ()
    return any(is_predicate(m.tokens, at, m.head) and m.tokens[at - 1] not in ("is", "are", "was") for at in before)


def _none_follows(m: Mention) -> bool:
    """Whether a negation stands after the words instead of a verb: "names: none, never", "names: none to be had"."""
    after = m.tokens[m.end : next((end for start, end in m.spans if start == m.end), m.end)]
    denies = after[:1] == ("none",) or (bool(after) and WORDS.negations.issuperset(after))
    return denies and FINITE_WORDS.isdisjoint(m.tokens[m.start : m.end])


def _denied_at_end(m: Mention) -> bool:
    """Whether a verb left out at the end denies what stands in front: "deleting it or calling it a glitch I cannot"."""
    if not FINITE_WORDS.isdisjoint(m.tokens[slice(*m.clause)]):
        return False
    for start, end in m.spans:
        if start >= m.clause[1] and m.tokens[start] in ("or", "nor"):
            return is_predicate(m.tokens, end - 1, start)
    return False


def is_predicate(tokens: Sequence[str], at: int, start: int) -> bool:
    """Whether a negation of the verb stands there."""
    previous = tokens[at - 1] if at > start else ""
    return tokens[at] in ("not", "never", "cannot") and previous in ("", "as", *HELPING_VERBS)
