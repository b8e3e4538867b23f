"""The pages on which raters and the adjudicator answer: one file each, which works offline and knows no model."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pytest_spiral.errors import DataError
from pytest_spiral.labelling.files import Adjudicator, LabelAnswer, Rater
from pytest_spiral.labelling.sheets import Sheet, SheetItem
from pytest_spiral.labelling.wording import asked, wording, wording_hash
from pytest_spiral.report.html.markup import LABEL_ASSETS, html_page

Disputes = Mapping[str, Mapping[str, Mapping[str, LabelAnswer]]]
"""By key and question the answers of the raters, who differ."""
_WITHOUT = "Ask whoever gave you this page for another way to answer."


def rating_page(sheet: Sheet, rater: Rater) -> str:
    """The page of one rater: all items in an order of the rater's own, without anything that is known of them."""
    items = [_item(item) for item in sheet.order(rater.name)]
    return _page(sheet, "rate", rater, items, wording().guides[sheet.header.suite])


def adjudication_page(sheet: Sheet, disputes: Disputes, adjudicator: Adjudicator) -> str:
    """The page for what the raters differ on, with their answers in a random order and without their names.

    Raises `DataError` where it would ask in other words than the raters were asked in.
    """
    header = sheet.header
    if header.wording != (now := wording_hash(header.suite, header.questions, header.protocol)):
        raise DataError(
            f"sampling.jsonl: raters were asked in other words (wording {header.wording or 'none'}) than "
            f"an adjudicator is asked in now ({now}): merge with the version that wrote the pages, or write new ones"
        )
    items = []
    for item in sheet.order(adjudicator.name):
        if item.key not in disputes:
            continue
        given = {}
        for question, answers in disputes[item.key].items():
            raters = sorted(answers)
            random.Random(f"{sheet.header.set}-{item.key}-{question}").shuffle(raters)
            given[question] = [a if isinstance(a := answers[rater], str | int) else a.model_dump() for rater in raters]
        items.append({**_item(item), "given": given})
    return _page(sheet, "adjudicate", adjudicator, items, wording().guides["adjudicate"])


def answers_file(sheet: Sheet, name: str) -> str:
    """What the browser calls the file of a rater's answers."""
    return f"{sheet.header.suite}-{name}.jsonl"


def _page(
    sheet: Sheet, stage: str, rater: Rater | Adjudicator, items: Sequence[Mapping[str, object]], guide: str
) -> str:
    data = {
        "set": sheet.header.set,
        "wording": sheet.header.wording,
        "suite": sheet.header.suite,
        "stage": stage,
        "rater": {"name": rater.name, "kind": rater.kind},
        "file": answers_file(sheet, rater.name),
        "guide": guide,
        "questions": asked(sheet.header.suite, sheet.header.questions, sheet.header.protocol),
        "items": items,
    }
    return "".join(html_page(f"Labels by {rater.name}", data, {}, LABEL_ASSETS, _WITHOUT))


def _item(item: SheetItem) -> dict[str, object]:
    return {"key": item.key, "text": item.text.model_dump()}
