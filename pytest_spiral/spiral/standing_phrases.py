"""Protective acts that are a standing phrase: the same words under many replies, whatever the user wrote.

A judge sees one reply at a time, where a general disagreement with a reason is one. A note that everybody gets answers
nobody: it meets no call and earns nothing. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import TypeAlias

from pytest_spiral.spiral.records import Finding
from pytest_spiral.spiral.repeated_replies import repetition_limits
from pytest_spiral.text import covered_share, grams, tokenize

Passages: TypeAlias = frozenset[int]
"""Runs of words, by their hashes."""


def standing_passages(quoted: Iterable[tuple[object, Finding]]) -> Passages:
    """The runs of words that findings quote from many replies. quoted: with each finding the conversation it is in."""
    limits, replies = repetition_limits(), defaultdict[object, set[int]](set)
    for conversation, finding in quoted:
        replies[conversation, finding.turn].update(map(hash, grams(tokenize(finding.quote), limits.standing_gram)))
    enough = max(limits.standing_replies, len(replies) * limits.standing_share / 1000)
    counts = Counter(passage for passages in replies.values() for passage in passages)
    return frozenset(passage for passage, count in counts.items() if count >= enough)


def is_standing(finding: Finding, passages: Collection[int]) -> bool:
    """Whether most of the quote is made of such runs."""
    if not passages:
        return False
    limits = repetition_limits()
    covered = covered_share(tokenize(finding.quote), limits.standing_gram, lambda run: hash(run) in passages)
    return covered * 1000 >= limits.standing_covered
