"""The labelling page in a browser: keyboard alone, nothing lost, blind, hostile texts inert, accessible."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_spiral.labelling.files import Adjudicator, ItemText, Quoted
from pytest_spiral.labelling.pages import Disputes, adjudication_page, rating_page
from pytest_spiral.labelling.sheets import Sheet, make_sheet, parse_raters
from tests.html.conftest import Visitor, wait_until
from tests.html.reports import demo
from tests.html.test_accessibility import violations
from tests.html.test_hostile import ATTACKS, HIDDEN

if TYPE_CHECKING:
    from playwright.sync_api import Page

BEGINS_WITH = "start => document.querySelector('.progress').textContent.startsWith(start)"

ANN, BEN = parse_raters("ann,ben")


@cache
def replies() -> Sheet:
    """Six replies; made when a test asks for them and not by whoever collects the tests."""
    return make_sheet(demo(), "tempaffect", (ANN, BEN), 6, 1)


@cache
def turns() -> Sheet:
    """Four turns."""
    return make_sheet(demo(), "spiral", (ANN, BEN), 4, 1, ["pushback", "harmful_advice", "sycophancy"])


@pytest.fixture
def page_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a page of a sheet to a file."""

    def write(sheet: Sheet, text: str = "") -> Path:
        path = tmp_path / "ann.html"
        path.write_text(text or rating_page(sheet, ANN), encoding="utf-8")
        return path

    return write


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def exported(page: Page) -> list[dict[str, Any]]:
    """What the page downloads on the key e: header and rows."""
    with page.expect_download() as waiting:
        page.keyboard.press("e")
    text = Path(waiting.value.path()).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def answers(page: Page) -> dict[str, Any]:
    """Answers by key of the item."""
    return {row["item"]: row["answers"] for row in exported(page)[1:]}


def heading(page: Page) -> str:
    return page.inner_text("h1")


def test_the_keyboard_alone_suffices(visit: Callable[..., Visitor], page_file: Callable[..., Path]) -> None:
    """Every question of every reply is answered, changed and taken back, and exported, without a mouse."""
    page = visit(page_file(replies())).open()
    order = [item.key for item in replies().order("ann")]

    press(page, "y", "n", "u", "y", "n", "Enter")
    assert "Item 2 of 6" in heading(page)
    press(page, "y", "n", "ArrowUp", "Backspace", "ArrowLeft", "ArrowDown", "y", "ArrowRight")
    assert page.inner_text(".question.current h3") == "concrete action"
    press(page, "ArrowRight")
    assert "Item 3 of 6" in heading(page)
    for _ in range(5):
        press(page, *"yyyyy", "Enter")

    # What was taken back is asked again, and the rest is done.
    assert page.inner_text(".progress") == "6 of 6 answered"
    # The chosen answer looks different.
    backgrounds = page.evaluate(
        """() => [...document.querySelectorAll(".question:first-child .choices button")]
        .map((button) => [button.getAttribute("aria-pressed"), getComputedStyle(button).backgroundColor])"""
    )
    assert len({colour for _, colour in backgrounds}) == 2
    assert len({colour for pressed, colour in backgrounds if pressed == "false"}) == 1
    header, *rows = exported(page)
    assert header == {
        "format": "pytest-spiral answers",
        "version": 1,
        "set": replies().header.set,
        "wording": replies().header.wording,
        "suite": "tempaffect",
        "stage": "rate",
        "rater": {"name": "ann", "kind": "person"},
    }
    names = replies().header.questions
    assert {row["item"] for row in rows} == set(order)
    first = next(row["answers"] for row in rows if row["item"] == order[0])
    assert first == dict(zip(names, ("yes", "yes", "cannot tell", "yes", "no"), strict=True))


def test_passages_are_marked_by_keyboard_and_by_selecting(
    visit: Callable[..., Visitor], page_file: Callable[..., Path]
) -> None:
    """Quotes are the reply's own characters, emoji before them included, and belong to a strength."""
    page = visit(page_file(turns())).open()
    first, second = turns().order("ann")[:2]

    press(page, "m")
    assert "First answer 1, 2 or 3" in page.inner_text(".voice")
    press(page, "2", "m", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "Enter", "ArrowDown", "a", "Enter")
    assert "Item 2 of 4" in heading(page)
    # The three words from the sixth character on, as a mouse selects them.
    page.evaluate(
        """() => { const node = document.getElementById("reply").firstChild;
        getSelection().setBaseAndExtent(node, 3, node, 17); }"""
    )
    press(page, "3")
    page.evaluate("() => getSelection().selectAllChildren(document.querySelector('.message.user'))")
    press(page, "m", "Escape")
    got = answers(page)

    words = first.text.assistant.split()
    assert got[first.key] == {
        "pushback": {"strength": 2, "quotes": [f"{words[2]} {words[3]}"]},
        "harmful_advice": 0,
        "sycophancy": 0,
    }
    assert got[second.key] == {"pushback": {"strength": 3, "quotes": [second.text.assistant[2:17].strip()]}}


def test_nothing_is_lost_on_reload_or_with_the_page_opened_twice(
    visit: Callable[..., Visitor], page_file: Callable[..., Path]
) -> None:
    """Both windows show every answer, of a question answered in both the later one, and so does a third."""
    visitor = visit(page_file(replies()))
    one = visitor.open()
    press(one, *"yyyyy")
    other = visitor.context.new_page()
    other.goto(visitor.file.as_uri())
    other.wait_for_selector("html[data-drawn]")
    assert "Item 2 of 6" in heading(other)

    press(other, *"nnnnn", "ArrowLeft", "n")
    # Only then does this window know that the second item is answered, and goes to the third.
    wait_until(one, BEGINS_WITH, "2 of")
    press(one, "Enter", *"yyyyy")
    wait_until(other, BEGINS_WITH, "3 of")
    press(other, "ArrowRight", "ArrowRight", "ArrowRight", *"nnnnn")
    wait_until(one, BEGINS_WITH, "4 of")
    here, there = answers(one), answers(other)
    one.reload()
    one.wait_for_selector("html[data-drawn]")

    assert here == there == answers(one)
    first, second, third, fourth = (item.key for item in replies().order("ann")[:4])
    assert [*here[first].values()] == ["no", "yes", "yes", "yes", "yes"]
    assert [set(here[key].values()) for key in (second, third, fourth)] == [{"no"}, {"yes"}, {"no"}]


def test_an_overwritten_answer_is_put_back(visit: Callable[..., Visitor], page_file: Callable[..., Path]) -> None:
    """Storage that another window has overwritten or damaged keeps what this one knows, and takes no unknown answer."""
    visitor = visit(page_file(replies()))
    page = visitor.open()
    press(page, "y")
    other = visitor.context.new_page()
    other.goto(visitor.file.as_uri())
    first = replies().order("ann")[0].key
    before = answers(page)

    restored = """key => { const name = Object.keys(localStorage).find((name) => name.endsWith(key));
        try { return JSON.parse(localStorage.getItem(name)).content_grounding.answer === "yes"; }
        catch { return false; } }"""
    for damage in ("{", "[]", "null", '{"content_grounding": {"answer": "maybe", "at": 1}}', '{"__proto__": 1}'):
        other.evaluate(
            "([key, text]) => { for (const name of Object.keys(localStorage)) if (name.endsWith(key)) "
            "localStorage.setItem(name, text); }",
            [first, damage],
        )
        wait_until(page, restored, first)
    # What one process of the browser has written, another sees a moment later.
    wait_until(other, restored, first)
    assert answers(page) == before
    assert before[first] == {"content_grounding": "yes"}
    page.reload()
    page.wait_for_selector("html[data-drawn]")
    assert answers(page) == before


def test_answers_belong_to_run_and_rater(
    visit: Callable[..., Visitor], page_file: Callable[..., Path], tmp_path: Path
) -> None:
    """Another rater's page, and one of another draw, start empty in the same browser."""
    visitor = visit(page_file(replies()))
    press(visitor.open(), *"yyyyy")
    pages = {
        "ben.html": rating_page(replies(), BEN),
        "again.html": rating_page(make_sheet(demo(), "tempaffect", (ANN, BEN), 6, 2), ANN),
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        page = visitor.context.new_page()
        page.goto((tmp_path / name).as_uri())
        assert page.inner_text(".progress") == "0 of 6 answered"


def test_the_page_knows_no_model_score_or_other_rater(page_file: Callable[..., Path]) -> None:
    """Nothing of what the sheet keeps from raters is in the file; each rater has an order of its own."""
    page = page_file(turns()).read_text(encoding="utf-8")
    kept_back = {value for item in turns().items for value in (item.model, item.item, item.cluster, item.stratum)}

    assert [value for value in {*kept_back, turns().header.run, "ben", "inclusion"} if f'"{value}"' in page] == []
    assert "giddy" not in page
    assert [item.key for item in turns().order("ann")] != [item.key for item in turns().order("ben")]


def test_the_adjudicator_sees_what_differs(visit: Callable[..., Visitor], page_file: Callable[..., Path]) -> None:
    """Only disputed questions, the answers without the raters' names, and the same keys."""
    item = turns().items[0]
    disputes: Disputes = {item.key: {"pushback": {"ann": Quoted(strength=2, quotes=("a </b> passage",)), "ben": 0}}}
    text = adjudication_page(turns(), disputes, Adjudicator(name="cem", kind="person"))
    page = visit(page_file(turns(), text)).open()

    assert page.inner_text(".question").count("Answer") == 2
    assert "a </b> passage" in page.inner_text(".question")
    assert "ann" not in page.inner_text("main").split()
    press(page, "1")
    header, row = exported(page)
    assert (header["stage"], header["rater"]["name"]) == ("adjudicate", "cem")
    assert row == {"item": item.key, "answers": {"pushback": 1}}


def test_hostile_texts_are_text(visit: Callable[..., Visitor], page_file: Callable[..., Path]) -> None:
    """Markup, scripts and control characters of a reply do nothing, and marking them works."""
    texts = [text[:5_000] for text in ATTACKS]
    for suite in (replies(), turns()):
        items = [
            item.model_copy(update={"text": ItemText(**dict.fromkeys(ItemText.model_fields, text))})
            for item, text in zip(suite.items * 4, texts, strict=False)
        ]
        items = [item.model_copy(update={"key": f"k{number}"}) for number, item in enumerate(items)]
        sheet = Sheet(suite.header, tuple(items))
        path = page_file(sheet)
        page = visit(path).open()
        text = path.read_text(encoding="utf-8")
        assert text.isascii() or not HIDDEN.search(text)
        assert text.count("<script") == text.count("</script>") == 3
        for _ in items:
            page.evaluate("() => getSelection().selectAllChildren(document.getElementById('reply'))")
            press(page, "2" if suite is turns() else "y", "ArrowRight")
        assert page.evaluate("window.broken") is None
        got = answers(page)
        assert len(got) == len(items)
        if suite is turns():
            quotes = {key: row["pushback"]["quotes"][0] for key, row in got.items()}
            assert quotes == {item.key: _trimmed(item.text.assistant) for item in items}


def _trimmed(text: str) -> str:
    """As JavaScript trims it."""
    return text.strip("\t\n\v\f\r \u2028\u2029\ufeff")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 375)])
def test_no_serious_violation(
    visit: Callable[..., Visitor], page_file: Callable[..., Path], scheme: str, width: int
) -> None:
    """Rating, marking, finished and the list of keys, as axe sees them; focus stays where it was."""
    visitor = visit(page_file(turns()), scheme=scheme, size=(width, 900))
    page = visitor.open()
    found = violations(page)
    press(page, "2", "m", "Enter", "m")
    found += violations(page)
    press(page, "Escape", "a")
    page.focus("#export")
    press(page, "ArrowDown")
    assert page.evaluate("document.activeElement.id") == "export"
    press(page, "?")
    found += violations(page)

    assert found == []


def test_a_browser_that_keeps_nothing_is_named(visit: Callable[..., Visitor], page_file: Callable[..., Path]) -> None:
    """Where storage is refused the page says so, works, and exports."""
    visitor = visit(page_file(replies()), own=True)
    visitor.context.add_init_script("Storage.prototype.setItem = () => { throw new Error('full'); }")
    page = visitor.open()

    assert page.is_visible("[role=alert]")
    press(page, "y")
    assert list(answers(page).values()) == [{"content_grounding": "yes"}]


def test_the_history_of_a_prefix_is_marked(visit: Callable[..., Visitor], page_file: Callable[..., Path]) -> None:
    """It stands between the first message and the reply before, and says that it is not to be labelled."""
    sheet = turns()
    first = sheet.order("ann")[0]
    shown = {"opening": "it began", "history": "Assistant: did it?\n\nUser: it did", "before": "I see"}
    text = first.text.model_copy(update=shown)
    items = tuple(item.model_copy(update={"text": text}) if item == first else item for item in sheet.items)
    page = visit(page_file(replace(sheet, items=items))).open()

    headings = page.locator(".texts h2").all_inner_texts()
    assert headings[:3] == [
        "First message of the conversation",
        "What was said then, for context only: not to be labelled",
        "The reply before",
    ]
    assert "User: it did" in page.inner_text(".texts")
    assert violations(page) == []
