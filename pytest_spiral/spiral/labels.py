"""Labelled assistant turns: what a judge is measured against.

Three sources. The shipped set in `data/spiral/calibration/`, with one file of labels per rater, and files of what the
turns' author meant, which are no raters' and make no truth. A user's JSONL file, one object a line:

    {"id": "a-1", "user": "...", "assistant": "...", "labels": {"harmful_advice": 3}}

`opening` may be there; `labels` may also name raters, `{"labels": {"ann": {...}, "ben": {...}}}`; a behaviour that is
not named is absent. And a result file in upstream's format, whose judge then is the rater. Raters are kept apart;
`reference` is their majority.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median_low
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.hashing import digest
from pytest_spiral.resources import data_root, read_json, read_text
from pytest_spiral.spiral.chunks import Chunk, Exchange
from pytest_spiral.spiral.records import Conversation, Finding, behaviour_name
from pytest_spiral.spiral.upstream import load_upstream
from pytest_spiral.status import Status

__all__ = ["LabelledSet", "LabelledTurn", "load_labels", "sheet"]

M = TypeVar("M", bound=BaseModel)
Strength = Annotated[int, Field(ge=0, le=3)]
Labels = dict[str, Strength]
Text = Annotated[str, Field(min_length=1, max_length=100_000)]
MAX_TURNS = 20_000


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Turn(_Table):
    id: Annotated[str, Field(min_length=1, max_length=200)]
    about: tuple[str, ...] = ()
    user: str
    assistant: Text


class _Turns(_Table):
    canary: str
    about: str
    turns: Annotated[tuple[_Turn, ...], Field(min_length=1)]


class _RaterFile(_Table):
    canary: str = ""
    rater: Text
    role: Literal["rater", "author"]
    kind: Text
    labels: dict[str, Labels]


class _Row(_Table):
    id: Annotated[str, Field(min_length=1, max_length=200)]
    opening: str = ""
    user: str
    assistant: Text
    about: tuple[str, ...] = ()
    labels: dict[str, Strength | Labels]


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """One exchange with labels. unit: the conversation it comes from. labels: strength by behaviour, by rater. meant:
    the same by reading of the turn's author; no part of the reference."""

    id: str
    unit: str
    opening: str
    user: str
    assistant: str
    about: tuple[str, ...]
    labels: Mapping[str, Mapping[str, int]]
    meant: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def chunk(self) -> Chunk:
        """What a judge is shown."""
        return Chunk(0, (Exchange(0, self.user, self.assistant, cut=False),))

    def reference(self, behaviour: str) -> int:
        """The strength that the raters together give: the median, to the lower side, of those who gave one; 0 where no
        more than half of them did."""
        given = [labels.get(behaviour, 0) for labels in self.labels.values()]
        seen = [strength for strength in given if strength]
        return median_low(seen) if 2 * len(seen) > len(given) else 0


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """Labelled turns from one source. raters: name and kind of each. authors: the same of the author's readings.

    Two sets are the same set only if they are one object; `hash` compares contents.
    """

    name: str
    turns: tuple[LabelledTurn, ...]
    raters: Mapping[str, str]
    authors: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def hash(self) -> str:
        """Hex SHA-256 of every turn and every rater's label."""
        return digest(
            [
                [t.id, t.unit, t.opening, t.user, t.assistant, {r: dict(found) for r, found in t.labels.items()}]
                for t in self.turns
            ]
        )


def load_labels(path: Path | None, behaviours: Sequence[str]) -> LabelledSet:
    """The shipped set for None, else a user's JSONL file or a result file in upstream's format.

    behaviours: known names; others are errors in a user's file and left out of a result file. Raises `DataError` naming
    file, line and key.
    """
    if path is None:
        return _shipped(data_root() / "spiral" / "calibration", behaviours)
    if path.suffix == ".json":
        return _from_results(path, behaviours)
    return _from_lines(path, behaviours)


def _shipped(folder: Path, behaviours: Sequence[str]) -> LabelledSet:
    turns = _validated(_Turns, read_json(folder / "turns.json"), folder / "turns.json")
    known = [turn.id for turn in turns.turns]
    found: dict[str, _RaterFile] = {}
    for path in sorted((folder / "labels").glob("*.json")):
        rater = _rater(path, known, behaviours)
        if rater.rater in found:
            raise DataError(f"{path}: rater: {rater.rater!r} has another file already")
        found[rater.rater] = rater
    raters = [rater for rater in found.values() if rater.role == "rater"]
    authors = [rater for rater in found.values() if rater.role == "author"]
    if not raters:
        raise DataError(f"{folder / 'labels'}: no file of the role 'rater' in it")
    return LabelledSet(
        "shipped",
        tuple(
            LabelledTurn(
                turn.id, turn.id, "", turn.user, turn.assistant, turn.about,
                {rater.rater: rater.labels[turn.id] for rater in raters},
                {author.rater: author.labels[turn.id] for author in authors},
            )
            for turn in turns.turns
        ),
        {rater.rater: rater.kind for rater in raters},
        {author.rater: author.kind for author in authors},
    )  # fmt: skip


def _rater(path: Path, turns: Sequence[str], behaviours: Sequence[str]) -> _RaterFile:
    """One file of labels, by the ids of the turns or of the rater's sheet."""
    rater = _validated(_RaterFile, read_json(path), path)
    for turn, labels in rater.labels.items():
        _check(labels, behaviours, f"{path}: labels.{turn}")
    of_sheet = {_sheet_id(rater.rater, turn): turn for turn in turns}
    if set(rater.labels) == set(of_sheet):
        return rater.model_copy(update={"labels": {of_sheet[key]: found for key, found in rater.labels.items()}})
    odd = sorted(set(rater.labels) ^ set(turns))
    if odd:
        raise DataError(f"{path}: labels: {odd[0]} is in only one of it and turns.json")
    return rater


def _from_lines(path: Path, behaviours: Sequence[str]) -> LabelledSet:
    found: dict[str, LabelledTurn] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = _Row.model_validate_json(line)
        except ValidationError as error:
            raise DataError(f"{where}: {first_fault(error, 'line')}; see docs/how-to/calibrate-a-judge.md") from None
        if row.id in found:
            raise DataError(f"{where}: id: {row.id!r} is there twice")
        if len(found) >= MAX_TURNS:
            raise DataError(f"{where}: more than {MAX_TURNS:,} turns")
        found[row.id] = LabelledTurn(
            row.id, row.id, row.opening, row.user, row.assistant, row.about, _by_rater(row, behaviours, where)
        )
    if not found:
        raise DataError(f"{path}: no labelled turn in it")
    raters = dict.fromkeys((name for turn in found.values() for name in turn.labels), "not stated")
    return LabelledSet(path.name, tuple(found.values()), raters)


def _by_rater(row: _Row, behaviours: Sequence[str], where: str) -> dict[str, Labels]:
    nested = {name: value for name, value in row.labels.items() if isinstance(value, dict)}
    flat = {name: value for name, value in row.labels.items() if isinstance(value, int)}
    if nested and flat:
        raise DataError(f"{where}: labels: either behaviours or raters, not both")
    labels = nested or {"rater": flat}
    for given in labels.values():
        _check(given, behaviours, f"{where}: labels")
    return labels


def _from_results(path: Path, behaviours: Sequence[str]) -> LabelledSet:
    turns = []
    for conversation in load_upstream(path):
        for judgement in conversation.judgements if conversation.status is Status.MEASURED else ():
            if judgement.status is not Status.MEASURED or len(judgement.turns) != 1:
                continue
            user, assistant = _exchange(conversation, judgement.turns[0])
            labels = {"judge of the file": _strengths(judgement.findings, behaviours)}
            turns.append(
                LabelledTurn(
                    id=f"{conversation.id}-{judgement.index}",
                    unit=conversation.id,
                    opening=conversation.transcript[0].content,
                    user=user,
                    assistant=assistant,
                    about=(conversation.category,),
                    labels=labels,
                )
            )
    if not turns:
        raise DataError(f"{path}: no judged turn in it")
    return LabelledSet(path.name, tuple(turns[:MAX_TURNS]), {"judge of the file": "a language model, not named"})


def _exchange(conversation: Conversation, turn: int) -> tuple[str, str]:
    places = [place for place, message in enumerate(conversation.transcript) if message.role == "assistant"]
    before = conversation.transcript[places[turn] - 1]
    return before.content if before.role == "user" else "", conversation.replies[turn]


def _strengths(findings: Sequence[Finding], behaviours: Sequence[str]) -> Labels:
    found: Labels = {}
    for finding in findings:
        if finding.evidence != "unlocated" and finding.behaviour in behaviours:
            found[finding.behaviour] = max(finding.strength, found.get(finding.behaviour, 0))
    return found


def _check(labels: Mapping[str, int], behaviours: Sequence[str], where: str) -> None:
    for name in labels:
        if behaviour_name(name) != name or name not in behaviours:
            raise DataError(f"{where}: {name!r} is no behaviour; there are {', '.join(behaviours)}")


def _validated(model: type[M], value: Any, path: Path) -> M:
    try:
        return model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error)}") from None


def sheet(labelled: LabelledSet, rater: str) -> list[dict[str, Any]]:
    """The turns for another rater: under ids and in an order of the rater's own, without any label or hint.

    The turns' own ids follow what they were written for. Labels under the sheet's ids are read as they are from a
    file in `labels/` that bears the rater's name.
    """
    rows = {_sheet_id(rater, turn.id): turn for turn in labelled.turns}
    return [{"id": key, "user": rows[key].user, "assistant": rows[key].assistant, "labels": {}} for key in sorted(rows)]


def _sheet_id(rater: str, turn: str) -> str:
    return digest([rater, turn])[:12]
