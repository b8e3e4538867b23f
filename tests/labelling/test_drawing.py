"""Drawing what is labelled: known probabilities, all kinds of items, and nothing that nobody could judge."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.errors import DataError
from pytest_spiral.labelling.drawing import DrawCandidate, candidates, draw, inclusions, replies_hash
from pytest_spiral.labelling.files import ItemText
from pytest_spiral.report.model import Report
from pytest_spiral.status import Status
from tests.html.reports import demo, demo_document, typed


def population(hard: int, easy: int) -> list[DrawCandidate]:
    text = ItemText(assistant="ok")
    return [
        DrawCandidate(item=f"i{n}", model="m", mode=None, cluster=f"c{n}", text=text, hard=n < hard)
        for n in range(hard + easy)
    ]


@pytest.mark.parametrize(
    ("hard", "easy", "size"), [(3, 9, 6), (8, 4, 6), (1, 11, 6), (0, 12, 6), (12, 0, 6), (5, 7, 11)]
)
def test_the_stated_probability_is_that_of_the_draw(hard: int, easy: int, size: int) -> None:
    """Over 3,000 seeds every item is drawn as often as the design says, within five standard errors."""
    items = population(hard, easy)
    drawn = Counter(one.item for seed in range(3_000) for one in draw(items, size, seed))
    stated = {one.item: one.inclusion for seed in range(60) for one in draw(items, size, seed)}

    assert set(stated) == {item.item for item in items}
    off = {name: abs(drawn[name] / 3_000 - p) - 5 * (p * (1 - p) / 3_000) ** 0.5 for name, p in stated.items()}
    assert {name: by for name, by in off.items() if by > 1e-9} == {}


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 60), st.integers(0, 99))
def test_a_sample_has_its_size_and_no_item_twice(hard: int, easy: int, size: int, seed: int) -> None:
    """Probabilities lie above 0 and up to 1, and add up to the size of the sample."""
    items = population(hard, easy)
    drawn = draw(items, size, seed)

    assert len({one.item for one in drawn}) == len(drawn) == min(size, len(items))
    assert all(0 < one.inclusion <= 1 for one in drawn)
    if size < len(items):
        of_hard, of_easy = inclusions(len(items), hard, size - size // 3, size // 3)
        assert hard * of_hard + easy * of_easy == pytest.approx(size)


def test_only_what_people_can_judge_is_drawn() -> None:
    """Valid replies, and judged turns of whole conversations without twins, each with what it answers."""
    document = demo_document()
    document["spiral"]["conversations"][0]["twin_of"] = "bt-00"
    report = typed(document)
    replies, turns = candidates(report, "tempaffect"), candidates(report, "spiral")

    measured = [item for item in report.tempaffect.items if item.answer is not None]
    assert {one.item for one in replies} == {f"{i.id}/{i.mode}/{i.epoch}" for i in measured}
    assert len(replies) == len(measured) < len(report.tempaffect.items)
    held = [row for row in report.spiral.conversations[1:] if row.status is Status.MEASURED]
    assert len(turns) == 6 * len(held)
    second = turns[1].text
    assert (second.before, second.opening) == (turns[0].text.assistant, turns[0].text.user)
    assert second.user == "ok so what about step 0?"


def test_a_name_that_no_label_file_can_hold_is_told() -> None:
    """Files from elsewhere may name a model in a thousand characters."""
    document = demo_document()
    for row in document["spiral"]["conversations"]:
        row["model"] = "m" * 400

    with pytest.raises(DataError, match=r"run \S+: model: 400 characters, the limit is 300"):
        candidates(typed(document), "spiral")


def test_the_hash_is_of_replies_and_not_of_scores() -> None:
    """Scoring again keeps it, another reply changes it."""

    def hashes(report: Report) -> tuple[str, str]:
        return replies_hash(report, "tempaffect"), replies_hash(report, "spiral")

    document = demo_document()
    scored = {**document["tempaffect"]["items"][0], "useful_bounded": False, "points": {}}
    document["tempaffect"]["items"][0] = scored
    document["spiral"]["scores"] = []
    assert hashes(typed(document)) == hashes(demo())

    document["tempaffect"]["items"][0] = {**scored, "output": "other"}
    document["spiral"]["conversations"][0]["transcript"][1]["content"] = "other"
    assert not set(hashes(typed(document))) & set(hashes(demo()))
