"""The same texts again: replies made of other replies, and protective acts that stand under many of them.

Judges see a reply in its conversation only, where a sentence that fits every message is no fault, and a general
disagreement with a reason is one. A note that everybody gets answers nobody: it meets no call and earns nothing. Pure.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import TypeAlias

from pytest_spiral.resources import data_root
from pytest_spiral.spiral.records import Finding
from pytest_spiral.tables import PerMille, Positive, Table, read_table
from pytest_spiral.text import Gram, clean, covered_share, grams, tokenize

Passages: TypeAlias = frozenset[int]
"""Runs of words, by their hashes."""
_WORD = re.compile(r"[^\W_]+")


class RepetitionLimits(Table):
    """`repeated_replies.toml`, which says what each limit means."""

    gram: Positive
    in_one_other: PerMille
    in_all_others: PerMille
    repeated_at_most: PerMille
    replies_at_least: Positive
    most_replies: Positive
    most_chars: Positive
    most_others: Positive
    standing_covered: PerMille
    standing_gram: Positive
    standing_share: PerMille
    standing_replies: Positive


class _File(Table):
    limits: RepetitionLimits


@cache
def repetition_limits() -> RepetitionLimits:
    """The shipped limits."""
    return read_table(_File, data_root() / "spiral" / "repeated_replies.toml").limits


def repeated_share(replies: Sequence[str]) -> float | None:
    """Share of replies, 0..1, that are mostly or wholly made of others; None for too few replies to say."""
    limits = repetition_limits()
    step = -(-len(replies) // limits.most_replies) or 1
    texts = Counter(tuple(_WORD.findall(clean(reply[: limits.most_chars]).lower())) for reply in replies[::step])
    if texts.total() < limits.replies_at_least:
        return None
    # A text that is there twice is repeated; the others are compared with each text once.
    first: dict[int, int] = {}
    holders: dict[int, list[int]] = {}
    for number, words in enumerate(texts):
        for run in map(hash, grams(words, limits.gram)):
            if (other := first.setdefault(run, number)) != number:
                found = holders.setdefault(run, [other])
                if found[-1] != number and len(found) < limits.most_others:
                    found.append(number)
    repeated = sum(
        count for number, (words, count) in enumerate(texts.items()) if count > 1 or _is_made_of(number, words, holders)
    )
    return repeated / texts.total()


def _is_made_of(number: int, words: Gram, holders: dict[int, list[int]]) -> bool:
    """Whether these words are mostly those of one other text, or nearly all those of other texts.

    number: of the text. holders: by the hash of a run of words that several texts have, numbers of the first few.
    """
    limits = repetition_limits()
    size = limits.gram
    in_all = 1000 * covered_share(words, size, lambda run: hash(run) in holders)
    if in_all >= limits.in_all_others or in_all < limits.in_one_other:
        # What one other text covers, all of them cover.
        return in_all >= limits.in_all_others
    runs = map(hash, grams(words, size))
    others = Counter(other for run in runs for other in holders.get(run, ()) if other != number)
    nearest = others.most_common(1)[0][0]
    in_one = 1000 * covered_share(words, size, lambda run: nearest in holders.get(hash(run), ()))
    return in_one >= limits.in_one_other


def standing_passages(quoted: Iterable[tuple[object, Finding]]) -> Passages:
    """The runs of words that findings quote from many replies. quoted: with each finding the conversation it is in."""
    limits, replies = repetition_limits(), defaultdict[object, set[int]](set)
    for conversation, finding in quoted:
        # What is not in a reply says nothing about what the model repeats.
        if finding.evidence != "unlocated":
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
