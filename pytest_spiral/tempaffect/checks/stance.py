"""Who speaks in a reply: somebody who does, owns or feels something, or an institution that only states how things are.

Told by grammar, not by topic: first persons that are not merely unable.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_spiral.tempaffect.checks.sentences import Sentence
from pytest_spiral.tempaffect.lexicon import PHRASES, WORDS

__all__ = ["is_accusing", "is_personal", "speaks_personally"]


def is_personal(sentence: Sentence) -> bool:
    """Whether a first person stands outside quotations; "US" is a country, "my department" an institution."""
    tokens = sentence.tokens
    for at, token in enumerate(tokens):
        if token not in WORDS.first_person or sentence.quoted[at]:
            continue
        raw = sentence.raws[at]
        country = len(raw) > 1 and raw.isupper() and any(other.islower() for other in sentence.raws)
        if not country and not WORDS.institution_nouns.intersection(tokens[at + 1 : at + 2]):
            return True
    return False


def is_accusing(sentence: Sentence) -> bool:
    """Whether the sentence blames, corrects or disclaims; what else it holds is no help."""
    return sentence.says(PHRASES.blame) or sentence.says(PHRASES.disclaimers) or sentence.says(PHRASES.tone_policing)


def speaks_personally(sentences: Iterable[Sentence]) -> bool:
    """Whether any sentence has somebody behind it who acts, owns or feels.

    "I cannot" is a person, "we are unable" an office.
    """
    inability = PHRASES.inability
    return any(
        is_personal(sentence) and ("i" in sentence.tokens or not sentence.says(inability)) and not is_accusing(sentence)
        for sentence in sentences
    )
