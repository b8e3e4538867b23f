"""The sheet: the items of one suite that raters are given, and what is known of them and kept from the raters."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.hashing import digest
from pytest_spiral.labelling.drawing import candidates, design_text, draw, replies_hash
from pytest_spiral.labelling.files import Drawn, Heading, ItemText, Rater, Sampling, read_records
from pytest_spiral.labelling.wording import questions_of, wording_hash
from pytest_spiral.report.model import Report
from pytest_spiral.settings import SuiteName

SHEET_FILE = "sampling.jsonl"
SIZES: Mapping[SuiteName, int] = {"tempaffect": 60, "spiral": 40}
"""Items drawn where nobody says how many."""
RATER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""Part of the names of files."""
_RATER = re.compile(rf"({RATER_NAME.pattern})(?::(person|model))?")
_MOST_RATERS = 20


class SheetHeader(Heading):
    """What the items are, and who was to answer."""

    format: Literal["pytest-spiral sampling"] = "pytest-spiral sampling"
    set: Annotated[str, Field(min_length=1, max_length=64)]
    """Names run, replies, suite, questions, their wording and the draw: answers to other sheets do not fit."""
    protocol: Annotated[str, Field(max_length=64)] = ""
    """Whose rubric the raters see; empty for TempAffect."""
    raters: Annotated[tuple[Rater, ...], Field(min_length=1, max_length=_MOST_RATERS)]
    sampling: Sampling
    wording: Annotated[str, Field(max_length=64)] = ""
    """`wording_hash` of what the raters are asked; empty in sheets of earlier versions."""


class SheetItem(Drawn):
    """An item under the key that the raters see."""

    key: Annotated[str, Field(min_length=1, max_length=64)]
    text: ItemText


@dataclass(frozen=True)
class Sheet:
    """A drawn sample."""

    header: SheetHeader
    items: tuple[SheetItem, ...]

    @cached_property
    def by_key(self) -> Mapping[str, SheetItem]:
        """The items by the key that the raters see."""
        return {item.key: item for item in self.items}

    def text(self) -> str:
        """The file's content."""
        return "".join(f"{row.model_dump_json()}\n" for row in (self.header, *self.items))

    def order(self, rater: str) -> list[SheetItem]:
        """The items in an order of the rater's own."""
        items = sorted(self.items, key=lambda item: item.key)
        random.Random(f"{self.header.set}-{rater}").shuffle(items)
        return items


def parse_raters(value: str, option: str = "--raters") -> tuple[Rater, ...]:
    """Raters from `2`, or from names such as `ann,ben,some-model:model`.

    Raises:
        ConfigError: For anything else.
    """
    names = value.split(",")
    if value.isascii() and value.isdigit():
        names = [f"rater-{n + 1}" for n in range(min(int(value), _MOST_RATERS + 1))]
    raters = []
    for name in names:
        match = _RATER.fullmatch(name.strip())
        if match is None:
            raise ConfigError(
                f"{option}: {name[:80]!r} is no name; write a number, or names of letters, digits, '.', '_' and '-' "
                "such as ann,ben, with ':model' behind one that is a language model"
            )
        raters.append(Rater(name=match[1], kind="model" if match[2] == "model" else "person"))
    distinct = {rater.name.lower() for rater in raters}
    if not 1 <= len(raters) <= _MOST_RATERS or len(distinct) < len(raters):
        raise ConfigError(f"{option}: expected 1 to {_MOST_RATERS} raters with different names, such as ann,ben")
    return tuple(raters)


def suites_of(report: Report) -> list[SuiteName]:
    """The suites of which a run has items that people can label."""
    return [name for name in get_args(SuiteName) if candidates(report, name)]


def make_sheet(
    report: Report, suite: SuiteName, raters: Sequence[Rater], size: int | None, seed: int, asked: Sequence[str] = ()
) -> Sheet:
    """Draw items of a suite.

    Args:
        report: The finished run.
        suite: Which one.
        raters: Who is to answer.
        size: Items to draw; None for as many as is usual.
        seed: Of the draw.
        asked: Questions to ask; all of the suite for none.

    Raises:
        ConfigError: A question that the suite does not have, or nothing to draw from.
    """
    if not (population := candidates(report, suite)):
        raise ConfigError(f"run {report.run.id} has no {suite} reply that could be labelled; choose another run")
    protocol = report.spiral.scores[0].protocol if suite == "spiral" and report.spiral.scores else ""
    if suite == "spiral" and not protocol:
        raise ConfigError(
            f"run {report.run.id} has no score of its conversations, whose protocol names the questions; make the "
            "missing parts of its report with `pytest-spiral report`"
        )
    known = questions_of(suite, protocol)
    if odd := [name for name in asked if name not in known]:
        raise ConfigError(
            f"--questions: {odd[0]!r} is none of {suite}, which has {', '.join(known)}; --suite chooses one"
        )
    questions = tuple(name for name in known if not asked or name in asked)
    drawn = draw(population, size or SIZES[suite], seed)
    design = Sampling(seed=seed, population=len(population), sampled=len(drawn), design=design_text(drawn))
    replies = replies_hash(report, suite)
    words = wording_hash(suite, questions, protocol)
    name = digest([report.run.id, replies, suite, list(questions), design.seed, design.sampled, words])[:16]
    about = {"set": name, "suite": suite, "run": report.run.id, "report_hash": replies, "protocol": protocol}
    drawing = {"questions": questions, "raters": tuple(raters), "sampling": design, "wording": words}
    header = SheetHeader.model_validate({**about, **drawing})
    keyed = (one.model_dump(exclude={"hard"}) | {"key": digest([name, one.model, one.item])[:12]} for one in drawn)
    return Sheet(header, tuple(SheetItem(**one) for one in keyed))


def read_sheet(path: Path) -> Sheet:
    """A sheet that `label` wrote. Raises `DataError` naming file, line and key."""
    header, rows = read_records(path, SheetHeader, SheetItem)
    keys = [row.key for row in rows]
    if len(set(keys)) < len(keys):
        raise DataError(f"{path}: an item is there twice; write the pages again with `pytest-spiral label`")
    return Sheet(header, tuple(rows))
