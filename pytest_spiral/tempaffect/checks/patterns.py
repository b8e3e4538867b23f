"""Wordings of a decision key, compiled once, and where a sentence says them.

A word is found by what it means here: a verb by any of its forms, a time in any notation, any other word by its stem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from pytest_spiral.tempaffect.checks.clauses import FINITE_WORDS
from pytest_spiral.tempaffect.checks.sentences import Sentence, tokens_by_sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, VERBS, WORDS
from pytest_spiral.text import Span, function_words, stem

Places = tuple[int, ...]
Word = frozenset[str]
"""What one word may mean; words with a meaning in common are the same."""

_CLOCK = re.compile(r"(\d{1,2})(?:[:.](\d\d))?([ap]m)?")
_HALF_DAY = 12 * 60
_NOTHING: Word = frozenset()
ANY_VERB = "@verb"
"""A wording of a key that any verb fills."""


class Passage:
    """A sentence, or two in one, as a decision key reads it.

    Attributes:
        tokens, words: The scanned tokens, and what each may mean.
    """

    def __init__(self, sentence: Sentence) -> None:
        most = LIMITS.action.max_scanned_tokens
        self.sentence, self.tokens = sentence, sentence.tokens[:most]
        self.words = read_words(sentence.tokens)[:most]

    @cached_property
    def places(self) -> Mapping[str, Sequence[int]]:
        """Where each meaning stands."""
        places: dict[str, list[int]] = {}
        for at, word in enumerate(self.words):
            verb = False
            for meaning in word:
                places.setdefault(meaning, []).append(at)
                verb = verb or meaning[0] == "="
            if verb:
                places.setdefault(ANY_VERB, []).append(at)
        return places

    @cached_property
    def spans(self) -> list[Span]:
        """The clauses; a phrase without a verb belongs to the clause before it, unless it denies something."""
        spans: list[Span] = []
        for start, end in self.sentence.clauses:
            tokens = self.tokens[start:end]
            verbless = FINITE_WORDS.isdisjoint(tokens) and VERBS.forms.keys().isdisjoint(tokens)
            joined = not self.sentence.before[start].strip() and WORDS.negations.isdisjoint(tokens)
            if spans and verbless and joined:
                start = spans.pop()[0]
            spans.append((start, end))
        return spans

    @cached_property
    def clause_of(self) -> list[int]:
        """Number of the clause of each token."""
        return [number for number, (start, end) in enumerate(self.spans) for _ in range(start, end)]


def read_words(tokens: Sequence[str]) -> tuple[Word, ...]:
    """What each token of a sentence may mean, spoken times included ("half past six", "by six")."""
    words = list(map(_meanings, tokens))
    for at, token in enumerate(tokens):
        if token.isdecimal():
            words[at] |= _spoken_time(tokens, at)
    return tuple(words)


@lru_cache(maxsize=65536)
def _meanings(token: str) -> Word:
    clock = _CLOCK.fullmatch(token)
    if clock:
        hour, minutes, half = clock.groups()
        plain = minutes is None and half is None
        return frozenset({token} if plain else {token, time_of_day(int(hour), int(minutes or 0))})
    if token in WORDS.noon_words:
        return frozenset({token, time_of_day(0)})
    lemmas = {"be"} if token in WORDS.be_forms else VERBS.lemmas.get(token)
    return frozenset(f"={lemma}" for lemma in lemmas) if lemmas else frozenset({stem(token)})


# Keys share many verbs.
@lru_cache(maxsize=4096)
def _wording(text: str) -> tuple[Word, ...]:
    """What each word of a wording may mean; of several sentences, of the first."""
    return read_words(next(tokens_by_sentence(text), ()))


def time_of_day(hour: int, minutes: int = 0) -> str:
    """A time as one word; seven and nineteen hundred are not told apart."""
    return f"@{(hour * 60 + minutes) % _HALF_DAY}"


def _spoken_time(tokens: Sequence[str], at: int) -> Word:
    """The time that a number tells by the words beside it."""
    if len(tokens[at]) > 2:
        return _NOTHING
    before, before_that = (tokens[at - back] if at >= back else "" for back in (1, 2))
    after = tokens[at + 1] if at + 1 < len(tokens) else ""
    hour, minutes = int(tokens[at]), 0
    if before == "half" or (before_that, before) == ("half", "past"):
        minutes = 30
    elif before == "to" and before_that.isdecimal() and _may_be_plural((*tokens[at - 3 : at - 2], "")[0]):
        # "labels 4 to 9", but "closes ten to six"
        return _NOTHING
    elif before in ("to", "past") and (before_that == "quarter" or before_that.isdecimal()):
        minutes = 15 if before_that == "quarter" else int(before_that)
        minutes = minutes if before == "past" else -minutes
    elif before not in WORDS.clock_words and after != "oclock":
        return _NOTHING
    return frozenset({time_of_day(hour, minutes)})


def _may_be_plural(token: str) -> bool:
    """Whether a word in -s is rather a noun than a verb."""
    verbs = VERBS.forms.get(token)
    return token.endswith("s") and token not in function_words() and (verbs is None or token in WORDS.noun_like)


class PatternSlot:
    """Alternatives for one slot of a pattern: each a sequence of words with few others between."""

    def __init__(self, alternatives: Sequence[str]) -> None:
        # "i" or "mine" somewhere else is no subject of this verb.
        self.close = WORDS.first_person.issuperset(alternatives)
        sequences = dict.fromkeys(_wording(text) for text in alternatives if text != ANY_VERB)
        sequences.pop((), None)
        if ANY_VERB in alternatives:
            sequences[(frozenset({ANY_VERB}),)] = None
        self.meanings = frozenset(meaning for words in sequences for word in words for meaning in word)
        self.by_first: dict[str, list[tuple[Word, ...]]] = {}
        for first, *others in sequences:
            for meaning in first:
                self.by_first.setdefault(meaning, []).append(tuple(others))

    def find(self, of: Passage) -> Iterator[Places]:
        """Yield the positions of each occurrence."""
        for meaning in self.by_first.keys() & of.places.keys():
            for others in self.by_first[meaning]:
                for start in of.places[meaning]:
                    if taken := _follow(of, start, others) if others else (start,):
                        yield taken


def _follow(of: Passage, start: int, others: Sequence[Word]) -> Places:
    """Return the positions of a sequence that begins at `start`; empty where it does not go on."""
    taken = [start]
    for word in others:
        # "get it ready"; but "not me" is not "not clear me".
        gap = LIMITS.decision.gap if of.tokens[taken[-1]] not in WORDS.negations else 0
        reach = range(taken[-1] + 1, min(len(of.words), taken[-1] + 2 + gap))
        at = next((at for at in reach if not word.isdisjoint(of.words[at])), -1)
        between = of.tokens[taken[-1] + 1 : at]
        # "the press at 13:30 for labels 4 to 9" is not "the press for four"
        if at < 0 or not WORDS.connectives.isdisjoint(between) or any(token[0].isdecimal() for token in between):
            return ()
        taken.append(at)
    return tuple(taken)


class Place(NamedTuple):
    """Where a pattern is said: positions of its words, of those that stand far from the verb, and of the verb."""

    taken: frozenset[int]
    topic: frozenset[int]
    verb: int


class ActPattern:
    """Slots of a decision key which must all be found close together; the first holds the verbs."""

    def __init__(self, slots: Iterable[Sequence[str]]) -> None:
        self.slots = tuple(map(PatternSlot, slots))
        self.meanings = frozenset[str]().union(*(slot.meanings for slot in self.slots))

    def find(self, of: Passage, wide: bool) -> Iterator[Place]:
        """Yield every place in one clause or two that belong together.

        Args:
            wide: All clauses count as close. A right act is told with reasons between, a wrong one named among reasons.
        """
        hits: list[list[Places]] = []
        for slot in self.slots:
            hits.append(sorted(slot.find(of))[: LIMITS.decision.max_hits])
            if not hits[-1]:
                return
        clause_of = of.clause_of
        for verb in hits[0]:
            own = clause_of[verb[0]]
            near = [each for each in ((own, own + 1), (own - 1, own)) if wide or _joins(of, own, each)]
            far = [(0, clause_of[-1])] if wide else []
            for window in ((own, own), *near, *far):
                chosen: list[Places] = []
                for slot, found in zip(self.slots, ([verb], *hits[1:]), strict=True):
                    reach = (own, own) if slot.close and window in far else window
                    if not (places := _nearest(found, verb[0], reach, clause_of)):
                        break
                    chosen.append(places)
                else:
                    taken = frozenset(at for places in chosen for at in places)
                    # What is taken from afar is the topic: "Lucia is off, she says, so I asked her".
                    topic = frozenset(at for at in taken if window in far and clause_of[at] != own)
                    yield Place(taken - topic, topic, verb[0])


class PatternIndex:
    """The patterns of several acts by the words with which their slots may begin."""

    def __init__(self, patterns: Mapping[str, Iterable[ActPattern]]) -> None:
        self._patterns = [(act, pattern) for act, each in patterns.items() for pattern in each]
        begun: dict[str, list[PatternSlot]] = {}
        for slot in (slot for _, pattern in self._patterns for slot in pattern.slots):
            for meaning in slot.by_first:
                begun.setdefault(meaning, []).append(slot)
        self._by_meaning = {meaning: tuple(slots) for meaning, slots in begun.items()}
        # Nearly every passage has a verb.
        self._anyway = frozenset(begun.get(ANY_VERB, ()))
        self.times = frozenset(slot for meaning, slots in begun.items() for slot in slots if meaning[0] == "@")

    def begun_in(self, passage: Passage) -> frozenset[PatternSlot]:
        """The slots that may begin in a passage.

        Those that may in two sentences are those of either, and `times`, which may be told over the end of the first:
        "At half past. Six."
        """
        found = self._by_meaning.keys() & frozenset().union(*passage.words)
        return self._anyway.union(*map(self._by_meaning.__getitem__, found))

    def possible(self, begun: frozenset[PatternSlot]) -> dict[str, list[ActPattern]]:
        """The patterns, by act, of which every slot is among those."""
        possible: dict[str, list[ActPattern]] = {}
        for act, pattern in self._patterns:
            if begun.issuperset(pattern.slots):
                possible.setdefault(act, []).append(pattern)
        return possible


def _joins(of: Passage, own: int, window: Span) -> bool:
    """Whether two neighbouring clauses speak of one act.

    They do where one has no verb, where the later has no subject ("let me call and explain"), or where a pronoun in the
    verb's clause may mean a word of the clause before it.
    """
    first, last = window
    if first < 0 or last >= len(of.spans):
        return False
    earlier, later = (of.tokens[slice(*of.spans[at])] for at in window)
    forms = VERBS.forms.keys()
    verbless = any(FINITE_WORDS.isdisjoint(words) and forms.isdisjoint(words) for words in (earlier, later))
    continued = later[0] in WORDS.continuing and FINITE_WORDS.isdisjoint(later) and not _has_subject(later)
    return verbless or continued or (first < own and any(_stands_for(later, at) for at in range(len(later))))


def _stands_for(words: Sequence[str], at: int) -> bool:
    """Whether a pronoun may mean a word of the clause before; "a standard one" names its own thing."""
    before = words[at - 1] if at else ""
    described = words[at] == "1" and before and not (before in function_words() or before in VERBS.forms)
    return words[at] in WORDS.standing_for and not described


def _has_subject(words: Sequence[str]) -> bool:
    """Whether a clause after "and" has a noun before a verb in the third person: "and your bridge takes 3"."""
    verbs = (VERBS.forms.get(word) for word in words[2:])
    article = words[1:2] and words[1] in WORDS.articles | {"her"}
    return bool(article) and any(verb is not None and verb.third and not verb.base for verb in verbs)


def _nearest(found: Iterable[Places], verb: int, window: Span, clause_of: Sequence[int]) -> Places:
    """Return the occurrence nearest to the verb that lies in a window of clauses; empty where none does."""
    first, last = window
    inside = (places for places in found if first <= clause_of[places[0]] and clause_of[places[-1]] <= last)
    return min(inside, key=lambda places: abs(places[0] - verb), default=())
