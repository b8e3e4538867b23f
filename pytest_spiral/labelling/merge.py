"""From the answers that raters exported to a label file: checks, what differs, what an adjudicator settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from pytest_spiral.errors import DataError
from pytest_spiral.grouping import grouped
from pytest_spiral.labelling.files import (
    CANNOT_TELL,
    Adjudicator,
    Answers,
    Drawn,
    Header,
    LabelAnswer,
    LabelFile,
    LabelledItem,
    Quoted,
    answers_fault,
    read_records,
    value_of,
)
from pytest_spiral.labelling.pages import Disputes
from pytest_spiral.labelling.sheets import RATER_NAME, Sheet
from pytest_spiral.report.model.base import Record
from pytest_spiral.settings import SuiteName

EXPORT_FORMAT: Final = "pytest-spiral answers"
Key = Annotated[str, Field(min_length=1, max_length=64)]


class ExportHeader(Record):
    """Whose answers a file holds."""

    format: Literal["pytest-spiral answers"]
    version: Literal[1]
    set: Key
    wording: Annotated[str, Field(max_length=64)] = ""
    suite: SuiteName
    stage: Literal["rate", "adjudicate"]
    rater: Adjudicator


class ExportRow(Record):
    """Answers about one item, by question."""

    item: Key
    answers: Answers


@dataclass(frozen=True, slots=True)
class Export:
    """The answers of one person or model, by key of the item."""

    path: Path
    header: ExportHeader
    answers: Mapping[str, Answers]


@dataclass(frozen=True)
class Merged:
    """Answers of all raters.

    Attributes:
        disputes: What raters differ on, settled or not.
        notes: What else is to be known of the answers.
    """

    labels: LabelFile
    disputes: Disputes
    notes: tuple[str, ...]

    @cached_property
    def unsettled(self) -> int:
        """Answers that differ and are not adjudicated."""
        settled = sum(len(item.adjudicated) for item in self.labels.items)
        return sum(map(len, self.disputes.values())) - settled


def read_export(path: Path, sheet: Sheet) -> Export:
    """The answers in a file that a page of the sheet exported.

    Raises:
        DataError: The file is damaged, belongs to other pages, or holds what the page does not ask.
    """
    header, rows = read_records(path, ExportHeader, ExportRow)
    if header.set != sheet.header.set or header.wording != sheet.header.wording:
        worded = ", whose questions were worded otherwise" if header.wording != sheet.header.wording else ""
        raise DataError(
            f"{path}: answers to other pages ({header.set}, these are {sheet.header.set}){worded}; merge them with the "
            "sampling.jsonl that was written with their pages"
        )
    if not RATER_NAME.fullmatch(header.rater.name):
        raise DataError(f"{path}: rater: {header.rater.name!r} is no name of a rater")
    if header.stage == "rate" and header.rater.name not in {rater.name for rater in sheet.header.raters}:
        raise DataError(f"{path}: rater: {header.rater.name!r} has no page in this set")
    answers: dict[str, Answers] = {}
    for place, row in enumerate(rows, start=1):
        where = f"{path}: item {place}"
        item = sheet.by_key.get(row.item)
        if item is None:
            raise DataError(f"{where}: {row.item!r} is not among the items of these pages")
        if row.item in answers:
            raise DataError(f"{where}: {row.item!r} is there twice; export the answers again")
        if fault := answers_fault(sheet.header.suite, sheet.header.questions, [row.answers]):
            raise DataError(f"{where}: {fault}")
        quotes = (quote for given in row.answers.values() if isinstance(given, Quoted) for quote in given.quotes)
        if any(quote not in item.text.assistant for quote in quotes):
            raise DataError(f"{where}: a marked passage is not in the reply; export the answers again")
        answers[row.item] = row.answers
    return Export(path, header, answers)


def merge(sheet: Sheet, exports: Sequence[Export]) -> Merged:
    """Put the answers together.

    Raises:
        DataError: Two files of one rater, two adjudicators, an adjudicator who is a rater, or no rater at all.
    """
    by_name: dict[str, Export] = {}
    for export in exports:
        name = export.header.rater.name
        if other := by_name.get(name):
            raise DataError(f"{export.path}: {name} has another file, {other.path}; merge the newer one only")
        by_name[name] = export
    judges = [export for export in exports if export.header.stage == "adjudicate"]
    if len(judges) > 1:
        raise DataError(f"{judges[1].path}: a second adjudicator, beside {judges[0].path}; merge one of them")
    adjudicator = judges[0].header.rater if judges else None
    if adjudicator and adjudicator.name in {rater.name for rater in sheet.header.raters}:
        raise DataError(f"{judges[0].path}: {adjudicator.name} is a rater and cannot adjudicate")
    answering = {name: export for name, export in by_name.items() if export.header.stage == "rate"}
    if not answering:
        raise DataError("no answers of a rater; name the files that the pages exported")

    settled = judges[0].answers if judges else {}
    disputes: dict[str, dict[str, dict[str, LabelAnswer]]] = {}
    items = []
    for item in sheet.items:
        given = {name: export.answers[item.key] for name, export in answering.items() if item.key in export.answers}
        own = settled.get(item.key, {})
        # TempAffect's replies are read from their run; turns are shown to judges without it.
        text = item.text if sheet.header.suite == "spiral" else None
        row = LabelledItem(**{name: getattr(item, name) for name in Drawn.model_fields}, labels=given, text=text)
        if differing := [question for question in sheet.header.questions if row.disputed(question)]:
            disputes[item.key] = {
                question: {name: answers[question] for name, answers in given.items() if question in answers}
                for question in differing
            }
        items.append(row.model_copy(update={"adjudicated": {name: own[name] for name in differing if name in own}}))
    header = Header(
        **{name: getattr(sheet.header, name) for name in ("suite", "run", "report_hash", "questions", "sampling")},
        raters=tuple(
            rater.model_copy(update={"note": answering[rater.name].path.name})
            for rater in sheet.header.raters
            if rater.name in answering
        ),
        adjudicator=adjudicator,
    )
    labels = LabelFile(header, tuple(items))
    return Merged(labels, disputes, tuple(_notes(sheet, answering, settled, disputes)))


def _notes(
    sheet: Sheet, exports: Mapping[str, Export], settled: Mapping[str, Answers], disputes: Disputes
) -> Sequence[str]:
    notes = []
    for rater in sheet.header.raters:
        if (export := exports.get(rater.name)) is None:
            notes.append(f"no answers of {rater.name}")
        elif export.header.rater.kind != rater.kind:
            raise DataError(
                f"{export.path}: rater: {rater.name} was to be a {rater.kind}, not a {export.header.rater.kind}"
            )
        elif missing := sum(len(sheet.header.questions) - len(export.answers.get(key, {})) for key in sheet.by_key):
            notes.append(f"{rater.name} left {missing} questions open: not labelled")
    if doubted := sum(CANNOT_TELL in given.values() for found in disputes.values() for given in found.values()):
        notes.append(f"{doubted} answers differ because a rater cannot tell where another can: for the adjudicator")
    found = grouped((name, _words(settled.get(key, {}).get(name))) for key, given in disputes.items() for name in given)
    for question, own in found.items() if settled else ():
        said = ", ".join(f"{n} {what}" for what, n in sorted(Counter(own).items()))
        notes.append(f"adjudicated: {question}, {len(own)} that differ: {said}")
    if needless := sum(name not in disputes.get(key, {}) for key, answers in settled.items() for name in answers):
        notes.append(f"{needless} adjudicated answers left out: the raters do not differ on them")
    return notes


def _words(answer: LabelAnswer | None) -> str:
    if answer is None:
        return "left open"
    return answer if isinstance(answer, str) else f"strength {value_of(answer)}"
