"""A reply as sentences of normalised words, so that every check looks at the same tokens."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS, Phrases, phrase_index
from pytest_spiral.text import Span, clean, count_words, sentences, stem, words

"""Position of the first token and of the one after the last."""

BREAKS = frozenset(",:;()[]>!?.")
_AFTER_THAT = WORDS.noun_substitutes | WORDS.speakers | WORDS.determiners
_QUOTATION_MARKS = re.compile("[\"']")
_SHORTEST_CONDITION = 3
"""Words: "if he asks"."""


@dataclass(frozen=True)
class Sentence:
    """One sentence of a reply.

    Attributes:
        text: The sentence after cleaning.
        tokens: Normalised words.
        raws: The words as written.
        before: What stood between a token and the one before it.
        stems: Stems of the tokens.
        quoted: Whether a token is inside quotation marks.
        question: Whether the sentence ends with a question mark.
    """

    text: str
    tokens: tuple[str, ...]
    raws: tuple[str, ...]
    before: tuple[str, ...]
    stems: tuple[str, ...]
    quoted: tuple[bool, ...]
    question: bool

    @cached_property
    def joined(self) -> str:
        """The tokens with single spaces between."""
        return " ".join(self.tokens)

    @cached_property
    def unquoted(self) -> str:
        """The tokens outside quotation marks with single spaces between."""
        return " ".join(token for token, quoted in zip(self.tokens, self.quoted, strict=True) if not quoted)

    @cached_property
    def _offsets(self) -> list[int]:
        """Where each token begins in `joined`."""
        offsets, offset = [], 0
        for token in self.tokens:
            offsets.append(offset)
            offset += len(token) + 1
        return offsets

    @cached_property
    def clauses(self) -> list[Span]:
        """Where each clause of the scanned tokens starts and ends."""
        tokens = self.tokens[: LIMITS.action.max_scanned_tokens]
        starts = [0]
        for at in range(1, len(tokens)):
            token, before = tokens[at], self.before[at]
            opens = token in WORDS.clause_openers
            if opens and token in ("that", "as"):
                # not in "that form", "as passed"
                opens = not _AFTER_THAT.isdisjoint(tokens[at + 1 : at + 2])
            if opens or " -" in before or not BREAKS.isdisjoint(before) or _ends_condition(tokens, starts[-1], at):
                starts.append(at)
        return list(pairwise((*starts, len(tokens))))

    @cached_property
    def places_of(self) -> dict[str, list[int]]:
        """Where each stem stands."""
        places: dict[str, list[int]] = {}
        for at, found in enumerate(self.stems):
            places.setdefault(found, []).append(at)
        return places

    @cached_property
    def personal(self) -> bool:
        """Whether a first person stands outside quotations; "US" is a country, "my department" an institution."""
        for at, token in enumerate(self.tokens if self.has(WORDS.first_person) else ()):
            if token not in WORDS.first_person or self.quoted[at]:
                continue
            raw = self.raws[at]
            country = len(raw) > 1 and raw.isupper() and any(other.islower() for other in self.raws)
            if not country and not WORDS.institution_nouns.intersection(self.tokens[at + 1 : at + 2]):
                return True
        return False

    @cached_property
    def accusing(self) -> bool:
        """Whether the sentence blames, corrects or disclaims; what else it holds is no help."""
        return self.says(PHRASES.blame) or self.says(PHRASES.disclaimers) or self.says(PHRASES.tone_policing)

    @cached_property
    def speaks_for_itself(self) -> bool:
        """Whether somebody stands behind the sentence who acts, owns or feels, told by grammar, not by topic.

        "I cannot" is a person, "we are unable" an office.
        """
        able = "i" in self.tokens or not self.says(PHRASES.inability)
        return self.personal and able and not self.accusing

    def has(self, words: Set[str]) -> bool:
        """Whether any token is one of `words`."""
        return not words.isdisjoint(self.tokens)

    @cached_property
    def _sayable(self) -> frozenset[str]:
        """The phrase lists of which some phrase has all its words here. Most have none, and need no search."""
        return phrase_index().lists_in(self.tokens)

    @cached_property
    def _found(self) -> dict[Phrases, re.Match[str] | None]:
        """What `find` has found."""
        return {}

    def find(self, phrases: Phrases) -> re.Match[str] | None:
        """The first of the phrases in `joined`, looked for once however many checks ask."""
        if phrases.name not in self._sayable:
            return None
        if phrases not in self._found:
            self._found[phrases] = phrases.pattern.search(self.joined)
        return self._found[phrases]

    def find_all(self, phrases: Phrases) -> Iterable[re.Match[str]]:
        """All of the phrases in `joined`."""
        return phrases.pattern.finditer(self.joined) if phrases.name in self._sayable else ()

    def says_in(self, phrases: Phrases, start: int, end: int) -> bool:
        """Whether any of the phrases occurs in the tokens from `start` to before `end`, read by themselves."""
        return phrases.name in self._sayable and bool(phrases.pattern.search(" ".join(self.tokens[start:end])))

    def says(self, phrases: Phrases) -> bool:
        """Whether any of the phrases occurs."""
        return self.find(phrases) is not None

    def is_negated(self, at: int, since: int = 0) -> bool:
        """Whether a negation stands close before position `at`, and not before position `since`."""
        return not WORDS.negations.isdisjoint(self.tokens[max(since, at - LIMITS.action.negation_window) : at])

    def place(self, offset: int) -> int:
        """Number of tokens that begin before `offset` in `joined`: the token that begins there."""
        return bisect_left(self._offsets, offset)

    def places(self, phrases: Phrases) -> set[int]:
        """Positions of all tokens that belong to one of the phrases."""
        found: set[int] = set()
        for match in self.find_all(phrases):
            found.update(range(self.place(match.start()), self.place(match.end())))
        return found

    def has_sequence(self, stems: Sequence[str], gap: int) -> bool:
        """Whether the stems stand in this order with at most `gap` other tokens between neighbours."""
        for start in self.places_of.get(stems[0], ()):
            last = start
            for wanted in stems[1:]:
                later = range(last + 1, min(last + gap + 2, len(self.stems)))
                last = next((at for at in later if self.stems[at] == wanted), -1)
                if last < 0:
                    break
            else:
                return True
        return False

    def has_near(self, stems: Sequence[str], reach: int) -> bool:
        """Whether the stems stand in any order within `reach` tokens of the first."""
        for start in self.places_of.get(stems[0], ()):
            taken = [start]
            for wanted in stems[1:]:
                around = range(max(0, start - reach), min(start + reach + 1, len(self.stems)))
                close = (at for at in around if self.stems[at] == wanted and at not in taken)
                at = min(close, key=lambda at: abs(at - start), default=None)
                if at is None:
                    break
                taken.append(at)
            else:
                return True
        return False

    def followed_by(self, other: Sentence) -> Sentence:
        """Return this sentence and another one as clauses of one."""
        return Sentence(
            text=f"{self.text} {other.text}",
            tokens=self.tokens + other.tokens,
            raws=self.raws + other.raws,
            before=(*self.before, "; ", *other.before[1:]),
            stems=self.stems + other.stems,
            quoted=self.quoted + other.quoted,
            question=other.question,
        )


@dataclass(frozen=True)
class PreparedReply:
    """A reply after normalisation.

    Attributes:
        text: The reply as received.
        words: Number of words, as `count_words` counts them.
        sentences: Its sentences that hold at least one token.
    """

    text: str
    words: int
    sentences: tuple[Sentence, ...]

    @cached_property
    def joined(self) -> str:
        """All sentences, one per line."""
        return "\n".join(sentence.joined for sentence in self.sentences)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Normalised tokens of the whole reply, in order."""
        return tuple(token for sentence in self.sentences for token in sentence.tokens)

    @cached_property
    def stems(self) -> tuple[str, ...]:
        """Stems of the whole reply, in order."""
        return tuple(found for sentence in self.sentences for found in sentence.stems)


def prepare_reply(text: str) -> PreparedReply:
    """Split any text into sentences of normalised tokens. Never raises."""
    found: list[Sentence] = []
    quotes = _Quotes()
    for piece in sentences(clean(text)):
        parts = words(piece, cleaned=True)
        if not parts.norms:
            continue
        quoted = quotes.read(parts.before)
        tail = piece[len(piece.rstrip("'\")].?!;")) :]
        quotes.end(tail)
        found.append(
            Sentence(
                text=piece,
                tokens=tuple(parts.norms),
                raws=tuple(parts.raws),
                before=tuple(parts.before),
                stems=tuple(map(stem, parts.norms)),
                quoted=quoted,
                question="?" in tail,
            )
        )
    if quotes.open:
        # A quotation that never ends is a stray sign.
        found = [replace(sentence, quoted=(False,) * len(sentence.tokens)) for sentence in found]
    return PreparedReply(text, count_words(text), tuple(found))


def tokens_by_sentence(text: str) -> Iterator[list[str]]:
    """Yield the normalised words of each sentence that has any, as `prepare_reply` reads them."""
    return filter(None, (words(piece, cleaned=True).norms for piece in sentences(clean(text))))


def _ends_condition(tokens: Sequence[str], start: int, at: int) -> bool:
    """Whether the main clause begins there, after a condition without a comma: "if he is slow I will bring it".

    Args:
        start: Where the clause began.
    """
    if tokens[start] not in WORDS.supposing or at - start < _SHORTEST_CONDITION:
        return False
    subject, verb = (*tokens[at : at + 2], "")[:2]
    promises = subject in WORDS.subject_pronouns and verb in WORDS.promising
    acts = subject in WORDS.speakers and (verb in ("have", "am", "are") or verb in VERBS.forms)
    return (promises or acts) and tokens[at - 1] not in WORDS.before_complements


class _Quotes:
    """Which quotation marks are open while a reply is read."""

    def __init__(self) -> None:
        self._double = self._single = False

    @property
    def open(self) -> bool:
        """Whether a quotation is open."""
        return self._double or self._single

    def read(self, signs: Sequence[str]) -> tuple[bool, ...]:
        """Read what stands before each token of a sentence; return whether the token is quoted."""
        if not _QUOTATION_MARKS.search("".join(signs)):
            return (self.open,) * len(signs)
        return tuple([self._read(before, at == 0) for at, before in enumerate(signs)])

    def _read(self, before: str, opens_sentence: bool) -> bool:
        for index, sign in enumerate(before):
            if sign == '"':
                self._double = not self._double
            elif sign == "'":
                # An apostrophe opens only before a word and after a space; it closes only what was opened.
                opens = index == len(before) - 1 and (index == 0 or not before[index - 1].isalnum())
                if self._single and not (opens and index > 0):
                    self._single = False
                elif opens and (before != "'" or opens_sentence):
                    self._single = True
        return self.open

    def end(self, tail: str) -> None:
        """Read the signs after the last token of a sentence."""
        self._double = self._double != (tail.count('"') % 2 == 1)
        self._single = self._single and "'" not in tail
