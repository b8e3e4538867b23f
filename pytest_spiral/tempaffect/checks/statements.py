"""A sentence of a reply in the light of its scenario, and each of its clauses as a candidate for a concrete act."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pytest_spiral.tempaffect.checks.clause_rules import read_clauses
from pytest_spiral.tempaffect.checks.clauses import Clause, Kind
from pytest_spiral.tempaffect.checks.prepare import PreparedScenario
from pytest_spiral.tempaffect.checks.sentences import Sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, WORDS

__all__ = ["Act", "Candidate", "Statement", "is_time", "read_statement"]

Act = tuple[str, str]
"""Form of a concrete act, as scenarios name forms, and the words it was told by."""


@dataclass(frozen=True)
class Statement:
    """A sentence as one scenario reads it.

    Attributes:
        personal: Whether somebody stands behind the reply as a whole.
        clauses: Clauses of the verbs by which somebody acts.
        targets: Number of action targets named in full.
        timed: Whether a number or a word of time occurs.
        vague: Whether anything is offered without commitment.
        acts: The concrete acts, once the rules have decided.
    """

    prepared: PreparedScenario
    sentence: Sentence
    personal: bool
    clauses: tuple[Clause, ...]
    targets: int
    timed: bool
    vague: bool
    acts: tuple[Act, ...] = ()

    @property
    def names_matter(self) -> bool:
        """Whether anything of the scenario is named."""
        return self.targets > 0 or not self.prepared.named_stems.isdisjoint(self.sentence.stems)

    @cached_property
    def general(self) -> bool:
        """Whether the sentence is about everybody rather than about this user."""
        return self.sentence.says(PHRASES.general_rules)

    @cached_property
    def idioms(self) -> set[int]:
        """Positions of idioms."""
        return self.sentence.places(PHRASES.idioms)

    @cached_property
    def purposes(self) -> set[int]:
        """Positions of purposes ("so that you can")."""
        return self.sentence.places(PHRASES.purpose_clauses)

    @cached_property
    def vague_offers(self) -> set[int]:
        """Positions of offers without commitment."""
        return self.sentence.places(PHRASES.vague_offers)


@dataclass(frozen=True)
class Candidate:
    """A clause that may be a concrete act."""

    clause: Clause
    statement: Statement

    @property
    def kind(self) -> Kind:
        """How the verb is used."""
        return self.clause.kind

    @property
    def strength(self) -> str:
        """How much the verb promises."""
        return self.clause.verb.strength

    @cached_property
    def stems(self) -> frozenset[str]:
        """Stems of the clause without the verb."""
        clause, stems = self.clause, self.statement.sentence.stems
        return frozenset((*stems[clause.start : clause.at], *stems[clause.at + 1 : clause.end]))

    @cached_property
    def aimed(self) -> bool:
        """Whether the clause names anything of the scenario besides the verb."""
        return not self.statement.prepared.named_stems.isdisjoint(self.stems)

    @cached_property
    def timed(self) -> bool:
        """Whether the clause holds a number or a word of time besides the verb."""
        clause = self.clause
        return any(map(is_time, (*clause.tokens[clause.start : clause.at], *clause.tokens[clause.at + 1 : clause.end])))

    @cached_property
    def wrong(self) -> bool:
        """Whether the clause tells of something that went wrong."""
        return not WORDS.error_words.isdisjoint(self.clause.words)


def is_time(token: str) -> bool:
    """Whether a token is a number or a word of time."""
    return token[0].isdigit() or token in WORDS.time_words


def read_statement(prepared: PreparedScenario, sentence: Sentence, personal: bool) -> Statement:
    """Return the sentence as the scenario reads it, its acts undecided."""
    window = LIMITS.action.target_window
    return Statement(
        prepared=prepared,
        sentence=sentence,
        personal=personal,
        clauses=read_clauses(sentence),
        targets=sum(sentence.has_near(target, len(target) + window) for target in prepared.targets),
        timed=any(map(is_time, sentence.tokens)),
        vague=sentence.says(PHRASES.vague_offers),
    )
