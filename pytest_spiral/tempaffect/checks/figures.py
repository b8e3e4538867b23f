"""Figures that a reply must not contradict: times against times, amounts against amounts, counts against counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise
from typing import Literal

from pytest_spiral.tempaffect.checks.clauses import HELPING_VERBS
from pytest_spiral.tempaffect.checks.patterns import ActPattern, Passage, time_of_day
from pytest_spiral.tempaffect.checks.sentences import Sentence, prepare_reply
from pytest_spiral.tempaffect.lexicon import PHRASES, WORDS
from pytest_spiral.tempaffect.scenario import Fact, Scenario
from pytest_spiral.text import function_words

_NAMED_TIMES = WORDS.weekdays | WORDS.noon_words
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_NUMBER = re.compile(r"\d+(?:[.:]\d+)?")
_CURRENCY = re.compile(r"[$\u00a3\u20ac]\s*$")


FigureUnit = Literal["time", "date", "weekday", "amount", "count"]
"""What a figure tells. Only figures of one unit can contradict each other."""
Figure = tuple[int, FigureUnit, str]
"""Position, unit and value."""


class PreparedFact:
    """A fact, compiled: what a sentence is about, and the figures that may stand there."""

    def __init__(self, fact: Fact) -> None:
        self.about = ActPattern(fact.about)
        sentences = [sentence for text in fact.figures for sentence in prepare_reply(text).sentences]
        told = [figure for sentence in sentences for figure in figures(Passage(sentence))]
        self.values = {value for _, _, value in told}
        plain = [value for _, unit, value in told if unit == "count" and value.isdecimal() and int(value) <= 24]
        hours = {time_of_day(int(value)): value for value in plain}
        times = {value for _, unit, value in told if unit == "time"}
        # "six" beside "18:00" is another form of it, no count.
        forms = {value for time, value in hours.items() if time in times}
        self.units = {unit for _, unit, value in told if unit != "count" or value not in forms}
        self.values |= hours.keys()
        if any(not WORDS.money_words.isdisjoint(slot) for slot in fact.about):
            self.units.add("amount")

    def contradiction(self, told: Sequence[Figure], passage: Passage) -> str:
        """Say which clause has a figure that contradicts the fact; "" where there is none.

        Args:
            told: The figures of the sentence.
        """
        sentence = passage.sentence
        told = [figure for figure in told if figure[1] in self.units]
        right = [(at, unit) for at, unit, value in told if value in self.values]
        wrong = [
            (at, unit)
            for at, unit, value in told
            if value not in self.values and not _is_label(passage.tokens, at, unit)
        ]
        for taken, _, _ in self.about.find(passage, wide=False) if wrong and not sentence.question else ():
            for start, end in passage.spans:
                # A right figure excuses others of its unit, and counts beside it: "both captains by Friday 18:00".
                excused = {unit for at, unit in right if start <= at < end}
                excused |= {"count"} if excused else set()
                about = all(start <= at < end for at in taken)
                told_wrong = any(start <= at < end and unit not in excused for at, unit in wrong)
                if about and told_wrong and not _is_open(sentence, start, end, taken):
                    return f"contradicts a figure: {' '.join(filter(None, sentence.raws[start:end]))}"
        return ""


def known_times(scenario: Scenario) -> frozenset[str]:
    """The times and numbers that a scenario tells, and the times that follow by a number of minutes that it tells."""
    key = scenario.expected.decision
    facts = (figure for fact in (key.facts if key else ()) for figure in fact.figures)
    texts = (scenario.agent_context, scenario.user_message, *facts)
    passages = [Passage(sentence) for text in texts for sentence in prepare_reply(text).sentences]
    told = {meaning for passage in passages for word in passage.words for meaning in word if meaning[0] == "@"}
    tokens = [token for passage in passages for token in passage.tokens]
    # "only one" is no hour
    told |= {time_of_day(int(token)) for token in tokens if token.isdecimal() and 1 < int(token) <= 24}
    minutes = {int(one) for one, other in pairwise(tokens) if one.isdecimal() and other in ("minute", "minutes")}
    later = {time_of_day(0, int(time[1:]) + sign * each) for time in told for each in minutes for sign in (1, -1)}
    numbers = (number[1] if (number := _ORDINAL.fullmatch(token)) else token for token in tokens)
    paired = {pair for passage in passages for _, pair in _days_with_times(passage)}
    # Which days a range covers is left open: its time may be told of any.
    ranged = {pair[pair.index("@") :] for each in passages if _is_range(each) for _, pair in _days_with_times(each)}
    paired |= {day + time for day in WORDS.weekdays for time in ranged}
    return frozenset((*told, *later, *paired, *(number for number in numbers if number.isdecimal())))


def _days_with_times(passage: Passage) -> Iterator[tuple[int, str]]:
    """Yield where a weekday and a time stand together, as "friday@1080": "Friday at 18:00", "18:00 on Friday"."""
    told = [figure for figure in figures(passage) if figure[1] in ("time", "weekday")]
    for (at, one, value), (then, other, later) in pairwise(told):
        between = passage.tokens[at + 1 : then]
        # "by Friday 18:00, Saturday he plays"
        apart = one == "time" and "," in passage.sentence.before[then]
        if one != other and not apart and (not between or between in (("at",), ("by",), ("on",))):
            yield at, value + later if one == "weekday" else later + value


def _is_range(passage: Passage) -> bool:
    """Whether weekdays are told as a range: "Monday to Friday 9:00"."""
    triples = zip(passage.tokens, passage.tokens[1:], passage.tokens[2:], strict=False)
    return any(
        to in ("to", "till", "until", "through") and {first, last} <= WORDS.weekdays for first, to, last in triples
    )


def mistaken_day(passage: Passage, known: Set[str]) -> str:
    """Say which clause gives a time to a weekday that the scenario gives to others only; "" where none does."""
    for at, pair in _days_with_times(passage):
        time = pair[pair.index("@") :]
        days = {each for each in known if each.endswith(time) and not each.startswith("@")}
        start, end = passage.spans[passage.clause_of[at]]
        # "doesn't close till Friday at 18:00" states the time.
        limit = passage.tokens[max(0, at - 1) : at] in (("until",), ("till",))
        unsaid = passage.sentence.question or passage.sentence.quoted[at] or _is_open(passage.sentence, start, end)
        if days and pair not in days and (limit or not unsaid):
            return f"tells another day: {' '.join(filter(None, passage.sentence.raws[start:end]))}"
    return ""


def invented_time(told: Sequence[Figure], passage: Passage, known: Set[str]) -> str:
    """Say which clause states a time of day or a date that the scenario does not know; "" where none does."""
    sentence = passage.sentence
    for at, unit, value in told if not sentence.question else ():
        if value in known or not _is_point(sentence, at, unit) or sentence.quoted[at]:
            continue
        start, end = passage.spans[passage.clause_of[at]]
        if not (_is_open(sentence, start, end) or _announces(sentence.tokens[start:end])):
            return f"tells an unknown time: {' '.join(filter(None, sentence.raws[start:end]))}"
    return ""


def _is_point(sentence: Sentence, at: int, unit: FigureUnit) -> bool:
    """Whether a figure is a time as on a clock, or a day with its month; "4 to 7" may be labels."""
    tokens = sentence.tokens
    if unit == "date":
        return not WORDS.months.isdisjoint(tokens[max(0, at - 1) : at + 3])
    # "at five past: twelve of twelve"
    counted = "".join(tokens[max(0, at - 1) : at]) in ("half", "past") and ":" not in sentence.before[at]
    clock = ":" in tokens[at] or tokens[at][-2:] in ("am", "pm") or counted
    # "at seven in the morning", "Friday at five"
    weekday = tokens[at - 1 : at] == ("at",) and not WORDS.weekdays.isdisjoint(tokens[max(0, at - 2) : at - 1])
    spoken = (
        weekday
        or tokens[at + 1 : at + 2] == ("oclock",)
        or (tokens[at + 1 : at + 3] == ("in", "the") and not WORDS.parts_of_day.isdisjoint(tokens[at + 3 : at + 4]))
    )
    return unit == "time" and (clock or spoken)


def _announces(tokens: Sequence[str]) -> bool:
    """Whether the speaker says when there will be word: "I will tell you at 10:45"."""
    return not (WORDS.speakers.isdisjoint(tokens) or WORDS.word_verbs.isdisjoint(tokens))


_UNSAID = WORDS.negations | {"was", "were", "had", "would", "if", "than", "instead", "yesterday", "about", "around"}


def _is_open(sentence: Sentence, start: int, end: int, taken: Set[int] = frozenset()) -> bool:
    """Whether a clause denies, supposes, compares or tells of the past, so that it states no figure.

    Args:
        taken: Positions of words that belong to the fact: "it keeps without payment until Monday".
    """
    tokens = [sentence.tokens[at] for at in range(start, end) if at not in taken]
    return not _UNSAID.isdisjoint(tokens) or sentence.says(PHRASES.attributions)


def _is_label(tokens: Sequence[str], at: int, unit: FigureUnit) -> bool:
    """Whether a figure tells when something began, or is a number in a name or a range ("labels 4 to 9")."""
    before, after = (*tokens[at - 1 : at], "")[0], (*tokens[at + 1 : at + 2], "")[0]
    if unit == "time":
        return before in ("since", "of")
    named = after == "to" or after in WORDS.determiners or after in HELPING_VERBS
    # "labels 4 to 9", but "up to 90"
    ranged = before == "to" and "".join(tokens[at - 2 : at - 1]).isdecimal()
    return unit == "count" and (named or ranged or before == "rule")


def figures(passage: Passage) -> Iterator[Figure]:
    """Yield the figures of a sentence."""
    tokens, sentence = passage.tokens, passage.sentence
    for at, token in enumerate(tokens):
        if not (token in _NAMED_TIMES or token[0].isdecimal()):
            continue
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        before = tokens[at - 1] if at else ""
        if sentence.before[at] == "-" and before.isalpha():
            # "A-1" is a name
            continue
        ordinal = _ORDINAL.fullmatch(token)
        time = next((meaning for meaning in passage.words[at] if meaning[0] == "@"), "")
        # "by 6" is a time, "by 6 crates" is none.
        bare = token.isdecimal() and after and not sentence.before[at + 1].strip() and after not in function_words()
        if token in WORDS.weekdays:
            yield at, "weekday", token
        elif ordinal:
            yield at, "date", ordinal[1]
        elif token.isdecimal() and not _is_one(sentence.raws[at]) and _is_day(tokens, at):
            yield at, "date", token
        elif time and not (bare and after not in WORDS.time_words):
            yield at, "time", time
        elif _NUMBER.fullmatch(token) and not _is_one(sentence.raws[at]):
            money = after in WORDS.currencies or _CURRENCY.search(sentence.before[at])
            yield at, "amount" if money else "count", token


def _is_day(tokens: Sequence[str], at: int) -> bool:
    """Whether a number stands beside a month that has no other: "15 June eight at night" has an hour after it."""
    before, after = tokens[max(0, at - 2) : at], tokens[at + 1 : at + 2]
    taken = len(before) == 2 and before[0].isdecimal()
    return not WORDS.months.isdisjoint(after) or (not taken and not WORDS.months.isdisjoint(before[-1:]))


def _is_one(raw: str) -> bool:
    """Whether a number is written as the pronoun: "the June one's been in"."""
    return raw.lower().startswith("one")
