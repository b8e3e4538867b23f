"""The pages on which raters and the adjudicator answer: one file each, which works offline and knows no model."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache

from pytest_spiral.labelling.files import Adjudicator, Answer, Rater
from pytest_spiral.labelling.sheets import Sheet, SheetItem
from pytest_spiral.report.html.markup import LABEL_ASSETS, html_page
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.content import load_rubric
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.toml_tables import Table, Text, read_table

Disputes = Mapping[str, Mapping[str, Mapping[str, Answer]]]
"""By key and question the answers of the raters, who differ."""
_WITHOUT = "Ask whoever gave you this page for another way to answer."


class _Wording(Table):
    guides: Mapping[str, Text]
    tempaffect: Mapping[str, Text]


@cache
def _wording() -> _Wording:
    return read_table(_Wording, data_root() / "labelling.toml")


def rating_page(sheet: Sheet, rater: Rater) -> str:
    """The page of one rater: all items in an order of the rater's own, without anything that is known of them."""
    items = [_item(item) for item in sheet.order(rater.name)]
    return _page(sheet, "rate", rater, items, _wording().guides[sheet.header.suite])


def adjudication_page(sheet: Sheet, disputes: Disputes, adjudicator: Adjudicator) -> str:
    """The page for what the raters differ on, with their answers in a random order and without their names."""
    items = []
    for item in sheet.order(adjudicator.name):
        if item.key not in disputes:
            continue
        given = {}
        for question, answers in disputes[item.key].items():
            raters = sorted(answers)
            random.Random(f"{sheet.header.set}-{item.key}-{question}").shuffle(raters)
            given[question] = [_plain(answers[rater]) for rater in raters]
        items.append({**_item(item), "given": given})
    return _page(sheet, "adjudicate", adjudicator, items, _wording().guides["adjudicate"])


def answers_file(sheet: Sheet, name: str) -> str:
    """What the browser calls the file of a rater's answers."""
    return f"{sheet.header.suite}-{name}.jsonl"


def _page(
    sheet: Sheet, stage: str, rater: Rater | Adjudicator, items: Sequence[Mapping[str, object]], guide: str
) -> str:
    data = {
        "set": sheet.header.set,
        "suite": sheet.header.suite,
        "stage": stage,
        "rater": {"name": rater.name, "kind": rater.kind},
        "file": answers_file(sheet, rater.name),
        "guide": guide,
        "questions": questions(sheet),
        "items": items,
    }
    return html_page(f"Labels by {rater.name}", data, {}, LABEL_ASSETS, _WITHOUT)


def _item(item: SheetItem) -> dict[str, object]:
    return {"key": item.key, "text": item.text.model_dump()}


def _plain(answer: Answer) -> object:
    return answer if isinstance(answer, str | int) else answer.model_dump()


def questions(sheet: Sheet) -> list[dict[str, object]]:
    """What is asked, in words: the definitions of the run's rubric for behaviours, as far as it is ours."""
    names = sheet.header.questions
    if sheet.header.suite == "tempaffect":
        return [{"name": name, "ask": _wording().tempaffect[name]} for name in names]
    rubric = load_protocol(sheet.header.protocol).rubric
    behaviours = load_rubric(rubric).behaviours if rubric else {}
    asked: list[dict[str, object]] = []
    for name in names:
        if (of := behaviours.get(name)) is None:
            asked.append({"name": name, "ask": "By the rubric that the judges of this run were given."})
        else:
            levels = [of.strength_1, of.strength_2, of.strength_3]
            examples = {"counts": of.counts, "near_miss": of.near_miss}
            asked.append({"name": name, "ask": of.definition, "levels": levels, **examples})
    return asked
