"""Labels of people from elsewhere: CSV or JSONL in a documented form, and what foreign codes are in our terms."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from pytest_spiral.errors import DataError
from pytest_spiral.labelling.files import (
    CANNOT_TELL,
    MAX_ITEMS,
    Header,
    ItemText,
    LabelAnswer,
    LabelFile,
    LabelledItem,
    RaterKind,
    Strength,
    value_of,
)
from pytest_spiral.labelling.wording import questions_of
from pytest_spiral.resources import naming_faults, read_text, unique_keys
from pytest_spiral.settings import DEFAULT_PROTOCOL, SuiteName
from pytest_spiral.tables import Table, read_table

NOT_LABELLED: Final = "not labelled"
_TEXTS = tuple(ItemText.model_fields)
_COLUMNS = ("item", "rater", "question", "answer", "model", "mode", "cluster", *_TEXTS)
# A value for every rater and question of every item.
_MOST_ANSWERS = 1_000_000
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_CsvRow = Mapping[str, str]
_FLAT: TypeAdapter[dict[str, str | int | float | bool | None]] = TypeAdapter(dict[str, str | int | float | bool | None])


class Code(Table):
    """What a foreign code says about one of our questions. An empty value that is not in `answers` is not labelled."""

    question: _Name
    answers: dict[str, Literal["yes", "no", "cannot tell", "not labelled"] | Strength] = Field(min_length=1)


class Mapped(Table):
    """A mapping file.

    Attributes:
        suite: Which questions the codes are turned into.
        protocol: Whose behaviours, for Spiral-Bench.
        raters: What the raters are; `rater_kinds` says it of single ones.
        rater: Name of the only rater, for a file without that column.
        adjudicator: A rater of the file whose answers settle what the others differ on.
        columns: Columns of the file, by our names for them, where they differ.
        wide: Columns that are a question each, instead of the columns question and answer.
        codes: By foreign question.
        ignore: Foreign questions that are left out.
        combine: Of questions with several codes: "any" of them suffices for a yes, or "all" are needed.
    """

    suite: SuiteName
    protocol: str = DEFAULT_PROTOCOL
    raters: RaterKind
    rater_kinds: dict[str, RaterKind] = Field(default_factory=dict)
    rater: str = ""
    adjudicator: str = ""
    note: Annotated[str, Field(max_length=1_000)] = ""
    columns: dict[str, _Name] = Field(default_factory=dict)
    wide: tuple[_Name, ...] = ()
    codes: Annotated[dict[str, Code], Field(min_length=1)]
    ignore: tuple[str, ...] = ()
    combine: dict[str, Literal["any", "all"]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_our_columns(self) -> Self:
        if odd := sorted(set(self.columns) - set(_COLUMNS)):
            raise ValueError(f"columns: {odd[0]!r} is none of {', '.join(_COLUMNS)}")
        return self


@dataclass
class _Item:
    about: dict[str, str] = field(default_factory=dict)
    answers: dict[tuple[str, str], LabelAnswer | None] = field(default_factory=dict)
    """By rater and foreign question; None for a cell that is not labelled."""


def import_labels(path: Path, mapping_path: Path) -> LabelFile:
    """A label file from a CSV or JSONL file.

    Raises:
        UserError: File or mapping are wrong; the message names file, line and column.
    """
    mapping = read_table(Mapped, mapping_path)
    known = questions_of(mapping.suite, mapping.protocol)
    wanted = {code.question for code in mapping.codes.values()} | set(mapping.combine)
    if odd := sorted(wanted - set(known)):
        raise DataError(
            f"{mapping_path}: codes: {odd[0]!r} is no question of {mapping.suite}; there are {', '.join(known)}"
        )
    items: defaultdict[str, _Item] = defaultdict(_Item)
    columns: set[str] = set()
    raters: set[str] = set()
    for number, (line, row) in enumerate(_rows(path), start=1):
        if number > _MOST_ANSWERS:
            raise DataError(f"{path}:{line}: more than {_MOST_ANSWERS:,} rows")
        columns.update(row)
        raters.add(_take(mapping, row, items, f"{path}:{line}"))
        if len(items) > MAX_ITEMS:
            raise DataError(f"{path}:{line}: more than {MAX_ITEMS:,} items")
    # A misspelt name would leave answers out, or take those of a model for a person's.
    own = {} if mapping.wide else {"question": "question", "answer": "answer"}
    named = {"columns": [*{**own, **mapping.columns}.values()], "rater_kinds": [*mapping.rater_kinds]}
    for key, listed in (named | {"adjudicator": [mapping.adjudicator] * bool(mapping.adjudicator)}).items():
        there = columns if key == "columns" else raters
        if there and (unknown := [name for name in listed if name not in there]):
            raise DataError(f"{mapping_path}: {key}: no {unknown[0][:80]!r} in {path}, which has {sorted(there)[:20]}")
    names = dict.fromkeys(rater for item in items.values() for rater, _ in item.answers)
    kinds = {name: mapping.rater_kinds.get(name, mapping.raters) for name in [*names, mapping.adjudicator]}
    settles = {"name": mapping.adjudicator, "kind": kinds.pop(mapping.adjudicator)}
    if not kinds:
        raise DataError(f"{path}: no answer of a rater in it")
    with naming_faults(path):
        header = Header.model_validate(
            {
                "suite": mapping.suite,
                "run": "",
                "report_hash": "",
                "questions": [name for name in known if name in wanted],
                "raters": [{"name": name, "kind": kind, "note": mapping.note} for name, kind in kinds.items()],
                "adjudicator": settles if mapping.adjudicator else None,
            }
        )
        rows = [_labelled(mapping, header, name, item) for name, item in items.items()]
    return LabelFile(header, tuple(rows))


def _take(mapping: Mapped, row: _CsvRow, items: defaultdict[str, _Item], where: str) -> str:
    """Add one row of the file, and return its rater."""

    def cell(name: str) -> str:
        return row.get(mapping.columns.get(name, name), "").strip()

    name, rater = cell("item"), mapping.rater or cell("rater")
    for what, value in (("item", name), ("rater", rater)):
        if not value:
            column = mapping.columns.get(what, what)
            absent = f"no such column beside {[*row][:20]}; `columns` in the mapping names them"
            raise DataError(f"{where}: {column}: {'empty' if column in row else absent}")
    item = items[name]
    for key in ("model", "mode", "cluster", *_TEXTS):
        text = row.get(mapping.columns.get(key, key), "")
        if text and item.about.setdefault(key, text) != text:
            raise DataError(f"{where}: {mapping.columns.get(key, key)}: not the same in all rows of item {name[:80]!r}")
    if mapping.wide:
        if missing := [column for column in mapping.wide if column not in row]:
            raise DataError(f"{where}: no column {missing[0]!r}, which `wide` in the mapping names")
        given = {column: row[column].strip() for column in mapping.wide}
    else:
        given = {cell("question"): cell("answer")}
    for question, value in given.items():
        if question in mapping.ignore:
            continue
        if (code := mapping.codes.get(question)) is None:
            raise DataError(
                f"{where}: question {question[:80]!r} is not in the mapping; add [codes.{json.dumps(question[:80])}] "
                "or name it in `ignore`"
            )
        if (rater, question) in item.answers:
            raise DataError(f"{where}: {rater} has answered {question[:80]!r} of item {name[:80]!r} twice")
        item.answers[rater, question] = _answer(mapping.suite, code, value, f"{where}: {question[:80]}")
    return rater


def _answer(suite: SuiteName, code: Code, value: str, where: str) -> LabelAnswer | None:
    """A foreign value in our terms; None for not labelled."""
    if value not in code.answers:
        if not value:
            return None
        known = ", ".join(map(repr, code.answers))
        raise DataError(f"{where}: {value[:80]!r} is not in the mapping, which has {known}; add it to its answers")
    found = code.answers[value]
    if found == NOT_LABELLED:
        return None
    if found != CANNOT_TELL and isinstance(found, str) != (suite == "tempaffect"):
        raise DataError(f"{where}: {value!r} is {found!r} by the mapping, which is no answer of {suite}")
    return found


def _labelled(mapping: Mapped, header: Header, name: str, item: _Item) -> LabelledItem:
    texts = {key: item.about[key] for key in _TEXTS if key in item.about}
    about = {"model": "", "cluster": name} | {key: value for key, value in item.about.items() if key not in _TEXTS}
    given = {rater.name: _combined(mapping, header, item, rater.name) for rater in header.raters}
    labels = {rater: answers for rater, answers in given.items() if answers}
    settled = _combined(mapping, header, item, mapping.adjudicator)
    text = texts if "assistant" in texts else None
    return LabelledItem.model_validate({"item": name, **about, "labels": labels, "adjudicated": settled, "text": text})


def _combined(mapping: Mapped, header: Header, item: _Item, rater: str) -> dict[str, LabelAnswer]:
    """A rater's answers to our questions. Several codes decide one together, as far as they are labelled."""
    result: dict[str, LabelAnswer] = {}
    for question in header.questions:
        answers = [item.answers.get((rater, name)) for name, code in mapping.codes.items() if code.question == question]
        decided = [value for answer in answers if (value := value_of(answer)) is not None]
        every = mapping.combine.get(question, "any") == "all"
        found = (min if every else max)(decided, default=0)
        # One answer is enough, a yes or where all are needed a "no"; the other says nothing of codes nobody looked for.
        if decided and (bool(found) != every or len(decided) == len(answers)):
            result[question] = found if mapping.suite == "spiral" else "yes" if found else "no"
        elif CANNOT_TELL in answers:
            result[question] = CANNOT_TELL
    return result


def _rows(path: Path) -> Iterator[tuple[int, _CsvRow]]:
    """The rows of a CSV file with a head, or of a JSONL file of flat objects, with their lines."""
    text = read_text(path)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield number, _object(line, f"{path}:{number}")
        return
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if twice := [name for name, times in Counter(reader.fieldnames or ()).items() if name and times > 1]:
            raise DataError(f"{path}:1: column {twice[0][:80]!r} is there twice; rename one of them")
        for row in reader:
            if None in row or None in row.values():
                raise DataError(f"{path}:{reader.line_num}: not as many values as the first line has columns")
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not valid CSV: {error}") from None


def _object(line: str, where: str) -> _CsvRow:
    """A flat JSON object with its values as CSV would hold them."""
    try:
        row = _FLAT.validate_json(unique_keys(line, where), strict=True)
    except ValidationError as error:
        damaged = error.errors()[0]["type"] == "json_invalid"
        fault = "not valid JSON" if damaged else "expected a JSON object of texts and numbers"
        raise DataError(f"{where}: {fault}") from None
    return {
        key: "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in row.items()
    }
