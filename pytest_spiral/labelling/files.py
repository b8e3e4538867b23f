"""The label file: what raters answered about replies of a run, with how the replies were drawn.

JSONL. The first line is the header, every further line an item: a TempAffect reply or a turn of a Spiral-Bench
conversation. A question that a rater did not answer, or answered with "cannot tell", is not labelled: never a "no".
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field

from pytest_spiral.errors import DataError
from pytest_spiral.report.model.base import Record
from pytest_spiral.report.model.corrected import Whose
from pytest_spiral.resources import naming_faults, read_text, unique_keys
from pytest_spiral.settings import SuiteName
from pytest_spiral.tables import Count
from pytest_spiral.tempaffect.records import Item, Mode
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.text import whole_characters

H = TypeVar("H", bound=Record)
T = TypeVar("T", bound=Record)
FORMAT: Final = "pytest-spiral labels"
MAX_ITEMS = 20_000
_MOST_CHARS = 100_000
CANNOT_TELL: Final = "cannot tell"
RaterKind = Literal["person", "model"]

TEMPAFFECT_QUESTIONS = ("content_grounding", "concrete_action", "non_defensive", "right_decision", "useful_bounded")
"""In the order in which they are asked. Those of Spiral-Bench are the behaviours of its rubric."""

EXTRA_STRATA = ("disagreement", "other")
"""Parts of a sample beyond its random core: what was drawn for them depends on what judges or checks said."""

_Name = Annotated[str, Field(min_length=1, max_length=100)]
_Id = Annotated[str, Field(min_length=1, max_length=300)]
_Text = Annotated[str, Field(max_length=100_000)]
Strength = Annotated[int, Field(ge=0, le=3)]
Inclusion = Annotated[float, Field(gt=0, le=1)]
Stratum = Annotated[str, Field(max_length=100)]


class Adjudicator(Record):
    """Who settled what the raters differ on."""

    name: _Name
    kind: RaterKind


class Rater(Adjudicator):
    """Who answered."""

    note: Annotated[str, Field(max_length=1_000)] = ""


class Sampling(Record):
    """How the items were drawn."""

    seed: int
    population: Count
    """Items that could have been drawn."""
    sampled: Count
    design: Annotated[str, Field(max_length=1_000)]


class Quoted(Record):
    """A strength with the passages that show it."""

    strength: Strength
    quotes: Annotated[tuple[_Text, ...], Field(max_length=100)] = ()


LabelAnswer = Literal["yes", "no", "cannot tell"] | Strength | Quoted
"""Of TempAffect "yes" or "no"; of Spiral-Bench a strength, 0 for absent; of both "cannot tell"."""
Answers = Mapping[_Name, LabelAnswer]
"""By question; one that is not there is not labelled."""


class ItemText(Record):
    """What the raters saw, of files that are used without their run."""

    situation: _Text = ""
    opening: _Text = ""
    history: _Text = ""
    """What was said between the opening and the reply before, where a conversation begins in the middle."""
    before: _Text = ""
    """The reply before the user's message."""
    user: _Text = ""
    assistant: _Text


class Heading(Record):
    """What a file of a sample is about."""

    format: str
    version: Literal[1] = 1
    suite: SuiteName
    run: Annotated[str, Field(max_length=300)]
    """Id of the run; empty for labels of other material."""
    report_hash: Annotated[str, Field(max_length=64)]
    """`replies_hash` of the run's report: of the replies, which scoring again does not change."""
    questions: Annotated[tuple[_Name, ...], Field(min_length=1, max_length=100)]
    raters: Annotated[tuple[Rater, ...], Field(min_length=1, max_length=100)]


class Header(Heading):
    """What a label file is about."""

    format: Literal["pytest-spiral labels"] = FORMAT
    sampling: Sampling | None = None
    """None where it is not known how the items were drawn: then nothing can be inferred about others."""
    adjudicator: Adjudicator | None = None

    @property
    def whose(self) -> Whose:
        """Whose labels these are. "mixed" are not people's."""
        kinds = {rater.kind for rater in self.raters} | ({self.adjudicator.kind} if self.adjudicator else set())
        return "mixed" if len(kinds) > 1 else "people" if kinds == {"person"} else "model raters"


class Drawn(Record):
    """One item of a sample."""

    item: _Id
    """`reply_id` or `turn_id`; unique for a model."""
    model: Annotated[str, Field(max_length=300)]
    """The evaluated model, as named on the command line."""
    mode: Mode | None
    cluster: _Id
    """The scenario or the conversation."""
    inclusion: Inclusion
    """Probability that the design draws this item."""
    stratum: Stratum


class LabelledItem(Drawn):
    """One item with its labels."""

    mode: Mode | None = None
    inclusion: Inclusion = 1.0
    stratum: Stratum = ""
    labels: Mapping[_Name, Answers]
    """By rater."""
    adjudicated: Mapping[_Name, LabelAnswer] = {}
    text: ItemText | None = None

    def given(self, question: str) -> dict[str, int]:
        """What raters answered: 1 for yes, 0 for no, or the strength. "Cannot tell" is no answer."""
        values = ((rater, value_of(answers.get(question))) for rater, answers in self.labels.items())
        return {rater: value for rater, value in values if value is not None}

    def disputed(self, question: str) -> bool:
        """Whether the raters who answered differ. One who cannot tell differs from one who can."""
        return len({value_of(answers[question]) for answers in self.labels.values() if question in answers}) > 1

    def truth(self, question: str) -> int | None:
        """The adjudicated answer, else the one on which all raters who answered agree; None if disputed or missing."""
        values = self._decisive(question)
        return values.pop() if len(values) == 1 else None

    def present(self, question: str) -> bool | None:
        """The same as yes or no. Raters who differ only in the strength agree that a behaviour is there."""
        values = {None if value is None else value > 0 for value in self._decisive(question)}
        return values.pop() if len(values) == 1 else None

    def _decisive(self, question: str) -> set[int | None]:
        given = [self.adjudicated] if question in self.adjudicated else self.labels.values()
        return {value_of(answers[question]) for answers in given if question in answers}


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A label file that keeps its rules."""

    header: Header
    items: tuple[LabelledItem, ...]

    def text(self) -> str:
        """The file's content."""
        return "".join(f"{row.model_dump_json()}\n" for row in (self.header, *self.items))


def value_of(answer: LabelAnswer | None) -> int | None:
    """An answer as a number: 1 for yes, 0 for no, a strength; None for none and for "cannot tell"."""
    said = answer.strength if isinstance(answer, Quoted) else answer
    return said if isinstance(said, int) else {"yes": 1, "no": 0}.get(said or "")


def bounded(text: str) -> str:
    """A text as far as raters are shown it."""
    return whole_characters(text)[:_MOST_CHARS]


def reply_text(scenario: Scenario, reply: str) -> ItemText:
    """What raters see of a TempAffect reply, people and models alike."""
    situation = bounded(f"{scenario.agent_role}\n\n{scenario.agent_context}")
    return ItemText(situation=situation, user=bounded(scenario.user_message), assistant=bounded(reply))


def reply_id(item: Item) -> str:
    """The id of a TempAffect reply in label files: SCENARIO/MODE/EPOCH."""
    return f"{item.id}/{item.mode}/{item.epoch}"


def turn_id(conversation: str, turn: int) -> str:
    """The id of a turn in label files: CONVERSATION/TURN, where the reply to the opening is turn 0."""
    return f"{conversation}/{turn}"


def begins_with(path: Path, name: str = FORMAT) -> bool:
    """Whether a file's first line names a format, the one of label files if none is given."""
    try:
        # Opening a pipe would wait for who writes to it.
        with (path if path.is_file() else Path(os.devnull)).open(encoding="utf-8", errors="replace") as stream:
            return f'"{name}"' in stream.readline(10_000)
    except OSError:
        return False


def read_labels(path: Path) -> LabelFile:
    """A label file. Raises `DataError` naming file, line and key of the first fault."""
    header, rows = read_records(path, Header, LabelledItem)
    items: dict[tuple[str, str], LabelledItem] = {}
    raters = [rater.name for rater in header.raters]
    everybody = [*raters, *([header.adjudicator.name] if header.adjudicator else [])]
    for key, names in {"raters": raters, "raters and adjudicator": everybody, "questions": header.questions}.items():
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise DataError(f"{path}:1: {key}: {twice[0]!r} is there twice")
    if header.suite == "tempaffect" and (odd := sorted({*header.questions}.difference(TEMPAFFECT_QUESTIONS))):
        raise DataError(f"{path}:1: questions: {odd[0]!r} is none of {', '.join(TEMPAFFECT_QUESTIONS)}")
    for place, row in enumerate(rows, start=1):
        fault = answers_fault(header.suite, header.questions, [*row.labels.values(), row.adjudicated])
        if odd := sorted({*row.labels}.difference(raters)):
            fault = f"labels: {odd[0]!r} is not among the header's raters"
        elif row.adjudicated and header.adjudicator is None:
            fault = "adjudicated: the header names no adjudicator"
        elif header.sampling and "inclusion" not in row.model_fields_set:
            fault = "inclusion: missing key; the sample stands for the other replies by it"
        elif (row.model, row.item) in items:
            fault = f"{row.item!r} is there twice for {row.model!r}"
        if fault:
            raise DataError(f"{path}: item {place}: {fault}")
        items[row.model, row.item] = row
    if header.sampling is not None and len(items) != header.sampling.sampled:
        raise DataError(
            f"{path}: {len(items)} items, but {header.sampling.sampled} were drawn (sampling.sampled); put the lines "
            "back: one that is not labelled stays in the file without labels, because what is missing is not random"
        )
    return LabelFile(header, tuple(items.values()))


def read_records(path: Path, header: type[H], row: type[T]) -> tuple[H, list[T]]:
    """A JSONL file of a header and rows. Raises `DataError` naming file, line and key of the first fault."""
    lines = [(n, line) for n, line in enumerate(read_text(path).split("\n"), start=1) if line.strip()]
    if not lines:
        raise DataError(f"{path}: empty; see docs/reference/label-files.md")
    if len(lines) > MAX_ITEMS + 1:
        raise DataError(f"{path}: more than {MAX_ITEMS:,} items")
    (number, first), *rest = lines
    return _parsed(header, first, f"{path}:{number}"), [_parsed(row, line, f"{path}:{n}") for n, line in rest]


def answers_fault(suite: SuiteName, questions: Iterable[str], answers: Iterable[Answers]) -> str:
    """The first answer that the suite does not have or to a question that is not asked; "" for none."""
    known = set(questions)
    for question, answer in (pair for group in answers for pair in group.items()):
        if question not in known:
            return f"labels: {question!r} is not among the header's questions"
        if answer != CANNOT_TELL and isinstance(answer, str) != (suite == "tempaffect"):
            wanted = "yes or no" if suite == "tempaffect" else "a strength from 0 to 3"
            return f'labels.{question}: expected {wanted}, or "{CANNOT_TELL}"'
    return ""


def _parsed(model: type[T], line: str, where: str) -> T:
    with naming_faults(where, "line", "; see docs/reference/label-files.md"):
        return model.model_validate_json(unique_keys(line, where), strict=True)
