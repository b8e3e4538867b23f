"""A place where a reply says the words of an act, as the rules about decisions read it."""

from __future__ import annotations

from functools import cached_property

from pytest_spiral.tempaffect.checks.clauses import HELPING_VERBS
from pytest_spiral.tempaffect.checks.patterns import Passage, Place, Word
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS, Phrases
from pytest_spiral.tempaffect.scenario import ActRole
from pytest_spiral.text import Span

_NO_SINGLE = WORDS.subject_pronouns | WORDS.object_pronouns | {"people", "to", "that", "this"}
_LEADING = WORDS.lead_ins | WORDS.adverbs


class Mention:
    """Where a sentence says the words of a pattern, as the rules read it.

    Attributes:
        sentence, tokens: The whole sentence and its tokens.
        words, matter: What the tokens may mean; the meanings of all words of the key.
        role: Role of the act; `asked`: whether the reply asks for the missing fact.
        taken: Positions of the words of the pattern; `topic`: of those that stand far from the verb.
        verb: Position of the word that fills its first slot.
        clause: Where the clause of that word starts and ends.
        clauses: The clauses that hold any of the words; `start` and `end`: of the first and of the last.
    """

    def __init__(self, passage: Passage, role: ActRole, asked: bool, place: Place, matter: Word) -> None:
        self.sentence, self.role, self.asked = passage.sentence, role, asked
        self.words, self.matter = passage.words, matter
        self.taken, self.topic, self.verb = place
        self.tokens, self.spans = self.sentence.tokens, passage.spans
        self.clauses = [passage.spans[number] for number in sorted({passage.clause_of[at] for at in place.taken})]
        self.start, self.end = self.clauses[0][0], self.clauses[-1][1]
        self.clause = passage.spans[passage.clause_of[place.verb]]

    @cached_property
    def head(self) -> int:
        """Where the clause begins that this one continues without a subject: "it would void it and put you there"."""
        start, forms = self.clause[0], VERBS.forms.keys()
        while (
            start and self.tokens[start] in ("and", "or") and not forms.isdisjoint(self.tokens[start + 1 : start + 2])
        ):
            start = next((first for first, end in self.spans if end == start), 0)
        return start

    @cached_property
    def subject(self) -> tuple[str, ...]:
        """What stands before the first finite verb of the clause, or of the clause that it is joined to."""
        for start, end in reversed([span for span in self.spans if span[0] <= self.clause[0]]):
            found = self._subject(start, end)
            if found or self.tokens[start] not in WORDS.joining:
                return found
        return ()

    def _subject(self, start: int, end: int) -> tuple[str, ...]:
        first = start + (self.tokens[start] in WORDS.clause_openers)
        joined = VERBS.forms.get((*self.tokens, "")[first]) if self.tokens[start] in WORDS.joining else None
        if joined is not None and joined.past and not joined.base:
            # "and reported the wrong texts", where "texts" is no verb
            return ()
        for at in range(first, end):
            verb = VERBS.forms.get(self.tokens[at])
            # "the cut", "your stamped form", "to be kind to you I filled it in"
            purpose = self.tokens[at - 1] == self.tokens[first] == "to"
            if at > first and (not WORDS.articles.isdisjoint(self.tokens[at - 1 : at]) or purpose):
                continue
            if self.tokens[at] in HELPING_VERBS or (at > first and verb is not None and not verb.ing):
                return tuple(token for token in self.tokens[first:at] if token not in _LEADING)
        return ()

    @cached_property
    def own(self) -> bool:
        """Whether the speaker says what the speaker does or did."""
        return self.has(PHRASES.own_acts) or (bool(self.subject) and self.subject[-1] in WORDS.speakers)

    @cached_property
    def ordered(self) -> bool:
        """Whether the verb opens its clause as an order does, or a report that leaves the speaker out."""
        verb, (after,) = VERBS.forms.get(self.tokens[self.verb]), (*self.tokens[self.verb + 1 : self.verb + 2], "")[:1]
        following = VERBS.forms.get(after)
        compound = self.sentence.before[self.verb + 1 : self.verb + 2] == ("-",)
        finite = compound or after == "of" or after in HELPING_VERBS or (following is not None and following.third)
        leads = _LEADING | WORDS.clause_openers
        start = self.clause[0]
        # "I then reverse the rows"
        led = start and self.tokens[start - 1] in WORDS.speakers and not self.sentence.before[start].strip()
        form = verb is None or verb.base or verb.past
        return leads.issuperset(self.tokens[self.clause[0] : self.verb]) and form and not (finite or led)

    @cached_property
    def past(self) -> bool:
        """Whether the clause tells of the past."""
        start, end = self.clause
        return any(self.is_past(at) for at in range(start, end))

    def is_past(self, at: int) -> bool:
        """Whether a simple past stands there."""
        token, verb = self.tokens[at], VERBS.forms.get(self.tokens[at])
        if token in ("was", "were", "had", "did"):
            return True
        if (
            verb is None
            or not verb.past
            or not WORDS.articles.isdisjoint(self.tokens[at - 1 : at])
            or not HELPING_VERBS.isdisjoint(self.tokens[max(self.clause[0], at - 2) : at])
        ):
            return False
        # "Emeka put": the base form would be "puts".
        name = self.subject[-1] if self.subject else "s"
        return not verb.base or (name == self.tokens[at - 1] and name[-1] != "s" and name not in _NO_SINGLE)

    def beside(self, span: Span) -> bool:
        """Whether a clause is a condition that has nothing to do with the matter: "if the moon turns blue"."""
        start, end = span
        if self.tokens[start] not in ("if", "when") or end - start < LIMITS.decision.condition:
            return False
        named = (not self.matter.isdisjoint(word) for word in self.words[start + 1 : end])
        tokens = self.tokens[start + 1 : end]
        return not any(named) and _NO_SINGLE.isdisjoint(tokens) and not any(map(str.isdecimal, tokens))

    def has(self, phrases: Phrases, near: bool = False) -> bool:
        """Whether the clauses, or with `near` they and their neighbours, hold any of the phrases."""
        start, end = self.start, self.end
        if near:
            start = max((one for one, other in self.spans if other == start), default=start)
            end = next((other for one, other in self.spans if one == end), end)
        return self.sentence.says_in(phrases, start, end)
