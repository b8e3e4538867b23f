"""Models as second raters of TempAffect replies: they answer what people are asked, with evidence.

No score depends on them. A judge that fails leaves a judgement without answers, and the item as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import JsonValue

from pytest_spiral.chat import ChatReply, ComposedMessage, Message
from pytest_spiral.hashing import digest
from pytest_spiral.labelling.files import CANNOT_TELL, TEMPAFFECT_QUESTIONS, ItemText
from pytest_spiral.labelling.wording import wording
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.spiral.evidence import SourceText, located_finding
from pytest_spiral.spiral.judges import ask_judge
from pytest_spiral.spiral.judging import MAX_QUOTE_CHARS, Readable, Rejected, Unreadable, read_object
from pytest_spiral.spiral.prompting import Participant, fence_of, json_object, json_string
from pytest_spiral.spiral.records import Repair
from pytest_spiral.spiral.suspicion import without_control_tokens, without_suspicions
from pytest_spiral.status import ReasonCode, Status
from pytest_spiral.tempaffect.records import Item, RatedAnswer, ReplyJudgement

# The worse for the reply first.
_ANSWERS: tuple[Literal["no", "cannot tell", "yes"], ...] = ("no", CANNOT_TELL, "yes")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True)
class ModelRater:
    """A model that answers the questions.

    A reply that may address its judge is judged twice, as it is and with the suspicious passages blanked; of each
    question the worse answer counts. The run's `secret` makes the delimiters around the texts unpredictable.
    """

    participant: Participant
    secret: str

    @property
    def name(self) -> str:
        return self.participant.model

    async def rate(self, unit: str, text: ItemText) -> ReplyJudgement:
        """Judge a reply. A failure is a judgement with that status, not an exception."""
        as_said = await self._rate(unit, text, text)
        blanked = text.model_copy(update={"assistant": without_suspicions(text.assistant)})
        if blanked == text or as_said.status is not Status.MEASURED:
            return as_said
        without = await self._rate(unit, blanked, text)
        if without.status is not Status.MEASURED:
            return without
        pairs = ((name, as_said.answers[name], without.answers[name]) for name in as_said.answers)
        worse = {name: min(one, other, key=lambda each: _ANSWERS.index(each.answer)) for name, one, other in pairs}
        repairs = tuple(sorted({*as_said.repairs, *without.repairs}))
        return ReplyJudgement(self.name, Status.MEASURED, None, worse, repairs)

    async def _rate(self, unit: str, shown: ItemText, said: ItemText) -> ReplyJudgement:
        def parse(reply: ChatReply) -> Readable[Mapping[str, RatedAnswer]]:
            return read_rating(reply.text, said, reply.finish)

        messages, schema = rating_question(shown, self.secret, self.participant.max_string)
        repair = wording().for_models["repair"]
        parsed, _ = await ask_judge(self.participant, unit, messages, schema, parse, repair=repair)
        if isinstance(parsed, Rejected):
            return ReplyJudgement(self.name, parsed.status, parsed.reason)
        return ReplyJudgement(self.name, Status.MEASURED, None, parsed.value, tuple(map(str, parsed.repairs)))


@dataclass(frozen=True)
class LexicalRater:
    """A built-in stand-in that goes by cues of `data/tempaffect/dry/reply_judge.toml` and asks nobody."""

    name: str

    async def rate(self, unit: str, text: ItemText) -> ReplyJudgement:  # as `ModelRater` has it
        """Judge a reply."""
        sentences = [found for each in _SENTENCE.findall(text.assistant) if (found := each.strip())] or [text.assistant]
        answers = {}
        for question, (cue, tells) in _cues().items():
            told = next((sentence for sentence in sentences if cue.search(sentence)), None)
            good = (told is None) != tells
            answers[question] = RatedAnswer("yes" if good else "no", told or sentences[0], "exact")
        return ReplyJudgement(self.name, Status.MEASURED, None, answers)


@cache
def _cues() -> Mapping[str, tuple[re.Pattern[str], bool]]:
    """By question its cue, and whether the cue tells a yes."""
    table = read_toml(data_root() / "tempaffect" / "dry" / "reply_judge.toml")
    rows = {name: table[name] for name in TEMPAFFECT_QUESTIONS}
    return {name: (re.compile(row["cue"], re.IGNORECASE), row["tells"] == "yes") for name, row in rows.items()}


def rating_question(
    text: ItemText, secret: str, longest: int | None = None
) -> tuple[tuple[Message, ...], dict[str, JsonValue]]:
    """What a model is asked about a reply, and the JSON schema of its answer. longest: as for `chunk_schema`."""
    fence = fence_of(secret, [Message("user", text.user), Message("assistant", text.assistant)])
    words = {name: said.replace("{fence}", fence) for name, said in wording().for_models.items()}
    parts = [without_control_tokens(part) for part in (text.situation, text.user, text.assistant)]
    befores = (words["before_situation"], words["before_user"], words["before_reply"])
    fenced = [line for before, part in zip(befores, parts, strict=True) for line in (before, fence, part, fence)]
    body = "\n".join([words["fence_rule"], *fenced, words["after"]])
    one = json_object({"answer": {"type": "string", "enum": ["yes", "no", CANNOT_TELL]}, "quote": json_string(longest)})
    schema = json_object({"reasoning": json_string(longest), **dict.fromkeys(TEMPAFFECT_QUESTIONS, one)})
    return (Message("system", _instructions()), ComposedMessage("user", body, tuple(parts))), schema


@cache
def _instructions() -> str:
    words = wording()
    questions = (f"{name}\n  {words.tempaffect[name]}" for name in TEMPAFFECT_QUESTIONS)
    return "\n\n".join([words.guides["tempaffect"], *questions, words.for_models["instructions"]])


def rating_hash() -> str:
    """Hex SHA-256 of every word that judges of replies are given."""
    return digest([_instructions(), dict(wording().for_models)])


def read_rating(text: str, said: ItemText, finish: str = "stop") -> Readable[Mapping[str, RatedAnswer]]:
    """Read the answers. One whose evidence is not in the reply counts as "cannot tell". Raises `Unreadable`."""
    repairs: set[Repair] = set()
    given = read_object(text, finish, TEMPAFFECT_QUESTIONS, [said.situation, said.user, said.assistant], repairs)
    return Readable(
        {name: _read(name, given[name], said, repairs) for name in TEMPAFFECT_QUESTIONS}, tuple(sorted(repairs))
    )


def _read(name: str, given: object, said: ItemText, repairs: set[Repair]) -> RatedAnswer:
    if not isinstance(given, dict) or set(given) != {"answer", "quote"}:
        raise Unreadable(ReasonCode.WRONG_SHAPE, f"{name}: expected an object with exactly answer and quote")
    word, quote = given["answer"], given["quote"]
    if not isinstance(word, str) or not isinstance(quote, str):
        raise Unreadable(ReasonCode.WRONG_TYPE, f"{name}: expected answer and quote as strings")
    if len(quote) > MAX_QUOTE_CHARS:
        detail = f"{name}.quote: {len(quote):,} characters, the limit is {MAX_QUOTE_CHARS}"
        raise Unreadable(ReasonCode.QUOTE_TOO_LONG, detail)
    plain = word.strip().lower().replace("_", " ")
    answer = next((one for one in _ANSWERS if one == plain), None)
    if answer is None:
        raise Unreadable(ReasonCode.OUT_OF_RANGE, f"{name}.answer: expected yes, no or cannot tell, got {word[:40]!r}")
    if answer != word:
        repairs.add(Repair.NAME)
    users = [SourceText(0, said.user), SourceText(0, said.situation)]
    found = located_finding(name, quote, 1, "", [SourceText(0, said.assistant)], users)
    return RatedAnswer(CANNOT_TELL if found.evidence == "unlocated" else answer, found.quote, found.evidence)


def scorer_answers(item: Item) -> dict[str, bool]:
    """What the scorer says to the questions, as far as it can tell: of the reply, as raters do who see no labels."""
    if item.checks is None:
        return {}
    known = {name: getattr(item.checks, name) for name in TEMPAFFECT_QUESTIONS[:3]}
    known["right_decision"] = item.checks.decision.right if item.checks.decision else None
    known["useful_bounded"] = item.checks.useful_bounded
    return {name: answer for name, answer in known.items() if answer is not None}


def disputed(item: Item) -> list[str]:
    """The questions to which the scorer and the judges of a reply give a yes and a no. "Cannot tell" is neither."""
    own = scorer_answers(item)
    found = []
    for name in TEMPAFFECT_QUESTIONS:
        given = {judged.answers[name].answer for judged in item.judged if name in judged.answers}
        given |= {"yes" if own[name] else "no"} if name in own and given else set()
        found += [name] if {"yes", "no"} <= given else []
    return found
