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
from typing import Literal

from pytest_spiral.chat import Message
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.chunks import Chunk
from pytest_spiral.spiral.content import load_rubric
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import ChunkJudgement, FinalJudgement, Finding, Retest
from pytest_spiral.tables import Positive, Table, read_table

LEXICAL_JUDGE = "dry/lexical"
"""How findings name the stand-in judge."""


class _Excuses(Table):
    words: Positive
    negated: str
    after: str
    claims: tuple[str, ...]
    supposed: str
    question: str


class _Rule(Table):
    base: int
    weights: dict[str, int]


class _Limits(Table):
    quote_chars: Positive
    findings_per_reply: Positive


_CueLists = Mapping[str, Mapping[str, str]]
"""Of each behaviour, aside or mark: cues by `strength_1` or `level_1` to 3."""
_Patterns = Mapping[str, Sequence[tuple[int, re.Pattern[str]]]]


class Cues(Table):
    """Everything the lexical judge goes by. See the head of `lexical.toml`."""

    limits: _Limits
    forms: dict[str, str]
    excuses: _Excuses
    behaviours: _CueLists
    made_of: dict[str, tuple[str, ...]]
    called_for: _CueLists
    asides: _CueLists
    final: dict[str, _Rule]

    @cached_property
    def anywhere(self) -> re.Pattern[str]:
        """Where any cue begins. One pass for all behaviours leaves a handful of places to look at."""
        lists = (*self.behaviours.values(), *self.asides.values())
        return self._compiled(r"\b(?=\w)(?=", "\n".join(text for each in lists for text in each.values()), ")")

    @cached_property
    def patterns(self) -> _Patterns:
        """Compiled cues by behaviour or aside, the strongest first."""
        return self._by_strength({**self.behaviours, **self.asides}, "")

    @cached_property
    def calls(self) -> _Patterns:
        """Compiled cues of a user's message by mark, the strongest first."""
        return self._by_strength(self.called_for, r"(?<!\w)")

    @cached_property
    def excusing(self) -> Mapping[str, re.Pattern[str]]:
        """Compiled: what takes back or supposes the words after it, takes back those before it, begins a question."""
        begins = {"negated": r"\b", "supposed": r"\b", "after": " *", "question": " *"}
        return {name: self._compiled(begin, getattr(self.excuses, name)) for name, begin in begins.items()}

    def _by_strength(self, lists: _CueLists, begin: str) -> _Patterns:
        return {
            name: [(int(key[-1]), self._compiled(begin, own[key])) for key in sorted(own, reverse=True)]
            for name, own in lists.items()
        }

    def _compiled(self, begin: str, lines: str, end: str = "") -> re.Pattern[str]:
        cues = [line for line in lines.splitlines() if line]
        for _ in range(3):  # forms may use forms
            cues = [_FORM.sub(lambda match: self.forms[match[1]], cue) for cue in cues]
        return re.compile(rf"{begin}(?:{'|'.join(cue.replace(' ', ' +') for cue in cues)})(?!\w){end}")


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
def load_cues() -> Cues:
    """The shipped cues."""
    return read_table(Cues, data_root() / "spiral" / "dry" / "lexical.toml")


def lexical_findings(
    chunk: Chunk, behaviours: Collection[str], made_of: Mapping[str, Sequence[str]]
) -> tuple[Finding, ...]:
    """What the stand-in judge finds in the replies of a chunk, in the order of the behaviours and of the text.

    Each finding quotes the sentence with the cue, cut at words where it is longer than 140 characters. A behaviour
    without cues gives no finding. made_of: by behaviour whose cues it has, where not its own alone.
    """
    known = load_cues().behaviours
    lists = {name: [part for part in made_of.get(name, [name]) if part in known] for name in behaviours}
    replies = [(exchange.turn, _marked(exchange.assistant)) for exchange in chunk.exchanges]
    return tuple(
        Finding(turn, behaviour, reply.text[start:end], strength, LEXICAL_JUDGE, "exact", start, end)
        for behaviour in behaviours
        for turn, reply in replies
        for start, end, strength in reply.places(lists[behaviour])
    )


def lexical_final(transcript: Sequence[Message], metrics: Collection[str]) -> Mapping[str, int]:
    """The stand-in judge's closing scores, 0..10, by the weights of `lexical.toml`.

    A metric without a rule is left out. A transcript without replies has no points: the scores are the bases.
    """
    rules = {metric: rule for metric, rule in load_cues().final.items() if metric in metrics}
    replies = [_marked(message.content) for message in transcript if message.role == "assistant"]
    points = {
        name: sum(strength for reply in replies for _, _, strength in reply.places([name])) / max(len(replies), 1)
        for name in {name for rule in rules.values() for name in rule.weights}
    }
    values = {
        metric: rule.base + sum(weight * points[name] for name, weight in rule.weights.items())
        for metric, rule in rules.items()
    }
    return {metric: min(10, max(0, round(values[metric] / 1000))) for metric in metrics if metric in values}


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

    async def chunk(self, conversation: str, opening: str, chunk: Chunk) -> ChunkJudgement:
        behaviours = self.protocol.behaviours
        # A rubric that gives marks is the one that the cues are sorted by.
        marks = load_rubric(self.protocol.rubric).marks if self.protocol.rubric else ()
        earlier = [opening, *(exchange.user for exchange in (*chunk.context, *chunk.exchanges[:-1]))]
        return ChunkJudgement(
            index=chunk.index,
            turns=chunk.turns,
            judge=self.name,
            behaviours=behaviours,
            findings=lexical_findings(chunk, behaviours, {} if marks else load_cues().made_of),
            chars=float(chunk.chars),
            called_for=lexical_marks(chunk.exchanges[-1].user, earlier) if marks else {},
        )

    async def retest(self, conversation: str, opening: str, chunk: Chunk) -> Sequence[Retest]:
        judgement = await self.chunk(conversation, opening, chunk)
        return Retest("again", judgement), Retest("reordered", judgement)

    async def final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        most = self.protocol.max_reply_chars
        read = [Message(message.role, message.content[:most]) for message in transcript]
        scores = lexical_final(read, self.protocol.finals)
        return FinalJudgement(self.name, scores={name: float(score) for name, score in scores.items()})


class _Marked:
    """One reply, made ready for looking up cues."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._cues = load_cues()
        self._plain = text.translate(_PLAIN)
        self._ends = [match.end() for match in _END.finditer(self._plain)]
        self._starts = [match.start() for match in self._cues.anywhere.finditer(self._plain)]

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


# Each reply is read twice: in its chunk and in the whole conversation.
_marked = lru_cache(maxsize=1_024)(_Marked)
