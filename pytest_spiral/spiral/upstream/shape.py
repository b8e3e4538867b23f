"""What may stand in a result file: types, sizes and numbers are limited, and every complaint names the key.

Before version 1.2 a conversation has one map of judgements; since then a list of them, one per judge, in the order of
`__meta__.judges`. The summaries stored in such files were made by different versions; they are never read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pytest_spiral.text import whole_characters

META = "__meta__"
SUMMARY = "scoring_summary"
# Thirty conversations are 4 MB; these limits leave room for a thousand and none for an attack.
_MAX_MESSAGES = 2_001
_MAX_FINDINGS = 1_200
_MAX_KEYS = 200
_MAX_JUDGES = 20
_MAX_POINTS = 1e9
_CHUNK_NAME = re.compile(r"chunk(\d{1,6})")


def _readable(value: object) -> object:
    """Text without halves of surrogate pairs, which have no UTF-8 form."""
    return whole_characters(value) if isinstance(value, str) else value


def _quotes(findings: object) -> object:
    """A bare number claims points without quoting anything."""
    if isinstance(findings, bool) or not isinstance(findings, (int, float)):
        return findings
    if not abs(findings) <= _MAX_POINTS:
        raise ValueError(f"expected a number up to {_MAX_POINTS:g}, got {str(findings)[:40]}")
    return []


def _named(snippet: object) -> object:
    if isinstance(snippet, list) and len(snippet) == 2:
        return dict(zip(("snippet", "strength"), snippet, strict=True))
    if isinstance(snippet, dict):
        return snippet
    raise ValueError("expected a pair of snippet and strength")


_Text = Annotated[str, Field(max_length=2_000_000), BeforeValidator(_readable)]
_MessageText = Annotated[_Text, Field(max_length=1_000_000)]
_Name = Annotated[_Text, Field(max_length=1_000)]
_Number = Annotated[float, Field(ge=-_MAX_POINTS, le=_MAX_POINTS)]
_Points = Annotated[_Number, Field(ge=0)]
_Score = Annotated[_Number, Field(ge=0, le=10)]


class _Part(BaseModel):
    """A part of a file. Unknown keys are ignored; null is the same as a missing key."""

    model_config = ConfigDict(defer_build=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: object) -> object:
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


class StoredMessage(_Part):
    """A message of a transcript."""

    role: Literal["system", "user", "assistant"]
    content: _MessageText = ""


class Snippet(_Part):
    """A quote with its strength."""

    snippet: Annotated[_Text, Field(max_length=10_000)] = ""
    strength: _Number = 1


_Snippets = Annotated[
    list[Annotated[Snippet, BeforeValidator(_named)]], Field(max_length=_MAX_FINDINGS), BeforeValidator(_quotes)
]


class Chunk(_Part):
    """One judge's judgement of one chunk, or its error."""

    metrics: Annotated[dict[_Text, _Points], Field(max_length=_MAX_KEYS)] | None = None
    full_metrics: Annotated[dict[_Text, _Snippets], Field(max_length=_MAX_KEYS)] = {}
    assistant_turn_indexes: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=_MAX_MESSAGES)] = []
    assistant_length_chars: _Number | None = None
    called_for: Annotated[dict[_Name, Annotated[int, Field(ge=0, le=2)]], Field(max_length=_MAX_KEYS)] = {}
    raw_text: _Text = ""
    error: object = None


class Final(BaseModel):
    """Scores by metric, null where one is missing; or an error."""

    model_config = ConfigDict(defer_build=True, strict=True, extra="allow")
    __pydantic_extra__: dict[str, _Score | None]

    error: object = None


Chunks = Mapping[str, Chunk]
_OneJudge: TypeAdapter[dict[str, Chunk]] = TypeAdapter(
    Annotated[dict[str, Chunk], Field(max_length=1_000)], config=ConfigDict(defer_build=True, strict=True)
)
_PerJudge: TypeAdapter[list[dict[str, Chunk] | None]] = TypeAdapter(
    Annotated[list[Annotated[dict[str, Chunk], Field(max_length=1_000)] | None], Field(max_length=_MAX_JUDGES)],
    config=ConfigDict(defer_build=True, strict=True),
)


def _judgements(value: object) -> object:
    """A list or a map, and no union of both: complaints would name neither's keys."""
    return (_PerJudge if isinstance(value, list) else _OneJudge).validate_python(value)


class Entry(_Part):
    """A conversation."""

    prompt_id: _Name = ""
    category: _Name = ""
    evaluated_model: _Name = ""
    judge_model: _Name = ""
    user_model: _Text = ""
    prompt_file: _Text = ""
    instruction_file: _Text = ""
    injection_file: _Text = ""
    user_system_prompt: _Text = ""
    evaluated_system_prompt: _Text = ""
    convo_index: Annotated[int, Field(ge=0, le=999_999)] = 0
    prompts: Annotated[list[_MessageText | None], Field(max_length=_MAX_MESSAGES)] = []
    transcript: Annotated[list[StoredMessage], Field(max_length=_MAX_MESSAGES)] = []
    injections_log: Annotated[list[_Text | None], Field(max_length=_MAX_MESSAGES)] = []
    completed: bool = True
    errors: Annotated[list[object], Field(max_length=10_000)] = []
    judgements: Annotated[dict[str, Chunk] | list[dict[str, Chunk] | None], PlainValidator(_judgements)] = {}
    final_judgements: Annotated[list[Final | None], Field(max_length=_MAX_JUDGES)] = []
    final_judgement: Final | None = None

    @model_validator(mode="after")
    def _check_chunks(self) -> Entry:
        replies = sum(message.role == "assistant" for message in self.transcript)
        if isinstance(self.judgements, dict):
            _check_chunks(self.judgements, replies, ("judgements",))
        else:
            turns: dict[str, Sequence[int]] = {}
            for number, chunks in enumerate(self.judgements):
                _check_chunks(chunks or {}, replies, ("judgements", number))
                for name, chunk in (chunks or {}).items():
                    stated = chunk.assistant_turn_indexes
                    if stated and turns.setdefault(name, stated) != stated:
                        place = ("judgements", number, name, "assistant_turn_indexes")
                        raise _fault(place, "expected the same turns as of the other judges")
        return self

    def most_judgements(self, judges: Sequence[str]) -> int:
        """At most so many judgements are made of it, one of each chunk by each judge."""
        maps = self.judgements if isinstance(self.judgements, list) else [self.judgements]
        return max(len(judges), 1) * sum(len(chunks or ()) for chunks in maps)

    def by_judge(
        self, judges: Sequence[str]
    ) -> tuple[Sequence[tuple[str, Chunks]], Sequence[tuple[str, Final | None]]]:
        """Chunks and final judgement of each judge. judges: of the run; of an earlier version none is listed.

        Raises:
            ValidationError: The lists do not fit the judges.
        """
        if isinstance(self.judgements, list):
            maps = [chunks or {} for chunks in self.judgements]
        elif len(judges) > 1 and self.judgements:
            raise _fault(("judgements",), f"expected a list of {len(judges)} objects, one per judge, got one object")
        else:
            maps = [self.judgements] if self.judgements else []
        finals = self.final_judgements
        if not finals and self.final_judgement is not None:
            if len(judges) > 1:
                raise _fault(("final_judgements",), "missing key; without it, nobody knows which judge gave the score")
            finals = [self.final_judgement]
        names = judges or [self.judge_model]
        for key, given in (("judgements", maps), ("final_judgements", finals)):
            if given and len(given) != len(names):
                named = f"{META}.judges names {len(judges)}" if judges else f"there is no {META}.judges to name them"
                raise _fault((key,), f"{len(given)} entries, one per judge, but {named}")
        return [*zip(names, maps, strict=False)], [*zip(names, finals, strict=False)]


def _check_chunks(chunks: Chunks, replies: int, place: tuple[str | int, ...]) -> None:
    seen: set[int] = set()
    for name, chunk in chunks.items():
        match = _CHUNK_NAME.fullmatch(name)
        if match is None:
            raise _fault(place, f"expected chunk0, chunk1, ..., got {name[:60]!r}")
        if int(match[1]) in seen:
            raise _fault(place, f"chunk {int(match[1])} occurs twice")
        seen.add(int(match[1]))
        if sum(map(len, chunk.full_metrics.values())) > _MAX_FINDINGS:
            raise _fault((*place, name, "full_metrics"), f"more than {_MAX_FINDINGS:,} findings")
        turns = chunk.assistant_turn_indexes
        if turns != sorted(set(turns)) or (turns and turns[-1] >= replies):
            expected = f"increasing numbers below {replies}, the number of assistant messages"
            raise _fault((*place, name, "assistant_turn_indexes"), f"expected {expected}")


def _fault(place: tuple[str | int, ...], message: str) -> ValidationError:
    """A fault in a part of what is validated."""
    error = PydanticCustomError("value_error", "{message}", {"message": message})
    return ValidationError.from_exception_data("file", [InitErrorDetails(type=error, loc=place, input=None)])


class _Judge(_Part):
    """Base URLs, which may hold keys, are not read."""

    model: Annotated[_Name, Field(min_length=1)]


class _Meta(_Part):
    judges: Annotated[list[_Judge], Field(max_length=_MAX_JUDGES)] = []


class StoredRun(BaseModel):
    """A run: its judges, and conversations by prompt in `model_extra`, by file key."""

    model_config = ConfigDict(defer_build=True, strict=True, extra="allow")
    __pydantic_extra__: dict[str, dict[str, list[Entry]]]

    meta: _Meta | None = Field(None, alias="__meta__")
    scoring_summary: object = None

    @property
    def judges(self) -> tuple[str, ...]:
        """Names of the judges: their models, numbered where one occurs again."""
        names: dict[str, None] = {}
        for judge in self.meta.judges if self.meta else ():
            number, name = 1, judge.model
            while name in names:
                number += 1
                name = f"{judge.model}#{number}"
            names[name] = None
        return tuple(names)

    @property
    def files(self) -> Mapping[str, Mapping[str, Sequence[Entry]]]:
        """Conversations by file and prompt."""
        return self.__pydantic_extra__

    @model_validator(mode="after")
    def _check_judges(self) -> StoredRun:
        for file_key, prompts in self.files.items():
            for prompt_key, entries in prompts.items():
                for number, entry in enumerate(entries):
                    try:
                        entry.by_judge(self.judges)
                    except ValidationError as error:
                        fault = error.errors()[0]
                        raise _fault((file_key, prompt_key, number, *fault["loc"]), fault["msg"]) from None
        return self


FILE: TypeAdapter[dict[str, StoredRun]] = TypeAdapter(dict[str, StoredRun], config=ConfigDict(defer_build=True))
