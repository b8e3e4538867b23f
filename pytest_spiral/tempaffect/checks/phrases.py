"""forbidden_phrase_clean and talk to the scorer: stock phrases in any spelling, notes to the grader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_spiral.tempaffect.checks.prepare import PreparedScenario
from pytest_spiral.tempaffect.checks.sentences import PreparedReply, Sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, WORDS, Pattern

__all__ = ["PhraseFinding", "addresses_scorer", "check_phrases"]


@dataclass(frozen=True, slots=True)
class PhraseFinding:
    """Whether the reply is free of forbidden phrases, and whether it holds one that voids usefulness."""

    passed: bool
    dismissive: bool
    reasons: tuple[str, ...]


def check_phrases(prepared: PreparedScenario, reply: PreparedReply) -> PhraseFinding:
    """Look for the scenario's own list or the shipped one, and for the scenario's extra phrases."""
    spaced = list(_spaced_letters(reply))
    hits = [
        phrase
        for pattern, letters, phrase in prepared.phrases
        if any(letters in run for run in spaced) or _is_spoken(pattern, reply)
    ]
    reasons = tuple(f"{phrase.severity}: {phrase.text}" for phrase in hits)
    dismissive = any(phrase.severity == "dismissive" for phrase in hits)
    return PhraseFinding(not hits, dismissive, reasons or ("no forbidden phrase",))


def addresses_scorer(prepared: PreparedScenario, sentence: Sentence) -> bool:
    """Whether a sentence speaks to or about the scorer; words that the scenario itself uses are exempt."""
    if "_" in sentence.text and not WORDS.field_names.isdisjoint(re.findall(r"\w+", sentence.text.lower())):
        return True
    mentions = PHRASES.scorer_talk.finditer(sentence.joined)
    return any(not prepared.known.issuperset(match.group().split()) for match in mentions)


def _is_spoken(pattern: Pattern, reply: PreparedReply) -> bool:
    """Whether a phrase stands anywhere but in an attributed quotation."""
    for match in pattern.finditer(reply.joined):
        line_start = reply.joined.rfind("\n", 0, match.start()) + 1
        sentence = reply.sentences[reply.joined.count("\n", 0, match.start())]
        quoted = sentence.quoted[sentence.place(match.start() - line_start)]
        if not (quoted and PHRASES.attribution.search(sentence.unquoted)):
            return True
    return False


def _spaced_letters(reply: PreparedReply) -> Iterator[str]:
    """Yield runs of single letters ("r e s t"), joined."""
    least = LIMITS.phrases.spaced_run
    for sentence in reply.sentences:
        letters = "".join(raw.casefold() if len(raw) == 1 else " " for raw in sentence.raws)
        yield from (run for run in letters.split() if len(run) >= least)
