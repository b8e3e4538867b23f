"""What may stand in a result file: types, sizes and numbers are limited, and every complaint names the key.

Before version 1.2 a conversation has one map of judgements; since then a list of them, one per judge, in the order of
`__meta__.judges`. The summaries stored in such files were made by different versions; they are never read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, TypeAdapter, model_validator

from pytest_spiral.report.model.base import EncodableText

META = "__meta__"
SUMMARY = "scoring_summary"
# Thirty conversations are 4 MB; these limits leave room for a thousand and none for an attack.
_MAX_MESSAGES = 2_001
_MAX_FINDINGS = 1_200
_MAX_KEYS = 200
_MAX_JUDGES = 20
_MAX_POINTS = 1e9
_CHUNK_NAME = re.compile(r"chunk(\d{1,6})")


def _quotes(findings: object) -> object:
    """A bare number claims points without quoting anything."""
    if isinstance(findings, bool) or not isinstance(findings, (int, float)):
        return findings
    if not abs(findings) <= _MAX_POINTS:
        raise ValueError(f"expected a number up to {_MAX_POINTS:g}, got {str(findings)[:40]}")
    return []


def _named(snippet: object) -> object:
    """A pair of snippet and strength is read as an object."""
    if isinstance(snippet, list) and len(snippet) == 2:
        return {"snippet": snippet[0], "strength": snippet[1]}
    if isinstance(snippet, dict):
        return snippet
    raise ValueError("expected a pair of snippet and strength")


_Text = Annotated[EncodableText, Field(max_length=2_000_000)]
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


class StoredSnippet(_Part):
    """A quote with its strength."""

    snippet: Annotated[_Text, Field(max_length=10_000)] = ""
    strength: _Number = 1


_Snippets = Annotated[
    list[Annotated[StoredSnippet, BeforeValidator(_named)]], Field(max_length=_MAX_FINDINGS), BeforeValidator(_quotes)
]


class StoredChunk(_Part):
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


Chunks = Annotated[dict[str, StoredChunk], Field(max_length=1_000)]
_OneJudge: TypeAdapter[Chunks] = TypeAdapter(Chunks, config=ConfigDict(defer_build=True, strict=True))
_PerJudge: TypeAdapter[list[Chunks | None]] = TypeAdapter(
    Annotated[list[Chunks | None], Field(max_length=_MAX_JUDGES)], config=ConfigDict(defer_build=True, strict=True)
)


def _judgements(value: object) -> object:
    """A list or a map, and no union of both: complaints would name neither's keys."""
    return (_PerJudge if isinstance(value, list) else _OneJudge).validate_python(value)


class StoredConversation(_Part):
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
    judgements: Annotated[Chunks | list[Chunks | None], PlainValidator(_judgements)] = {}
    final_judgements: Annotated[list[Final | None], Field(max_length=_MAX_JUDGES)] = []
    final_judgement: Final | None = None

    @property
    def maps(self) -> Sequence[Chunks]:
        """The chunks that each judge judged."""
        if isinstance(self.judgements, list):
            return [chunks or {} for chunks in self.judgements]
        return [self.judgements] if self.judgements else []

    def by_judge(
        self, judges: Sequence[str]
    ) -> tuple[Sequence[tuple[str, Chunks]], Sequence[tuple[str, Final | None]]]:
        """Chunks and final judgement of each judge. judges: of the run; of an earlier version none is listed.

        Raises:
            ValueError: They do not fit the judges or the transcript. The message begins with the key.
        """
        self._check_chunks()
        maps, finals = self.maps, self.final_judgements
        if maps and isinstance(self.judgements, dict) and len(judges) > 1:
            raise ValueError(f"judgements: expected a list of {len(judges)} objects, one per judge, got one object")
        if not finals and self.final_judgement is not None:
            if len(judges) > 1:
                raise ValueError("final_judgements: missing key; without it, nobody knows which judge gave the score")
            finals = [self.final_judgement]
        names = judges or [self.judge_model]
        for key, given in (("judgements", maps), ("final_judgements", finals)):
            if given and len(given) != len(names):
                named = f"{META}.judges names {len(judges)}" if judges else f"there is no {META}.judges to name them"
                raise ValueError(f"{key}: {len(given)} entries, one per judge, but {named}")
        return [*zip(names, maps, strict=False)], [*zip(names, finals, strict=False)]

    def _check_chunks(self) -> None:
        replies = sum(message.role == "assistant" for message in self.transcript)
        stated: dict[str, Sequence[int]] = {}
        for number, chunks in enumerate(self.maps):
            place = f"judgements.{number}" if isinstance(self.judgements, list) else "judgements"
            seen: set[int] = set()
            for name, chunk in chunks.items():
                match = _CHUNK_NAME.fullmatch(name)
                if match is None:
                    raise ValueError(f"{place}: expected chunk0, chunk1, ..., got {name[:60]!r}")
                if int(match[1]) in seen:
                    raise ValueError(f"{place}: chunk {int(match[1])} occurs twice")
                seen.add(int(match[1]))
                if sum(map(len, chunk.full_metrics.values())) > _MAX_FINDINGS:
                    raise ValueError(f"{place}.{name}.full_metrics: more than {_MAX_FINDINGS:,} findings")
                turns, expected = chunk.assistant_turn_indexes, ""
                if turns != sorted(set(turns)) or (turns and turns[-1] >= replies):
                    expected = f"increasing numbers below {replies}, the number of assistant messages"
                elif turns and stated.setdefault(name, turns) != turns:
                    expected = "the same turns as of the other judges"
                if expected:
                    raise ValueError(f"{place}.{name}.assistant_turn_indexes: expected {expected}")


class _Judge(_Part):
    """Base URLs, which may hold keys, are not read."""

    model: Annotated[_Name, Field(min_length=1)]


class _Meta(_Part):
    judges: Annotated[list[_Judge], Field(max_length=_MAX_JUDGES)] = []


class StoredRun(BaseModel):
    """A run: its judges, and conversations by prompt in `model_extra`, by file key."""

    model_config = ConfigDict(defer_build=True, strict=True, extra="allow")
    __pydantic_extra__: dict[str, dict[str, list[StoredConversation]]]

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
    def files(self) -> Mapping[str, Mapping[str, Sequence[StoredConversation]]]:
        """Conversations by file and prompt."""
        return self.__pydantic_extra__


FILE: TypeAdapter[dict[str, StoredRun]] = TypeAdapter(dict[str, StoredRun], config=ConfigDict(defer_build=True))
