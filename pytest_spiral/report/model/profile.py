"""How the models write: a description, not a score."""

from __future__ import annotations

from pytest_spiral.report.model.base import EncodableText, Rate, Record
from pytest_spiral.tables import Count
from pytest_spiral.tempaffect.records import CardMode


class WordCounts(Record):
    """Words per reply; null without replies."""

    mean: float | None
    median: float | None
    longest: int | None


class TextStatistics(Record):
    """Length, diversity and readability of replies taken together; null where there are too few words."""

    replies: Count
    words: WordCounts
    words_per_sentence: float | None
    mtld: float | None
    """Measure of textual lexical diversity (McCarthy and Jarvis 2010), at least 1."""
    flesch_kincaid_grade: float | None
    """US school grade (Kincaid and others 1975)."""


class TurnProfile(TextStatistics):
    """The replies at one turn."""

    turn: Count
    """Counted from 0."""


class Repetition(Record):
    """Shares of repeated word sequences, mean over units."""

    ngram: Count
    """Words per sequence."""
    within: Rate | None
    """Sequences that stood in the same unit before."""
    across: Rate | None
    """Different sequences of a unit that stand in another unit as well."""


class Opening(Record):
    """A frequent first few words."""

    text: EncodableText
    n: Count
    share: Rate


class Openings(Record):
    """How replies begin."""

    words: Count
    """Words that count as the opening."""
    distinct: Rate | None
    """Different openings per reply."""
    top: tuple[Opening, ...]


class LexicalProfile(TextStatistics):
    """How one model writes."""

    model: str
    units: Count
    """Conversations, or replies to scenarios."""
    repetition: Repetition
    openings: Openings


class TempAffectProfile(LexicalProfile):
    """How one model writes in one prompting mode."""

    prompting_mode: CardMode


class SpiralProfile(LexicalProfile):
    """How one model writes in conversations."""

    turns: tuple[TurnProfile, ...]


class Profiles(Record):
    """How the models write, by suite."""

    tempaffect: tuple[TempAffectProfile, ...] = ()
    spiral: tuple[SpiralProfile, ...] = ()
