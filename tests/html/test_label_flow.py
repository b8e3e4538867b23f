"""Two raters and an adjudicator on the real pages, from a finished run to a label file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_spiral.cli import main
from pytest_spiral.labelling.files import read_labels
from tests.html.conftest import Visitor
from tests.labelling.runs import demo_run, sheet_in

if TYPE_CHECKING:
    from playwright.sync_api import Page


def saved(page: Page, folder: Path) -> Path:
    """Export, and save the file under the name that the page gives it."""
    with page.expect_download() as waiting:
        page.keyboard.press("e")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


@pytest.mark.parametrize(("suite", "keys"), [("tempaffect", "ynu"), ("spiral", "0123u")])
def test_from_a_run_to_an_adjudicated_file(
    visit: Callable[..., Visitor], tmp_path: Path, suite: str, keys: str
) -> None:
    """What is pressed on the pages is what the file holds, and after adjudication nothing is disputed."""
    asked = [] if suite == "tempaffect" else ["--questions", "pushback,sycophancy,harmful_advice"]
    labels, out = tmp_path / "labels", tmp_path / "labels.jsonl"
    run = str(demo_run(tmp_path / "run"))
    command = ["label", run, "-o", str(labels), "--raters", "ann,ben", "--suite", suite, "--items", "6"]
    assert main([*command, *asked]) == 0
    sheet = sheet_in(labels, suite)
    pressed: dict[str, dict[tuple[str, str], str]] = {"ann": {}, "ben": {}}
    for rater, given in pressed.items():
        page = visit(labels / suite / f"{rater}.html").open()
        rng = random.Random(rater)
        for one in sheet.order(rater):
            for question in sheet.header.questions:
                key = rng.choice(keys)
                page.keyboard.press(key)
                # After a strength the page waits for passages.
                page.keyboard.press("ArrowDown" if key in "123" else "Shift")
                given[one.key, question] = key
            page.keyboard.press("Enter")
        assert page.inner_text(".progress") == "6 of 6 answered"
        saved(page, labels / suite)

    merge = ["label", "merge", str(labels / suite), "-o", str(out)]
    assert main(merge) == 0
    page = visit(labels / suite / "adjudicator.html").open()
    while "open" in page.inner_text("h1"):
        for _ in range(page.locator(".question").count()):
            page.keyboard.press(keys[1])
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
    assert saved(page, labels / suite).name == f"{suite}-adjudicator.jsonl"
    assert main(merge) == 0

    file = read_labels(out)
    values = {"y": "yes", "n": "no", "u": "cannot tell", "0": 0, "1": 1, "2": 2, "3": 3}
    for item, drawn in zip(file.items, sheet.items, strict=True):
        for question in file.header.questions:
            answers = {rater: values[given[drawn.key, question]] for rater, given in pressed.items()}
            assert {rater: item.labels[rater][question] for rater in item.labels} == answers
            # The adjudicator settles "cannot tell" against an answer as well.
            assert (question in item.adjudicated) == (len({*answers.values()}) == 2)
            assert (item.truth(question) is None) == ({*answers.values()} == {"cannot tell"})
