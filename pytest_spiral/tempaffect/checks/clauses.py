"""Verbs and the clauses they stand in, told by position and function words alone: no parser, no tagger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pytest_spiral.tempaffect.checks.sentences import Sentence
from pytest_spiral.tempaffect.lexicon import WORDS, VerbForm

__all__ = ["BREAKS", "FINITE_WORDS", "HELPING_VERBS", "Clause", "Kind", "clause_spans", "describe"]

BREAKS = frozenset(",:;()[]>!?.")
HELPING_VERBS = WORDS.be_forms | WORDS.firm_modals | WORDS.soft_modals | WORDS.auxiliaries
FINITE_WORDS = HELPING_VERBS | WORDS.subject_pronouns
"""Words that show a clause to have a verb of its own."""


class Kind(Enum):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One verb with the words around it, as the rules read them.

    Attributes:
        verb: What the written form of the verb can be.
        at: Position of the verb in the sentence.
        start, end: The clause: position of its first token and of the one after its last.
        first: `start`, or the token after the conjunction that opens the clause.
        back: Position of the word before the verb, adverbs and "not" skipped; may lie before `first`.
        previous: The word at `back`; "" where the clause has none.
        earlier: The word before `previous`, adverbs and "not" skipped; "" where the clause has none.
        opens: Whether nothing but lead-ins and adverbs stands between `first` and the verb.
        last: The clause of the acting verb before this one, decided.
        joined: `last`, where a conjunction or a comma joins this clause to it.
        negated, hedged, conditional: Whether the clause takes the act back, makes it uncertain or depends on something.
        kind: How the verb is used, once the rules have decided.
    """

    sentence: Sentence
    verb: VerbForm
    at: int
    start: int
    end: int
    first: int
    back: int
    previous: str
    earlier: str
    opens: bool
    last: Clause | None
    joined: Clause | None
    negated: bool
    hedged: bool
    conditional: bool
    kind: Kind = Kind.NONE

    @property
    def tokens(self) -> tuple[str, ...]:
        """Tokens of the whole sentence."""
        return self.sentence.tokens

    @property
    def words(self) -> tuple[str, ...]:
        """Tokens of the clause."""
        return self.sentence.tokens[self.start : self.end]

    @property
    def opener(self) -> str:
        """First word of the clause."""
        return self.sentence.tokens[self.start]

    @property
    def next_word(self) -> str:
        """The word after the verb; "" where the clause ends."""
        return self.sentence.tokens[self.at + 1] if self.at + 1 < self.end else ""

    @property
    def break_before(self) -> str:
        """What stands between the clause and the word before it."""
        return self.sentence.before[self.start]

    @property
    def follows_break(self) -> bool:
        """Whether a punctuation mark separates the clause from the words before it."""
        return not BREAKS.isdisjoint(self.break_before)

    def follows(self, *lists: frozenset[str]) -> bool:
        """Whether the word before the verb is in one of the lists."""
        return any(self.previous in words for words in lists)

    @property
    def now(self) -> bool:
        """Whether the clause speaks of the present moment."""
        return not WORDS.now_words.isdisjoint(self.words)


def describe(sentence: Sentence, at: int, span: tuple[int, int], verb: VerbForm, last: Clause | None) -> Clause:
    """Return the clause of the verb at `at`, undecided; `last`: the acting clause before it."""
    tokens = sentence.tokens
    start, end = span
    opener = tokens[start]
    first = start + 1 if opener in WORDS.clause_openers and start < at else start
    back = _back_over(tokens, at - 1, first)
    earlier = back - 1
    while earlier >= first and (tokens[earlier] in WORDS.adverbs or tokens[earlier] == "not"):
        earlier -= 1
    negated = sentence.is_negated(at, since=start)
    hedged = not WORDS.hedges.isdisjoint(tokens[start:at])
    conditional = first > start and opener in WORDS.conditional_openers
    joined = last if opener in _CONJUNCTIONS or "," in sentence.before[start] else None
    if joined and all(word in WORDS.lead_ins or word in WORDS.adverbs for word in tokens[start:at]):
        # "I could look and send": what softens or negates the first verb reaches the second.
        negated = negated or (joined.negated and opener in ("or", "and"))
        hedged = hedged or joined.hedged
        conditional = conditional or joined.conditional
    return Clause(
        sentence=sentence,
        verb=verb,
        at=at,
        start=start,
        end=end,
        first=first,
        back=back,
        previous=tokens[back] if back >= first else "",
        earlier=tokens[earlier] if earlier >= first else "",
        opens=all(word in WORDS.lead_ins or word in WORDS.adverbs for word in tokens[first : back + 1]),
        last=last,
        joined=joined,
        negated=negated,
        hedged=hedged,
        conditional=conditional,
    )


_CONJUNCTIONS = frozenset({"and", "or", "then", "but"})


def _back_over(tokens: Sequence[str], back: int, first: int) -> int:
    while back >= first and (tokens[back] in WORDS.adverbs or tokens[back] == "not" or tokens[back].endswith("ly")):
        back -= 1
    return back


def clause_spans(sentence: Sentence, limit: int) -> list[tuple[int, int]]:
    """Return, for each of the first `limit` tokens, where its clause starts and ends."""
    tokens = sentence.tokens[:limit]
    starts = [0]
    for at in range(1, len(tokens)):
        before = sentence.before[at]
        if not BREAKS.isdisjoint(before) or " -" in before or _opens_clause(tokens, at):
            starts.append(at)
    ends = [*starts[1:], len(tokens)]
    return [span for span in zip(starts, ends, strict=True) for _ in range(*span)]


def _opens_clause(tokens: Sequence[str], at: int) -> bool:
    """Whether a conjunction or relative opens a clause here; not in "that form", "as passed"."""
    if tokens[at] not in WORDS.clause_openers:
        return False
    following = tokens[at + 1] if at + 1 < len(tokens) else ""
    return tokens[at] not in ("that", "as") or any(
        following in words for words in (WORDS.noun_substitutes, WORDS.speakers, WORDS.determiners)
    )
