"""forbidden_phrase_clean (section 2.6) and scorer talk: stock phrases in any spelling, notes to the grader."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_spiral.tempaffect.checks.prepare import PreparedReply, PreparedScenario, Sentence
from pytest_spiral.tempaffect.lexicon import Lexicon

__all__ = ["PhraseFinding", "check_phrases", "is_meta"]


@dataclass(frozen=True, slots=True)
class PhraseFinding:
    """dismissive: a hit of the severity that voids usefulness."""

    passed: bool
    dismissive: bool
    reasons: tuple[str, ...]


def check_phrases(prepared: PreparedScenario, reply: PreparedReply, lexicon: Lexicon) -> PhraseFinding:
    """Section 2.6: the scenario's complete list or the shipped one, and the scenario's extra phrases."""
    hits: list[str] = []
    dismissive = False
    spaced = _spaced_out(reply, lexicon.limits.phrases.spaced_run)
    for pattern, squashed, phrase in prepared.phrases:
        hit = any(run.find(squashed) >= 0 for run in spaced)
        for match in () if hit else pattern.finditer(reply.joined):
            line = reply.joined.count("\n", 0, match.start())
            sentence = reply.sentences[line]
            offset = match.start() - (reply.joined.rfind("\n", 0, match.start()) + 1)
            if not _attributed(sentence, offset, lexicon):
                hit = True
                break
        if hit:
            hits.append(f"{phrase.severity}: {phrase.text}")
            dismissive = dismissive or phrase.severity == "dismissive"
    return PhraseFinding(not hits, dismissive, tuple(hits) or ("no forbidden phrase",))


def is_meta(prepared: PreparedScenario, sentence: Sentence, lexicon: Lexicon) -> bool:
    """Whether a sentence speaks to or about the scorer; words the scenario itself uses are exempt."""
    if "_" in sentence.text and lexicon.meta_fields.search(sentence.text):
        return True
    return any(
        not all(token in prepared.known for token in match.group().split())
        for match in lexicon.meta.finditer(sentence.joined)
    )


def _attributed(sentence: Sentence, offset: int, lexicon: Lexicon) -> bool:
    place = sum(1 for at in sentence.starts if at < offset)
    if not sentence.quoted[place]:
        return False
    outside = " ".join(token for token, quoted in zip(sentence.tokens, sentence.quoted, strict=True) if not quoted)
    return lexicon.attribution.search(outside) is not None


def _spaced_out(reply: PreparedReply, least: int) -> list[str]:
    """Runs of single letters ("r e s t"), joined."""
    found: list[str] = []
    run: list[str] = []
    for sentence in reply.sentences:
        for raw in (*sentence.raws, ""):
            if len(raw) == 1:
                run.append(raw.casefold())
            else:
                if len(run) >= least:
                    found.append("".join(run))
                run = []
    return found
