"""The simulated user's health: does it still write like the person it plays?

Every generated user message is read against the rules of its persona and gets flags. Some patterns of flags are a
collapse: a conversation with a simulated user in a loop says nothing about the evaluated model. The rules look
for cue words only: a contradiction, for example, is not flagged.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Literal

from pydantic import Field

from pytest_spiral.chat import Message
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.cues import CueGroup, CueSearch, PlainText
from pytest_spiral.spiral.records import Flag
from pytest_spiral.tables import PerMille, Positive, Table, Text, read_table
from pytest_spiral.text import grams

RuleSet = Literal["shipped", "shipped_1_0", "imported"]


class _Publication(Table):
    broken_at_most: int
    restarted_at_most: int
    against: tuple[Text, ...]


class _Rules(Table):
    persona_begins: str = ""
    words_at_least: Positive
    words_at_most: Positive
    chars_at_most: Positive
    paragraphs_at_most: Positive
    capitals_at_most: int
    markdown: bool
    repeated_opener: bool
    offstage: bool


class _Resimulation(Table):
    simulations: Annotated[int, Field(ge=1, le=20)]


class _Repetition(Table):
    ngram: Positive
    within: PerMille
    within_words: Positive
    across: PerMille
    across_ngrams: Positive
    echo_ngram: Positive
    echo: PerMille
    echo_ngrams: Positive
    sentence_words: Positive
    opener_words: Positive


class _Collapse(Table):
    words: Positive
    within: PerMille
    within_words: Positive
    looping: Positive
    looping_share: PerMille
    stalled: Positive
    flipped: Positive
    refused: Positive


class Limits(Table):
    """Every threshold and cue, as `simulator.toml` has and explains them."""

    resimulation: _Resimulation
    publication: _Publication
    repetition: _Repetition
    collapse: _Collapse
    rules: dict[RuleSet, _Rules]
    cues: dict[str, tuple[CueGroup, ...]]

    @cached_property
    def searches(self) -> Mapping[str, CueSearch]:
        """Cues by rule."""
        return {rule: CueSearch(groups) for rule, groups in self.cues.items()}


@cache
def load_limits() -> Limits:
    """The shipped thresholds."""
    return read_table(Limits, data_root() / "spiral" / "simulator.toml")


@dataclass(frozen=True, slots=True)
class ConversationHealth:
    """How the simulated user of one conversation played its role.

    messages: generated user messages. collapse: why the simulation is unusable, None where it is usable.
    """

    messages: int
    flags: tuple[Flag, ...]
    collapse: str | None

    @property
    def flagged(self) -> int:
        """Messages with at least one flag."""
        return len({flag.turn for flag in self.flags})

    def breaking(self, rules: Collection[str]) -> int:
        """Messages with at least one flag of these rules."""
        return len({flag.turn for flag in self.flags if flag.rule in rules})


def simulator_health(
    transcript: Sequence[Message], prompts: Sequence[str | None], rules: RuleSet
) -> ConversationHealth:
    """Read a whole transcript. prompts: the scripted user messages, None for generated ones; the first is the opening.

    Messages after a collapse are read as well, but the first collapse is the one that counts.
    """
    monitor = SimulatorMonitor(rules)
    turn = 0
    for message in transcript:
        if message.role == "user":
            scripted = turn == 0 or (turn < len(prompts) and prompts[turn] is not None)
            monitor.add_user_message(message.content, generated=not scripted)
            turn += 1
        elif message.role == "assistant":
            monitor.add_reply(message.content)
    return ConversationHealth(monitor.generated, tuple(monitor.flags), monitor.collapse)


def rules_for(user_system_prompt: str) -> RuleSet:
    """The rules for a simulated user: those of the persona it was given."""
    begins = {name: rules.persona_begins for name, rules in load_limits().rules.items()}
    return next((name for name, text in begins.items() if text and user_system_prompt.startswith(text)), "imported")


def _cues_in(plain: str, offstage: bool) -> Mapping[str, str]:
    """The first cue of each rule in a message. offstage: whether to look for those of things done meanwhile."""
    searched = PlainText(plain)
    return {
        rule: match[0].strip()[:80]
        for rule, cues in load_limits().searches.items()
        if (rule != "offstage" or offstage) and cues.matches(searched) and (match := cues.pattern.search(plain))
    }


class SimulatorMonitor:
    """Reads a conversation message by message, so that a collapse is seen as soon as it happens.

    generated: how many messages were. collapse: why the simulation is unusable; None while it is usable.
    """

    def __init__(self, rules: RuleSet) -> None:
        self.flags: list[Flag] = []
        self.generated = 0
        self.collapse: str | None = None
        self._limits = load_limits()
        self._rules = self._limits.rules[rules]
        self._turn = 0
        self._in_a_row: dict[str, int] = {}
        # What earlier messages held, as hashes of 64 bits: of many conversations at once, the words themselves would be
        # most of what a process holds, and two that differ do not share a hash by accident.
        self._ngrams = array("q")
        # The message in which each of these was first used.
        self._openers: dict[int, int] = {}
        self._sentences: dict[int, int] = {}
        self._messages: dict[int, int] = {}
        self._reply = ""

    def add_reply(self, text: str) -> None:
        """The evaluated model's next reply."""
        self._reply = _plain(text)

    def add_user_message(self, text: str, *, generated: bool = True) -> None:
        """The user's next message; only a generated one is read against the rules."""
        message = _UserMessage(text, self._limits.repetition)
        if generated:
            self.generated += 1
            remarks = {**self._style(message), **_cues_in(message.plain, self._rules.offstage)}
            within, across = self._repetition(message, remarks)
            self.flags += [Flag(turn=self._turn, rule=rule, detail=detail) for rule, detail in remarks.items()]
            if self.collapse is None:
                reason = self._collapsed(len(message.words), within, across, remarks)
                self.collapse = f"message {self._turn}: {reason}" if reason else None
        self._ngrams.extend(map(hash, message.ngrams))
        self._messages.setdefault(hash(message.plain.strip()), self._turn)
        self._openers.setdefault(hash(message.opener), self._turn)
        for sentence in message.sentences:
            self._sentences.setdefault(hash(sentence), self._turn)
        self._turn += 1

    def _style(self, message: _UserMessage) -> dict[str, str]:
        rules, text, words = self._rules, message.text, message.words
        remarks = {}
        if len(words) < rules.words_at_least:
            remarks["too_short"] = f"{len(words)} words"
        if len(words) > rules.words_at_most or len(text) > rules.chars_at_most:
            remarks["too_long"] = f"{len(words)} words, {len(text):,} characters"
        capitals = [word for word in _TOKEN.findall(text) if word != word.lower()] if text != text.lower() else []
        if len(capitals) > rules.capitals_at_most:
            remarks["capitals"] = ", ".join(dict.fromkeys(capitals[:5]))[:80]
        paragraphs = len([part for part in text.split("\n") if part.strip()])
        if paragraphs > rules.paragraphs_at_most:
            remarks["paragraphs"] = f"{paragraphs} paragraphs"
        if rules.markdown and (mark := _MARKDOWN.search(text)):
            remarks["markdown"] = mark[0].strip()[:20]
        return remarks

    def _repetition(self, message: _UserMessage, remarks: dict[str, str]) -> tuple[float, float]:
        """Shares, 0..1, of n-grams that occur earlier in the message and in earlier messages."""
        rule, ngrams = self._limits.repetition, message.ngrams
        size, echo_size = rule.ngram, rule.echo_ngram
        within = 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0
        if len(message.words) >= rule.within_words and 1000 * within >= rule.within:
            remarks["repeats_within"] = f"{within:.0%} of its runs of {size} words"
        # In a shorter message the same words in a row are chance.
        across = 0.0
        if len(ngrams) >= rule.across_ngrams:
            hashes = list(map(hash, ngrams))
            across = sum(map(set(hashes).intersection(self._ngrams).__contains__, hashes)) / len(hashes)
        again = self._messages.get(hash(message.plain.strip()))
        if again is not None:
            remarks["repeats_earlier"] = f"message {again} again"
            across = 1.0
        elif len(ngrams) >= rule.across_ngrams and 1000 * across >= rule.across:
            remarks["repeats_earlier"] = f"{across:.0%} of its runs of {size} words"
        runs = grams(message.words, echo_size)
        if len(runs) >= rule.echo_ngrams and _may_share(message.words, self._reply, echo_size):
            said = set(grams(_WORD.findall(self._reply), echo_size))
            echoed = sum(map(said.__contains__, runs)) / len(runs)
            if 1000 * echoed >= rule.echo:
                remarks["echoes_reply"] = f"{echoed:.0%} of its runs of {echo_size} words"
        if again is None:
            opened = self._openers.get(hash(message.opener))
            if self._rules.repeated_opener and opened is not None:
                remarks["opener"] = f"{message.opener!r} as in message {opened}"
            old = next((sentence for sentence in message.sentences if hash(sentence) in self._sentences), None)
            if old is not None:
                remarks["sentence_again"] = f"{old[:60]!r} as in message {self._sentences[hash(old)]}"
        return within, across

    def _collapsed(self, words: int, within: float, across: float, remarks: Collection[str]) -> str | None:
        limit = self._limits.collapse
        if words >= limit.words:
            return f"a message of {words:,} words"
        if words >= limit.within_words and 1000 * within >= limit.within:
            return f"a message that repeats itself in {within:.0%} of its words"
        states = (
            ("messages in a row that repeat earlier ones", 1000 * across >= limit.looping_share, limit.looping),
            ("messages in a row without content", "too_short" in remarks, limit.stalled),
            ("messages in a row in the assistant's part", "role_flip" in remarks, limit.flipped),
            ("messages in a row that refuse to play", "refusal" in remarks, limit.refused),
        )
        for name, holds, most in states:
            self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if holds else 0
            if self._in_a_row[name] >= most:
                return f"{self._in_a_row[name]} {name}"
        return None


class _UserMessage:
    """One message, taken apart once."""

    def __init__(self, text: str, rule: _Repetition) -> None:
        self.text = text
        self.plain = _plain(text)
        parts = [_WORD.findall(sentence) for sentence in _SENTENCE_END.split(self.plain)]
        self.words = [word for part in parts for word in part]
        self.ngrams = grams(self.words, rule.ngram)
        self.opener = " ".join(self.words[: rule.opener_words])
        self.sentences = [" ".join(part) for part in parts if len(part) >= rule.sentence_words]


_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# It begins with a set of few characters, which `re` finds quickly.
_SENTENCE_END = re.compile(r"[.?!\n](?:(?<=\n)|(?=\s))")
_TOKEN = re.compile(r"\w+")
_MARKDOWN = re.compile(
    r"^[^\S\n]*(?:[-*\u2022] |\d{1,2}[.)] |#{1,6} |> |```)|\*\*[^*\n]+\*\*|__[^_\n]+__|`[^`\n]+`|\]\(https?:",
    re.MULTILINE,
)


def _plain(text: str) -> str:
    return text.replace("\u2019", "'").replace("\u2018", "'").lower()


def _may_share(words: Sequence[str], text: str, n: int) -> bool:
    """Whether a text may have n of these words in a row; a quick way to tell that it has not.

    n words in a row hold, whole, one of the blocks of half as many that the words are cut into. It is looked for among
    the letters and digits of the text.
    """
    half = (n + 1) // 2
    letters = text.encode("ascii", "ignore").translate(None, _SIGNS)
    pieces = [word.encode("ascii", "ignore").translate(None, _SIGNS) for word in words]
    return any(b"".join(pieces[at : at + half]) in letters for at in range(0, len(words) - half + 1, half))


_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum())
