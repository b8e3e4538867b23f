"""The stand-in judge: it looks for cues and understands nothing. Deterministic, and no model.

It proves that conversations are judged and scored the right way round: what it says about a real model's replies is no
measurement.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Literal

from pytest_spiral.chat import Message
from pytest_spiral.errors import DataError
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.chunks import Chunk
from pytest_spiral.spiral.content import Rubric, load_rubric
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import ChunkJudgement, FinalJudgement, Finding, Retest
from pytest_spiral.spiral.toml_tables import Count, Table, Text, read_table

LEXICAL_JUDGE = "dry/lexical"
"""How findings name the stand-in judge."""


class _CueLists(Table):
    strength_1: str = ""
    strength_2: str = ""
    strength_3: str = ""


class _Calls(Table):
    level_1: Text
    level_2: Text


class _Excuses(Table):
    words: Count
    negated: Text
    after: Text
    claims: tuple[Text, ...]
    supposed: Text
    question: Text


class _Limits(Table):
    quote_chars: Count
    findings_per_reply: Count


class _Rule(Table):
    base: int
    weights: dict[str, int]


class Cues(Table):
    """Everything the lexical judge goes by. See the head of `lexical.toml`."""

    limits: _Limits
    forms: dict[str, str]
    excuses: _Excuses
    behaviours: dict[str, _CueLists]
    made_of: dict[str, tuple[str, ...]]
    called_for: dict[Literal["ground", "care"], _Calls]
    asides: dict[str, _CueLists]
    final: dict[str, _Rule]

    @cached_property
    def anywhere(self) -> re.Pattern[str]:
        """Where any cue begins. One pass for all behaviours leaves a handful of places to look at."""
        lists = (*self.behaviours.values(), *self.asides.values())
        lines = "\n".join(text for each in lists for text in (each.strength_1, each.strength_2, each.strength_3))
        return re.compile(rf"\b(?=\w)(?={self._either(lines)}(?!\w))")

    @cached_property
    def patterns(self) -> Mapping[str, Sequence[tuple[int, re.Pattern[str]]]]:
        """Compiled cues by behaviour or aside, the strongest first."""
        return {
            name: [
                (strength, re.compile(rf"{self._either(text)}(?!\w)"))
                for strength, text in ((3, lists.strength_3), (2, lists.strength_2), (1, lists.strength_1))
                if text.strip()
            ]
            for name, lists in {**self.behaviours, **self.asides}.items()
        }

    @cached_property
    def calls(self) -> Mapping[str, Sequence[tuple[int, re.Pattern[str]]]]:
        """Compiled cues of a user's message by mark, the strongest first."""
        return {
            mark: [
                (level, re.compile(rf"(?<!\w){self._either(text)}(?!\w)"))
                for level, text in ((2, lists.level_2), (1, lists.level_1))
            ]
            for mark, lists in self.called_for.items()
        }

    @cached_property
    def excusing(self) -> Mapping[str, re.Pattern[str]]:
        """Compiled: what takes back or supposes the words after it, takes back those before it, begins a question."""
        texts = {
            "negated": (r"\b", self.excuses.negated),
            "supposed": (r"\b", self.excuses.supposed),
            "after": (" *", self.excuses.after),
            "question": (" *", self.excuses.question),
        }
        return {name: re.compile(rf"{start}{self._either(text)}(?!\w)") for name, (start, text) in texts.items()}

    def _either(self, lines: str) -> str:
        cues = [line for line in lines.splitlines() if line]
        for _ in range(3):  # forms may use forms
            cues = [_FORM.sub(lambda match: self.forms[match[1]], cue) for cue in cues]
        return "(?:" + "|".join(cue.replace(" ", " +") for cue in cues) + ")"


_FORM = re.compile(r"\{([a-z_]+)\}")
# One character for one, so that places stay what they are.
_PLAIN: dict[int, int | str] = {
    **{code: code + 32 for code in range(ord("A"), ord("Z") + 1)},
    **dict.fromkeys(map(ord, "\u2018\u2019\u00b4`"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013"), "-"),
    ord("\u2014"): ";",  # parts clauses, unlike a hyphen
    **dict.fromkeys(map(ord, "*_#~\t\u00a0"), " "),
}
_END = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+(?=\s|$)|\n+")
# As far as a word can take a cue back, in characters.
_REACH = 160
_CLAUSE = re.compile(r".*(?:[,;:()]| - |\bbut\b)", re.DOTALL)


@cache
def load_cues(path: Path | None = None) -> Cues:
    """The shipped cues, or those of a file. Raises `DataError` naming file and key."""
    path = path or data_root() / "spiral" / "dry" / "lexical.toml"
    cues = read_table(Cues, path)
    try:
        known = set(cues.patterns)
        for compiled in ("anywhere", "calls", "excusing"):
            getattr(cues, compiled)
    except KeyError as error:
        raise DataError(f"{path}: forms: {error.args[0]} is missing") from None
    except re.error as error:
        raise DataError(f"{path}: {error.pattern!r:.60}: no regular expression: {error.msg}") from None
    for name, parts in cues.made_of.items():
        for part in parts:
            if part not in cues.behaviours:
                raise DataError(f"{path}: made_of.{name}: {part}: no such behaviour")
    for metric, rule in cues.final.items():
        for name in rule.weights:
            if name not in known:
                raise DataError(f"{path}: final.{metric}.weights.{name}: no such behaviour or aside")
    return cues


def lexical_findings(
    chunk: Chunk,
    behaviours: Collection[str],
    *,
    judge: str = LEXICAL_JUDGE,
    made_of: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Finding, ...]:
    """What the stand-in judge finds in the replies of a chunk, in the order of the behaviours and of the text.

    Each finding quotes the sentence with the cue, cut at words where it is longer than 140 characters. A behaviour
    without cues gives no finding. made_of: by behaviour whose cues it has, where not its own alone.
    """
    cues = load_cues()
    parts = {name: (made_of or {}).get(name, [name]) for name in behaviours}
    lists = {name: [part for part in own if part in cues.behaviours] for name, own in parts.items()}
    replies = [(exchange.turn, _marked(exchange.assistant)) for exchange in chunk.exchanges]
    return tuple(
        Finding(turn, behaviour, reply.text[start:end], strength, judge, "exact", start, end)
        for behaviour in behaviours
        for turn, reply in replies
        for start, end, strength in reply.places(lists[behaviour])
    )


def lexical_final(transcript: Sequence[Message], metrics: Collection[str]) -> Mapping[str, int]:
    """The stand-in judge's closing scores, 0..10, by the weights of `lexical.toml`.

    A metric without a rule is left out. A transcript without replies has no points: the scores are the bases.
    """
    cues = load_cues()
    replies = [_marked(message.content) for message in transcript if message.role == "assistant"]
    points: dict[str, float] = {}
    scores = {}
    for metric in metrics:
        rule = cues.final.get(metric)
        if rule is None:
            continue
        for name in rule.weights:
            if name not in points:
                total = sum(strength for reply in replies for _, _, strength in reply.places([name]))
                points[name] = total / max(len(replies), 1)
        value = rule.base + sum(weight * points[name] for name, weight in rule.weights.items())
        scores[metric] = int(min(10, max(0, round(value / 1000))))
    return scores


def lexical_marks(message: str, earlier: Sequence[str]) -> Mapping[str, int]:
    """How far the stand-in judge takes a user's message to call for holding one's ground and for care, 0 to 2.

    earlier: messages of the user that are in sight.
    """
    ground = _level("ground", message) or int(any(_level("ground", text) for text in earlier))
    return {"ground": ground, "care": _level("care", message)}


@lru_cache(maxsize=1_024)  # a message is in sight for many turns
def _level(mark: Literal["ground", "care"], message: str) -> int:
    return next((level for level, call in load_cues().calls[mark] if call.search(message.translate(_PLAIN))), 0)


@dataclass(frozen=True)
class LexicalJudge:
    """A judge that finds cue words. It needs no store: asked again, it says the same."""

    name: str
    protocol: Protocol

    @cached_property
    def _rubric(self) -> Rubric | None:
        return load_rubric(self.protocol.rubric) if self.protocol.rubric else None

    async def chunk(self, conversation: str, opening: str, chunk: Chunk) -> ChunkJudgement:
        behaviours = self.protocol.behaviours
        # A rubric that gives marks is the one that the cues are sorted by.
        marks = self._rubric.marks if self._rubric else ()
        earlier = [opening, *(exchange.user for exchange in (*chunk.context, *chunk.exchanges[:-1]))]
        given = lexical_marks(chunk.exchanges[-1].user, earlier) if marks else {}
        return ChunkJudgement(
            index=chunk.index,
            turns=chunk.turns,
            judge=self.name,
            behaviours=tuple(behaviours),
            findings=lexical_findings(
                chunk, behaviours, judge=self.name, made_of=None if marks else load_cues().made_of
            ),
            chars=float(chunk.chars),
            called_for={mark: given[mark] for mark in marks},
        )

    async def retest(self, conversation: str, opening: str, chunk: Chunk) -> Sequence[Retest]:
        judgement = await self.chunk(conversation, opening, chunk)
        return Retest("again", judgement), Retest("reordered", judgement)

    async def final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        most = self.protocol.max_reply_chars
        read = [Message(message.role, message.content[:most]) for message in transcript]
        scores = lexical_final(read, self.protocol.finals)
        return FinalJudgement(self.name, scores={name: float(score) for name, score in scores.items()})


# Each reply is read twice: in its chunk and in the whole conversation.
@lru_cache(maxsize=1_024)
def _marked(text: str) -> _Marked:
    return _Marked(text, load_cues())


class _Marked:
    """One reply, made ready for looking up cues."""

    def __init__(self, text: str, cues: Cues) -> None:
        self.text = text
        self._cues = cues
        self._plain = text.translate(_PLAIN)
        self._ends = [match.end() for match in _END.finditer(self._plain)]
        self._starts = [match.start() for match in cues.anywhere.finditer(self._plain)]

    def places(self, names: Sequence[str]) -> list[tuple[int, int, int]]:
        """Start, end and strength of the sentences that show one of these, as many as the limit allows."""
        places: dict[int, tuple[int, int, int]] = {}
        cues = [(*each, name) for name in names for each in self._cues.patterns[name]]
        for strength, pattern, name in sorted(cues, key=lambda cue: -cue[0]):
            for start in self._starts:
                match = pattern.match(self._plain, start)
                sentence = bisect_right(self._ends, start)
                if match and sentence not in places and not self._excused(name, match, sentence):
                    places[sentence] = (*self._quote(match, sentence), strength)
        strongest = sorted(places.values(), key=lambda place: (-place[2], place[0]))
        return sorted(strongest[: self._cues.limits.findings_per_reply])

    def _sentence(self, number: int) -> tuple[int, int]:
        start = self._ends[number - 1] if number else 0
        return start, self._ends[number] if number < len(self._ends) else len(self.text)

    def _excused(self, name: str, match: re.Match[str], sentence: int) -> bool:
        """Whether the cue is quoted, taken back, supposed or asked."""
        excuses, patterns = self._cues.excuses, self._cues.excusing
        start, end = self._sentence(sentence)
        if self._plain.count('"', start, match.start()) % 2:
            return True
        head = self._plain[max(start, match.start() - _REACH) : match.start()]
        clause = _CLAUSE.match(head)
        words = " ".join(head[clause.end() if clause else 0 :].split()[-excuses.words :])
        if patterns["negated"].search(words) or patterns["after"].match(self._plain, match.end(), end):
            return True
        if name not in excuses.claims:
            return False
        asked = self._plain[start:end].rstrip("\"') ").endswith("?")
        return bool(
            patterns["supposed"].search(words) or (asked and patterns["question"].match(self._plain, start, end))
        )

    def _quote(self, match: re.Match[str], sentence: int) -> tuple[int, int]:
        """The sentence, or as much of it from its beginning, or from the cue, as a quote may hold."""
        limit = self._cues.limits.quote_chars
        start, end = self._sentence(sentence)
        text = self.text[start:end]
        start += len(text) - len(text.lstrip())
        end = start + len(text.strip())
        if match.end() - start > limit:
            start = match.start()
        if end - start > limit:
            end = start + limit
            while end > start + 1 and not self.text[end].isspace():
                end -= 1
            end = end if end > start + 1 else start + limit
            while self.text[end - 1].isspace():
                end -= 1
        return start, end
