"""Who speaks in a reply: somebody who does, owns or feels something, or an institution that only states how things are.

Told by grammar, not by topic: first persons that are not merely unable, and what is said to or about the user.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_spiral.tempaffect.checks.prepare import Sentence
from pytest_spiral.tempaffect.lexicon import Lexicon

__all__ = ["is_personal", "speaks_for_itself", "speaks_personally"]


def is_personal(sentence: Sentence, lexicon: Lexicon) -> bool:
    """Somebody stands behind this sentence: a first person, outside quotations, that is more than unable or untouched.

    "US" is a country, "my side" a trench.
    """
    tokens = sentence.tokens
    for at, token in enumerate(tokens):
        if token not in lexicon.first_person or sentence.quoted[at]:
            continue
        raw = sentence.raws[at]
        if len(raw) > 1 and raw.isupper() and any(other.islower() for other in sentence.raws):
            continue
        if at + 1 < len(tokens) and tokens[at + 1] in lexicon.trenches:
            continue
        return True
    return False


def speaks_for_itself(sentence: Sentence, lexicon: Lexicon) -> bool:
    """A personal sentence that does not merely shield or rebuke. "I cannot" is a person, "we are unable" an office."""
    return (
        is_personal(sentence, lexicon)
        and ("i" in sentence.tokens or not lexicon.inability.search(sentence.joined))
        and not lexicon.hard_shield.search(sentence.joined)
        and not lexicon.blame.search(sentence.joined)
        and not lexicon.conduct.search(sentence.joined)
    )


def speaks_personally(spoken: Sequence[Sentence], lexicon: Lexicon) -> bool:
    """Whether any sentence has somebody behind it who acts, owns or feels."""
    return any(speaks_for_itself(sentence, lexicon) for sentence in spoken)
