"""The same texts again: replies made of other replies, and protective acts that stand under many of them.

Judges see a reply in its conversation only, where a sentence that fits every message is no fault, and a general
disagreement with a reason is one. A note that everybody gets answers nobody: it meets no call and earns nothing. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import TypeAlias

from pytest_spiral.resources import data_root
from pytest_spiral.spiral.records import Finding
from pytest_spiral.spiral.toml_tables import Numbers, Table, read_table
from pytest_spiral.text import Gram, covered_share, grams, tokenize

Passages: TypeAlias = frozenset[int]
"""Runs of words, by their hashes."""


class _Rules(Table):
    limits: Numbers


@cache
def repetition_limits() -> Numbers:
    """The shipped limits."""
    return read_table(_Rules, data_root() / "spiral" / "repeated_replies.toml").limits


def repeated_share(replies: Sequence[str]) -> float | None:
    """Share of replies, 0..1, that are mostly or wholly made of others; None for too few replies to say."""
    limits = repetition_limits()
    step = -(-len(replies) // limits["most_replies"]) or 1
    texts = Counter(tuple(tokenize(reply[: limits["most_chars"]])) for reply in replies[::step])
    if texts.total() < limits["replies_at_least"]:
        return None
    # A text that is there twice is repeated; the others are compared with each text once. Most runs are in one.
    seen, shared = set[Gram](), set[Gram]()
    for words in texts:
        runs = set(grams(words, limits["gram"]))
        shared |= runs & seen
        seen |= runs
    holders: dict[Gram, list[int]] = {}
    for number, words in enumerate(texts):
        for gram in shared.intersection(grams(words, limits["gram"])):
            if len(found := holders.setdefault(gram, [])) < limits["most_others"]:
                found.append(number)
    repeated = sum(
        count for number, (words, count) in enumerate(texts.items()) if count > 1 or _is_made_of(number, words, holders)
    )
    return repeated / texts.total()


def _is_made_of(number: int, words: Gram, holders: dict[Gram, list[int]]) -> bool:
    """Whether these words are mostly those of one other text, or nearly all those of other texts.

    number: of the text. holders: numbers of the texts with a run of words that several have, those of the first few.
    """
    limits = repetition_limits()
    size = limits["gram"]
    others = Counter(other for gram in grams(words, size) for other in holders.get(gram, ()) if other != number)
    if not others:
        return False
    nearest = others.most_common(1)[0][0]
    in_one = covered_share(words, size, lambda gram: nearest in holders.get(gram, ()))
    in_all = covered_share(words, size, holders.__contains__)
    return in_one * 1000 >= limits["in_one_other"] or in_all * 1000 >= limits["in_all_others"]


def standing_passages(quoted: Iterable[tuple[object, Finding]]) -> Passages:
    """The runs of words that findings quote from many replies. quoted: with each finding the conversation it is in."""
    limits, replies = repetition_limits(), defaultdict[object, set[int]](set)
    for conversation, finding in quoted:
        replies[conversation, finding.turn].update(map(hash, grams(tokenize(finding.quote), limits["standing_gram"])))
    enough = max(limits["standing_replies"], len(replies) * limits["standing_share"] / 1000)
    counts = Counter(passage for passages in replies.values() for passage in passages)
    return frozenset(passage for passage, count in counts.items() if count >= enough)


def is_standing(finding: Finding, passages: Collection[int]) -> bool:
    """Whether most of the quote is made of such runs."""
    if not passages:
        return False
    limits = repetition_limits()
    covered = covered_share(tokenize(finding.quote), limits["standing_gram"], lambda run: hash(run) in passages)
    return covered * 1000 >= limits["standing_covered"]
