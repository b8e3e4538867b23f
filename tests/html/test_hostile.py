"""A report in which every string that a model, judge or simulator wrote is an attack: nothing runs or breaks out."""

from __future__ import annotations

import json
import re

import pytest

from pytest_spiral.report.html.build import board_page, compare_page, report_page
from pytest_spiral.report.html.leaderboard import Entry
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.terminal import summary_lines
from tests.html.reports import demo_report

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
    "\ud800 lone \udfff halves",
    "{{constructor.constructor('window.broken=1')()}} ${window.broken=1} <%= 1 %>",
    "__proto__",
    "constructor",
    "@import url(http://127.0.0.1:9/x); </style><style>*{display:none}",
    "a" * 1_000_000,
    "\u0430\u0301" * 1000 + "\U000e0041",
)
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\u200e\u200f\ufeff\ud800-\udfff]"
)

# Strings that are ours: names of things, states, hashes, numbers of versions. Everything else comes from outside.
_OURS = {
    "status", "evidence", "prompting_mode", "family", "verdict", "outcome", "policy", "method", "role", "protocol",
    "protocol_hash", "suite_hash", "scorer_fingerprint", "band", "kind", "sign", "harm", "worst_case", "best_case",
    "metric", "expr", "behaviour", "category", "id", "prompt_id", "model", "worst_conversation", "components",
    "prompts_hash", "persona_hash", "rubric_hash", "expected", "ci_method", "judge",
}  # fmt: skip


def poisoned(value, key="", count=None):
    """A copy of a report with every foreign string replaced by an attack, all of them in turn."""
    count = count if count is not None else [0]
    if isinstance(value, dict):
        return {name: item if name in _OURS else poisoned(item, name, count) for name, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, key, count) for item in value]
    if isinstance(value, str) and key not in _OURS:
        count[0] += 1
        # The megabyte once in a while, so that the page stays a page.
        attack = ATTACKS[count[0] % len(ATTACKS)]
        return attack if len(attack) < 100_000 or count[0] % 320 < len(ATTACKS) else attack[:50]
    return value


@pytest.fixture(scope="module")
def hostile():
    """The report, names of models and conversations included."""
    text = json.dumps(poisoned(demo_report()))
    names = {
        "demo/steady": "<img src=x onerror=window.broken=1>\u202e",
        "demo/giddy": "</script>\x1b[31m'\"&amp;",
        "bt-00": "<b>&\u2066",
        "judge/one": "__proto__",
        "spiral_tropes": "<u>constructor",
        "boundary_action": "boundary_action",
    }
    for name, attack in names.items():
        text = text.replace(name, json.dumps(attack)[1:-1])
    return json.loads(text)


def test_no_foreign_letter_reaches_the_markup(hostile):
    """The file holds exactly the script, data and style blocks that we put there, and no raw foreign character."""
    page = report_page(hostile)

    assert page.isascii() or not HIDDEN.search(page)
    assert len(re.findall(r"<script", page)) == len(re.findall(r"</script>", page)) == page.count('id="pack-') + 2
    assert page.count("<style") == 1
    assert "<img" not in page
    assert "<iframe" not in page
    assert "<!--" not in page


def test_nothing_runs_and_nothing_breaks_out(visit, hostile, tmp_path):
    """Every view is drawn with the attacks as text, hidden characters spelt out; no request, no dialog, no script."""
    path = tmp_path / "hostile.html"
    path.write_text(report_page(hostile))
    visitor = visit(path)
    page = visitor.open()
    item, talk = hostile["tempaffect"]["items"][0], hostile["spiral"]["conversations"][0]
    links = {
        "overview": None, "tempaffect": None, "items": None, "spiral": None, "talks": None, "findings": None,
        "compare": None, "run": None,
        "item": {"model": item["model"], "id": item["id"]}, "talk": {"model": talk["model"], "id": talk["id"]},
    }  # fmt: skip
    for view, query in links.items():
        if query:
            page.evaluate(
                "([view, query]) => { location.hash = `${view}?${new URLSearchParams(query)}` }", [view, query]
            )
            page.wait_for_selector("nav.steps")
        else:
            page = visitor.go(view)

        assert page.evaluate("window.broken") is None, view
        assert page.locator("main h1").inner_text() != "This view cannot be drawn", view
        assert page.locator("main img, main iframe, main script, main style, main link, main object").count() == 0, view
        attributes = "[...document.querySelectorAll('main *')].flatMap(n => [...n.attributes].map(a => a.name))"
        assert not [name for name in page.evaluate(attributes) if name.startswith("on") or name == "srcdoc"], view
        assert not HIDDEN.search(page.evaluate("document.querySelector('main').innerHTML")), view
        addresses = page.evaluate("[...document.querySelectorAll('main a')].map(a => a.getAttribute('href'))")
        assert all(address.startswith("#") for address in addresses), view
    assert "\\u202e" in page.inner_text("main")
    assert page.locator(".unseen").count() > 0
    assert page.is_visible("main h1")


def test_a_megabyte_in_one_line_is_shown_in_parts(visit, tmp_path):
    """The first characters at once, the rest on request, a finding beyond the cut without being asked."""
    report = demo_report()
    talk = next(talk for talk in report["spiral"]["conversations"] if talk["transcript"])
    long = "x" * 1_000_000 + "the end"
    talk["transcript"][1]["content"] = long
    talk["findings"] = [
        {
            **talk["findings"][0],
            "turn": 0,
            "quote": "the end",
            "start": 1_000_000,
            "end": 1_000_007,
            "evidence": "exact",
        }
    ]
    path = tmp_path / "long.html"
    path.write_text(report_page(report))
    visitor = visit(path)
    page = visitor.open(f"talk?model={talk['model']}&id={talk['id']}")
    assert len(page.inner_text("#turn-1 .said")) < 30_000
    page.click("#turn-1 .more")
    assert page.inner_text("#turn-1 .said") == long

    page = visitor.open(f"talk?model={talk['model']}&id={talk['id']}&turn=1&finding=1")
    assert page.inner_text("mark.current") == "the end"


def test_policy_stops_what_would_slip_through(browser, demo):
    """Were a script to get into the page all the same, the browser would refuse it, and any request."""
    context = browser.new_context()
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(demo.as_uri())
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
    assert sum("Content Security Policy" in line for line in said) >= 3
    context.close()


def test_other_pages_are_as_inert(visit, hostile, tmp_path):
    """The leaderboard and the comparison too."""
    pages = {"board": board_page([Entry(hostile, "runs/x.html")]), "compare": compare_page([hostile, hostile])}
    for name, text in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(text)
        page = visit(path).open()

        assert page.evaluate("window.broken") is None
        assert page.locator("main img, main iframe, main script").count() == 0
        assert not HIDDEN.search(page.evaluate("document.querySelector('main').innerHTML"))


def test_summaries_show_no_escape(hostile):
    """Neither the terminal nor a pull request acts on what a model wrote."""
    hostile["run"]["config"] = {"model": [card["model"] for card in hostile["tempaffect"]["cards"]]}
    terminal = "\n".join(line for line, _ in summary_lines(hostile, "reports/demo"))
    comment = summary_markdown(hostile)

    assert not HIDDEN.search(terminal)
    assert not HIDDEN.search(comment.replace("\n", ""))
    assert not re.search(r"<[a-z/!]", comment)
    assert len(comment) < 65_536
