"""A report in which every string from outside is an attack: nothing runs, and nothing breaks out of its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_spiral.report.html.build import compare_page, leaderboard_page, report_page
from pytest_spiral.report.html.leaderboard import BoardEntry
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import Report
from pytest_spiral.report.terminal import summary_lines
from tests.html.conftest import Visitor
from tests.html.reports import BAD, conversations_of, demo, demo_document, typed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ATTACKS = (
    "</script><script>window.broken=1</script>",
    '"}]}</script><img src=x onerror="window.broken=1">',
    "<!--<script>window.broken=1",
    "]]><svg/onload=window.broken=1>",
    "'\"><iframe srcdoc='<script>parent.broken=1</script>'></iframe>",
    "javascript:window.broken=1",
    "\x1b[2J\x1b]0;owned\x07\x9b31m",
    "\u202egnp.exe\u2066\u200f\u061c",
    "\u2028\u2029window.broken=1\x00\ufeff",
    "{{constructor.constructor('window.broken=1')()}} ${window.broken=1} <%= 1 %>",
    "__proto__",
    "constructor",
    "@import url(http://127.0.0.1:9/x); </style><style>*{display:none}",
    "a" * 1_000_000,
    "\u0430\u0301" * 1000 + "\U000e0041",
)
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\u200e\u200f\ufeff]")

# Strings of our own: names of things, states, hashes, code. Everything else comes from outside.
_OURS = {
    "status", "evidence", "prompting_mode", "family", "verdict", "outcome", "policy", "method", "role", "protocol",
    "protocol_hash", "suite_hash", "scorer_fingerprint", "band", "kind", "sign", "harm", "worst_case", "best_case",
    "metric", "expr", "behaviour", "category", "id", "prompt_id", "model", "worst_conversation", "components",
    "prompts_hash", "persona_hash", "rubric_hash", "system_prompt_hash", "twins_hash", "instruments_hash", "expected",
    "ci_method", "gate_policy", "judge", "unit", "calibration", "standing", "code", "scenarios", "how", "mismatch",
}  # fmt: skip


def poisoned(value: Any, turn: Iterator[int]) -> Any:
    """A copy of JSON in which every string from outside is an attack, all of them in turn."""
    if isinstance(value, dict):
        return {name: item if name in _OURS else poisoned(item, turn) for name, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, turn) for item in value]
    if isinstance(value, str):
        number = next(turn)
        attack = ATTACKS[number % len(ATTACKS)]
        # The megabyte only once in a while, to keep the page small.
        return attack if len(attack) < 100_000 or number % 320 < len(ATTACKS) else attack[:50]
    return value


@pytest.fixture(scope="session")
def hostile() -> Report:
    """The report, names of models and conversations included."""
    text = json.dumps(poisoned(demo_document(), count(1)))
    names = {
        "demo/steady": "<img src=x onerror=window.broken=1>\u202e",
        "demo/giddy": "</script>\x1b[31m'\"&amp;",
        "bt-00": "<b>&\u2066",
        "judge/one": "__proto__",
        "spiral_tropes": "<u>constructor",
    }
    for name, attack in names.items():
        text = text.replace(name, json.dumps(attack)[1:-1])
    return typed(json.loads(text))


def test_no_text_reaches_the_markup(hostile: Report) -> None:
    """The file holds exactly our loader, packs and style, and no character of an attack."""
    page = report_page(hostile)

    assert page.isascii() or not HIDDEN.search(page)
    assert len(re.findall(r"<script", page)) == len(re.findall(r"</script>", page)) == page.count('id="pack-') + 1
    assert page.count("<style") == 1
    assert "<img" not in page
    assert "<iframe" not in page
    assert "<!--" not in page


def test_nothing_runs_and_nothing_breaks_out(visit: Callable[..., Visitor], hostile: Report, tmp_path: Path) -> None:
    """Every view shows the attacks as text, hidden characters as escapes; no request, no dialog, no script."""
    path = tmp_path / "hostile.html"
    path.write_text(report_page(hostile))
    visitor = visit(path)
    page = visitor.open()
    item, conversation = hostile.tempaffect.items[0], hostile.spiral.conversations[0]
    views = ("overview", "tempaffect", "items", "spiral", "conversations", "findings", "compare", "run")
    links: dict[str, dict[str, str] | None] = dict.fromkeys(views)
    links["item"] = {"model": item.model, "id": item.id}
    links["conversation"] = {"model": conversation.model, "id": conversation.id}
    for view, query in links.items():
        if query:
            page.evaluate(
                "([view, query]) => { location.hash = `${view}?${new URLSearchParams(query)}` }", [view, query]
            )
            page.wait_for_selector("nav.steps")
        else:
            page = visitor.go(view)

        assert page.evaluate("window.broken") is None, view
        assert page.locator("main h1").inner_text() != "This view could not be drawn", view
        assert page.locator("main img, main iframe, main script, main style, main link, main object").count() == 0, view
        attributes = "[...document.querySelectorAll('main *')].flatMap(n => [...n.attributes].map(a => a.name))"
        assert not [name for name in page.evaluate(attributes) if name.startswith("on") or name == "srcdoc"], view
        assert not HIDDEN.search(page.evaluate("document.querySelector('main').innerHTML")), view
        addresses = page.evaluate("[...document.querySelectorAll('main a')].map(a => a.getAttribute('href'))")
        assert all(address.startswith("#") for address in addresses), view
    assert "\\u202e" in page.inner_text("main")
    assert page.locator(".invisible").count() > 0
    assert page.is_visible("main h1")


def test_a_megabyte_in_one_line_is_shown_in_parts(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    """The beginning at once, the rest on request; a link to a finding further down shows all of it."""
    document = demo_document()
    conversation = conversations_of(document, BAD)[0]
    long = "x" * 1_000_000 + "the end"
    conversation["transcript"][1]["content"] = long
    place = {"turn": 0, "quote": "the end", "start": 1_000_000, "end": 1_000_007, "evidence": "exact"}
    judgement = next(row for row in conversation["judgements"] if row["findings"])
    judgement["findings"] = [{**judgement["findings"][0], **place}]
    conversation["judgements"] = [judgement]
    address = f"conversation?model={BAD}&id={conversation['id']}"
    path = tmp_path / "long.html"
    path.write_text(report_page(typed(document)))
    visitor = visit(path)
    page = visitor.open(address)
    assert len(page.inner_text("#turn-1 .message-text")) < 30_000
    page.click("#turn-1 .more")
    assert page.inner_text("#turn-1 .message-text") == long

    page = visitor.open(f"{address}&turn=1&finding=1")
    assert page.inner_text("mark.current") == "the end"


def test_the_policy_stops_scripts_and_requests(browser: Browser, demo_page: Path) -> None:
    """If a script got into the page all the same, the browser would refuse it, and any request."""
    context = browser.new_context()
    page = context.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.goto(demo_page.as_uri())
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.broken = 1";
            document.body.append(script);
            const image = document.createElement("img");
            image.src = "http://127.0.0.1:9/leak";
            document.body.append(image);
            fetch("http://127.0.0.1:9/leak").catch(() => {});
        }"""
    )
    page.wait_for_timeout(200)

    assert page.evaluate("window.broken") is None
    assert sum("Content Security Policy" in line for line in messages) >= 3
    context.close()


def test_other_pages_are_as_inert(visit: Callable[..., Visitor], hostile: Report, tmp_path: Path) -> None:
    """The leaderboard and the comparison too."""
    entries = [BoardEntry(hostile, "runs/x.html")]
    pages = {"leaderboard": leaderboard_page(entries), "compare": compare_page([hostile, demo()])}
    for name, text in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(text)
        page = visit(path).open()

        assert page.evaluate("window.broken") is None
        assert page.locator("main img, main iframe, main script").count() == 0
        assert not HIDDEN.search(page.evaluate("document.querySelector('main').innerHTML"))


def test_summaries_hold_no_escapes(hostile: Report) -> None:
    """Neither a terminal nor a pull request acts on what a model wrote."""
    terminal = "\n".join(line for line, _ in summary_lines(hostile, "reports/demo"))
    comment = summary_markdown(hostile)

    assert not HIDDEN.search(terminal)
    assert not HIDDEN.search(comment.replace("\n", ""))
    assert not re.search(r"<[a-z/!]", comment)
    assert len(comment) < 65_536
