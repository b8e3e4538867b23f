"""Labelled assistant turns, against which a judge is measured, and how far their raters agree.

Four sources: the shipped sets, with one file of labels per rater; a user's JSONL file, one object a line, as
docs/how-to/calibrate-a-judge.md has it; a label file, as `pytest-spiral label merge` writes it; and a result file in
upstream's format, whose judges then are the raters. Raters are kept apart; `reference` is the majority of those who
looked, and in a label file what was adjudicated or agreed on.

A behaviour is absent from a turn only where somebody looked for it: where `labelled` names it, in the first line for
all turns or in a turn for that turn, or where its label is 0. Where nothing says what was looked at, only what is named
counts: whether the rest is absent or was not looked for cannot be known.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median_low
from typing import Annotated, Literal

from pydantic import Field, JsonValue, ValidationError

from pytest_spiral.errors import DataError
from pytest_spiral.hashing import digest
from pytest_spiral.labelling.files import EXTRA_STRATA, LabelledItem, Strength, begins_with, read_labels
from pytest_spiral.report.model.judges import LabelledBy
from pytest_spiral.resources import data_root, naming_faults, read_text, unique_keys
from pytest_spiral.spiral.agreement import strengths
from pytest_spiral.spiral.chunks import Chunk, Exchange
from pytest_spiral.spiral.records import behaviour_name
from pytest_spiral.spiral.upstream import load_upstream
from pytest_spiral.status import Status
from pytest_spiral.tables import Table, read_table

TurnLabels = dict[str, Strength]
Looked = tuple[str, ...] | dict[str, tuple[str, ...]]
"""The behaviours that were looked for: by all raters, or by each."""
_Text = Annotated[str, Field(min_length=1, max_length=100_000)]
_Id = Annotated[str, Field(min_length=1, max_length=200)]
MAX_TURNS = 20_000
_SHOWN_TO_RATERS = ("opening", "before", "user", "assistant")
# Folders of `data/spiral/`, one set of turns for each rubric.
_SHIPPED = ("calibration", "calibration_2")
_UNNAMED = "judge of the file"
_MODELS: LabelledBy = "model raters"
_KINDS: Mapping[str, str] = {"person": "a person", "model": "a language model"}


class _Turn(Table):
    id: _Id
    about: tuple[str, ...] = ()
    opening: str = ""
    before: str = ""
    user: str
    assistant: _Text


class _Turns(Table):
    canary: str
    about: str
    turns: Annotated[tuple[_Turn, ...], Field(min_length=1)]


class _RaterFile(Table):
    canary: str = ""
    rater: _Text
    role: Literal["rater", "author"]
    kind: _Text
    labelled: tuple[str, ...]
    labels: dict[str, TurnLabels]
    called_for: dict[str, TurnLabels] = Field(default_factory=dict)
    """Marks of the user's messages, for a rubric that has them."""


class _Header(Table):
    labelled: Looked


class _Row(_Turn):
    labels: dict[str, Strength | TurnLabels]
    labelled: Looked | None = None


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """One exchange with labels.

    Attributes:
        unit: The conversation it comes from.
        about: What it was written to test.
        labels: Strength by behaviour, by rater.
        labelled: The behaviours that each rater looked for.
        before: The reply before the user's message, as context.
        settled: What was adjudicated or agreed on, by behaviour; None where the majority decides.
    """

    id: str
    unit: str
    opening: str
    user: str
    assistant: str
    about: tuple[str, ...]
    labels: Mapping[str, Mapping[str, int]]
    labelled: Mapping[str, frozenset[str]]
    before: str = ""
    settled: Mapping[str, int] | None = None

    @property
    def chunk(self) -> Chunk:
        """What a judge is shown."""
        context = (Exchange(0, "", self.before),) if self.before else ()
        return Chunk(0, (Exchange(0, self.user, self.assistant),), context)

    @property
    def behaviours(self) -> frozenset[str]:
        """What anybody looked for."""
        return frozenset().union(*self.labelled.values())

    @property
    def is_disputed(self) -> bool:
        """Whether raters who looked for the same differ."""
        return any(len(set(self.given(name).values())) > 1 for name in self.behaviours)

    def given(self, behaviour: str) -> dict[str, int]:
        """The strength by rater, 0 for absent, of those who looked for it."""
        return {rater: self.labels[rater].get(behaviour, 0) for rater, of in self.labelled.items() if behaviour in of}

    def reference(self, behaviour: str) -> int | None:
        """The lower median of the strengths that raters gave; 0 where no more than half of those who looked gave one.

        Of a label file, what was settled. None where nobody looked, or nothing was settled.
        """
        if self.settled is not None:
            return self.settled.get(behaviour)
        given = self.given(behaviour)
        seen = [strength for strength in given.values() if strength]
        return (median_low(seen) if 2 * len(seen) > len(given) else 0) if given else None


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """Labelled turns from one source; `hash` compares contents.

    Attributes:
        raters: Name and kind of each.
        basis: How it is known what they looked for.
        whose: Whose labels they are.
    """

    name: str
    turns: tuple[LabelledTurn, ...]
    raters: Mapping[str, str]
    basis: str
    whose: LabelledBy = "unknown"

    @cached_property
    def hash(self) -> str:
        """Hex SHA-256 of every turn, every rater's label, and what was looked for."""
        return digest(
            [
                [
                    *(t.id, t.unit, t.opening, t.user, t.assistant, *([t.before] if t.before else ())),
                    *([dict(t.settled)] if t.settled is not None else ()),
                    {rater: [dict(given), sorted(t.labelled[rater])] for rater, given in t.labels.items()},
                ]
                for t in self.turns
            ]
        )


def load_labels(path: Path | None, behaviours: Sequence[str]) -> LabelledSet:
    """The shipped set for None, else a label file, a user's JSONL file or a result file in upstream's format.

    Args:
        path: The file.
        behaviours: Known names; others are errors in a user's file and left out of a result file.

    Raises:
        DataError: A file is wrong; the message names file, line and key.
    """
    if path is None:
        return _shipped(behaviours)
    if begins_with(path):
        return _from_label_file(path, behaviours)
    return (_from_results if path.suffix == ".json" else _from_lines)(path, behaviours)


def _shipped(behaviours: Sequence[str]) -> LabelledSet:
    """The shipped set whose raters looked for behaviours of this protocol alone."""
    for name in _SHIPPED:
        folder = data_root() / "spiral" / name
        files = {path: read_table(_RaterFile, path) for path in sorted((folder / "labels").glob("*.json"))}
        # What the turns' author meant is no rater's reading.
        raters = {file.rater: file for file in files.values() if file.role == "rater"}
        if {name for file in raters.values() for name in file.labelled} <= {*behaviours}:
            break
    else:
        raise DataError(
            "no shipped labels are for this protocol's rubric; calibrate on labels of your own with "
            "`pytest-spiral calibrate --labels FILE`, see docs/how-to/calibrate-a-judge.md"
        )
    turns = read_table(_Turns, folder / "turns.json").turns
    for path, file in files.items():
        if odd := sorted(set(file.labels) ^ {turn.id for turn in turns}):
            raise DataError(f"{path}: labels: {odd[0]} is in only one of it and turns.json")
    labelled = tuple(
        LabelledTurn(
            **{**dict(turn), "unit": turn.id},
            labels={name: file.labels[turn.id] for name, file in raters.items()},
            labelled={name: frozenset(file.labelled) for name, file in raters.items()},
        )
        for turn in turns
    )
    kinds = {name: file.kind for name, file in raters.items()}
    return LabelledSet("shipped", labelled, kinds, "each rater's file says what was looked for", _MODELS)


def shipped_turns(name: str, ids: Sequence[str]) -> LabelledSet:
    """These turns of a shipped set, without their labels."""
    turns = {turn.id: turn for turn in read_table(_Turns, data_root() / "spiral" / name / "turns.json").turns}
    bare = (LabelledTurn(**{**dict(turns[turn_id]), "unit": turn_id}, labels={}, labelled={}) for turn_id in ids)
    return LabelledSet(name, tuple(bare), {}, "")


def _from_label_file(path: Path, behaviours: Sequence[str]) -> LabelledSet:
    file = read_labels(path)
    header = file.header
    if header.suite != "spiral":
        raise DataError(f"{path}: labels of TempAffect replies; judges are measured on turns of Spiral-Bench")
    _check(header.questions, behaviours, f"{path}: questions")
    # Drawn by what judges said of them, the others would bias sensitivity and specificity.
    core = [row for row in file.items if row.stratum not in EXTRA_STRATA]
    turns = []
    for row in core:
        if row.text is None:
            raise DataError(f"{path}: {row.item}: text: missing key; judges need what the raters saw")
        given = {
            rater: {q: n for q in header.questions if (n := row.given(q).get(rater)) is not None}
            for rater in row.labels
        }
        turns.append(
            LabelledTurn(
                **row.text.model_dump(exclude={"situation", "history"}),
                id=f"{row.model} {row.item}".strip(),
                unit=row.cluster,
                about=(),
                labels=given,
                labelled={name: frozenset(answers) for name, answers in given.items()},
                settled={q: n for q in header.questions if (n := _settled(row, q)) is not None},
            )
        )
    kept = tuple(turn for turn in turns if turn.settled)
    if not kept:
        raise DataError(f"{path}: no turn in it with a label on which its raters agree")
    differ = sum(row.disputed(q) and q not in row.adjudicated for row in core for q in header.questions)
    basis = f"what nobody answered is not labelled; {differ} answers on which raters differ are not adjudicated"
    if extra := len(file.items) - len(core):
        basis += f"; {extra} turns outside the random core are left out, because judges had a say in drawing them"
    kinds = {rater.name: _KINDS[rater.kind] for rater in header.raters}
    return LabelledSet(path.name, kept, kinds, basis, whose=header.whose)


def _settled(row: LabelledItem, question: str) -> int | None:
    """The truth; the lowest strength of raters who agree only that a behaviour is there."""
    agreed = row.truth(question)
    return min(row.given(question).values()) if agreed is None and row.present(question) else agreed


def _from_lines(path: Path, behaviours: Sequence[str]) -> LabelledSet:
    turns: dict[str, LabelledTurn] = {}
    header: Looked | None = None
    unstated = 0
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        if not turns and header is None and (header := _header(line)) is not None:
            _check(_names(header), behaviours, f"{where}: labelled")
            continue
        with naming_faults(where, "line", "; see docs/how-to/calibrate-a-judge.md"):
            row = _Row.model_validate_json(unique_keys(line, where))
        if row.id in turns:
            raise DataError(f"{where}: id: {row.id!r} is there twice")
        if len(turns) >= MAX_TURNS:
            raise DataError(f"{where}: more than {MAX_TURNS:,} turns")
        labels = {name: value for name, value in row.labels.items() if isinstance(value, dict)}
        flat = {name: value for name, value in row.labels.items() if isinstance(value, int)}
        if labels and flat:
            raise DataError(f"{where}: labels: either behaviours or raters, not both")
        labels = labels or {"rater": flat}
        looked = header if row.labelled is None else row.labelled
        unstated += looked is None
        labelled = _labelled(labels, looked, behaviours, where)
        turns[row.id] = LabelledTurn(**{**dict(row), "unit": row.id, "labels": labels, "labelled": labelled})
    # Nothing could be learned from a judgement of the others.
    kept = tuple(turn for turn in turns.values() if turn.behaviours)
    if not kept:
        raise DataError(f"{path}: no labelled turn in it; see docs/how-to/calibrate-a-judge.md")
    basis = "the file says what was looked for"
    if unstated:
        named = [name for name in behaviours if any(name in turn.behaviours for turn in kept)]
        basis = (
            f"{unstated} of {len(turns)} turns do not say what was looked for, so only the behaviours that they name "
            f"count; if all turns were read for these, make this the first line: {json.dumps({'labelled': named})}"
        )
    if len(kept) < len(turns):
        basis += f"; {len(turns) - len(kept)} turns for which nobody looked for anything are left out"
    raters = dict.fromkeys((name for turn in kept for name in turn.labels), "not stated")
    return LabelledSet(path.name, kept, raters, basis)


def _header(line: str) -> Looked | None:
    try:
        return _Header.model_validate_json(line).labelled
    except ValidationError:
        return None


def _names(looked: Looked) -> list[str]:
    return [name for of in looked.values() for name in of] if isinstance(looked, dict) else list(looked)


def _labelled(
    labels: Mapping[str, Mapping[str, int]], looked: Looked | None, behaviours: Sequence[str], where: str
) -> dict[str, frozenset[str]]:
    """What each rater of a turn looked for. looked: what the file says; None for nothing."""
    for given in labels.values():
        _check(given, behaviours, f"{where}: labels")
    if looked is None:
        # What only some raters name, the others may have found absent.
        return dict.fromkeys(labels, frozenset(set.intersection(*map(set, labels.values()))))
    _check(_names(looked), behaviours, f"{where}: labelled")
    by_rater = looked if isinstance(looked, dict) else dict.fromkeys(labels, looked)
    for rater, given in labels.items():
        if odd := [name for name in given if name not in by_rater.get(rater, ())]:
            fault = f"{odd[0]!r} has a label, and 'labelled' does not name it; name it in both or none"
            raise DataError(f"{where}: labels: {fault}")
    return {rater: frozenset(by_rater.get(rater, ())) for rater in labels}


def _from_results(path: Path, behaviours: Sequence[str]) -> LabelledSet:
    turns = []
    looked: set[str] = set()
    for conversation in load_upstream(path):
        if conversation.status is not Status.MEASURED:
            continue
        transcript = conversation.transcript
        places = [place for place, message in enumerate(transcript) if message.role == "assistant"]
        judged: dict[tuple[int, int], dict[str, Mapping[str, int]]] = defaultdict(dict)
        for judgement in conversation.judgements:
            if judgement.status is not Status.MEASURED or len(judgement.turns) != 1:
                continue
            looked |= {*judgement.behaviours}.intersection(behaviours)
            strongest = {name: n for (_, name), n in strengths(judgement).items() if name in behaviours}
            judged[judgement.index, judgement.turns[0]][judgement.judge or _UNNAMED] = strongest
        for (index, turn), labels in judged.items():
            place = places[turn]
            before = transcript[place - 1]
            turns.append(
                LabelledTurn(
                    id=f"{conversation.id}-{index}",
                    unit=conversation.id,
                    opening=transcript[0].content,
                    user=before.content if before.role == "user" else "",
                    assistant=transcript[place].content,
                    about=(conversation.category,),
                    labels=labels,
                    labelled={},
                )
            )
    if not 0 < len(turns) <= MAX_TURNS:
        raise DataError(f"{path}: {len(turns):,} judged turns in it; give a file with 1 to {MAX_TURNS:,}")
    turns = [replace(turn, labelled=dict.fromkeys(turn.labels, frozenset(looked))) for turn in turns]
    basis = "a judge has one rubric for all turns, so what it names in one it looked for in all"
    raters = dict.fromkeys(rater for turn in turns for rater in turn.labels)
    kinds = {name: "a language model" + (", not named" if name == _UNNAMED else "") for name in raters}
    return LabelledSet(path.name, tuple(turns), kinds, basis, whose=_MODELS)


def _check(names: Iterable[str], behaviours: Sequence[str], where: str) -> None:
    for name in names:
        if behaviour_name(name) != name or name not in behaviours:
            raise DataError(f"{where}: {name!r} is no behaviour; there are {', '.join(behaviours)}")


def sheet(labelled: LabelledSet, rater: str) -> list[dict[str, JsonValue]]:
    """The turns for another rater: under ids and in an order of the rater's own, without any label or hint.

    The turns' own ids follow what they were written for. Before the turns comes what to look for in them.
    """
    rows = {digest([rater, turn.id])[:12]: turn for turn in labelled.turns}
    looked_for = sorted({name for turn in labelled.turns for name in turn.behaviours})
    turns = (
        {"id": key, **{part: getattr(rows[key], part) for part in _SHOWN_TO_RATERS}, "labels": {}}
        for key in sorted(rows)
    )
    return [{"labelled": [*looked_for]}, *turns]
