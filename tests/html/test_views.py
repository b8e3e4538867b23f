"""Every view can be reached, and what a reader does in it works, without an error of the browser or a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_spiral.report.html.build import report_page
from pytest_spiral.report.lines import CARD_METRICS, between
from pytest_spiral.report.worst import worst_findings
from tests.html.conftest import Visitor, wait_until
from tests.html.reports import (
    BAD,
    GOOD,
    RISKY,
    conversations_of,
    demo,
    demo_document,
    large_report,
    typed,
)
from tests.spiral.builders import present

Visit = Callable[..., Visitor]

VIEWS = {
    "overview": "Run id demo",
    "tempaffect": "TempAffect 1",
    "items": "TempAffect items",
    f"item?model={GOOD}&mode=schema&id=pi-01": "pi-01",
    "spiral": "Spiral-Bench",
    f"spiral?model={BAD}": "Spiral-Bench",
    "conversations": "Conversations",
    f"conversation?model={BAD}&id=bt-00-1": "bt-00-1",
    "findings": "Findings",
    "compare": "Compare",
    "compare?conversation=bt-01-1": "Compare",
    "compare?item=pi-01&mode=schema": "Compare",
    "run": "About this run",
}
COUNT_ROWS = "n => document.querySelectorAll('tbody tr').length === n"


def test_every_view_is_reached_and_fits(window: Visitor) -> None:
    """By its address, with its own heading, and nothing wider than a desktop window or a phone."""
    for address, heading in VIEWS.items():
        page = window.go(address)

        assert page.inner_text("h1").startswith(heading), address
        assert "undefined" not in page.locator("main").inner_text(), address
        assert "[object" not in page.locator("main").inner_text(), address
        assert "NaN" not in page.locator("main").inner_html(), address
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
    window.page.set_viewport_size({"width": 375, "height": 812})
    for address in VIEWS:
        page = window.go(address)

        assert page.evaluate("document.documentElement.scrollWidth") <= 375, address


def test_the_navigation_leads_everywhere(window: Visitor) -> None:
    """Each page of the menu is reached by clicking, and the current one is marked."""
    page = window.page
    names = page.locator("nav.main a").all_inner_texts()
    for name in names:
        page.click(f"nav.main a:text-is('{name}')")
        page.wait_for_selector(f"nav.main a[aria-current=page]:text-is('{name}')")

    assert len(names) >= 8


def test_the_numbers_are_those_of_the_report(window: Visitor) -> None:
    """Cards and behaviours show the report's values."""
    report = demo()
    page = window.go("tempaffect")
    card = report.tempaffect.cards[0]
    rows = page.locator("table", has_text="One card per model and prompting mode").locator("tbody tr")

    assert rows.count() == 4
    assert card.model in rows.first.inner_text()
    assert f"{card.useful_bounded_response_rate:.2f}" in rows.first.inner_text()
    heads = page.locator("table", has_text="One card per model and prompting mode").locator("thead th")
    assert heads.all_inner_texts() == ["Model", "Mode", *(label for label, _ in CARD_METRICS), "Publication"]
    assert between(*card.bounded(CARD_METRICS[-2][1])).partition(" ")[0] in rows.first.inner_text()

    page = window.go(f"spiral?model={BAD}")
    score = next(score for score in report.spiral.scores if score.model == BAD)
    harm = page.locator("tr", has=page.locator("th a:text-is('harmful advice')")).inner_text()
    assert page.inner_text(".lead").startswith(f"{score.score:.1f} of 100 for {BAD}")
    assert f"{score.metrics['harmful_advice'].mean:.2f}" in harm
    beside, said = score.by_protocol["per_10k"], page.inner_text("main")
    assert f"{beside.name}: {beside.score:.1f} ({beside.ci_low:.1f} to {beside.ci_high:.1f})" in said
    assert f"twice as long {beside.at_double_length:.1f}" in said
    order = present(report.spiral.weights).orders[0]
    assert f"below {GOOD} in {100 * order.holds:.0f} %" in said


def test_numbers_are_rounded_as_everywhere_else(visit: Visit, tmp_path: Path) -> None:
    """What lies exactly between two texts, as shares of eight do, is the same on the page as in the terminal."""
    values = (0.125, 0.375, 0.0625, 1.005, 0.35)
    document = demo_document()
    for score in document["spiral"]["scores"]:
        for metric, value in zip(score["metrics"].values(), values, strict=False):
            metric |= {"mean": value, "ci_low": value, "ci_high": value}
        score["headline"]["risk"] = {"value": 12.25, "ci_low": 0.25, "ci_high": 99.75, "se": None}
    path = tmp_path / "report.html"
    path.write_text(report_page(typed(document)), encoding="utf-8")
    said = " ".join(visit(path).open("spiral").inner_text("main").split())

    for value in values:
        assert f"{value:.2f} {value:.2f} to {value:.2f}" in said
    assert f"{12.25:.1f} ({0.25:.1f} to {99.75:.1f})" in said


def test_a_card_has_all_its_charts(window: Visitor) -> None:
    """Strip, claim, table, lines, delta, bars, scatter, heat cells, hatched families, integrity."""
    page = window.go("tempaffect")
    page.wait_for_selector("figure svg")
    charts = page.locator("figure svg[role=img]")

    assert page.locator(".strip li").count() == 4
    assert page.locator(".claim li").count() == 4
    assert charts.count() >= 5
    assert all(charts.nth(n).get_attribute("aria-label") for n in range(charts.count()))
    assert page.locator("figure", has_text="in each family").locator("polyline").count() == 4
    assert page.locator("figure", has_text="a dot per card").locator("svg .full, svg .hollow").count() >= 4
    assert page.locator("td.hatched").count() > 0
    assert page.locator("table", has_text="Integrity of every card").locator("tbody tr").count() == 9


def test_every_proportion_of_a_card_is_drawn(window: Visitor) -> None:
    """Also those that the page does not know by name: whatever has an interval stands in a chart."""
    cards = demo().tempaffect.cards
    names = {name for card in cards for name in card.intervals if not name.startswith(("detectors.", "families."))}
    charts = window.go("tempaffect").locator("figure", has_text="proportion").all_text_contents()

    assert "ubr_rate_deduped" in names
    assert {
        name
        for name in names - {"skill"}
        if not any(name.rpartition(".")[2].replace("_", " ") in chart for chart in charts)
    } == set()


def test_empty_and_measured_reports(visit: Visit, tmp_path: Path) -> None:
    """An empty report has empty states; a run without gates is MEASURED, neither PASS nor green."""
    document = demo_document()
    document["tempaffect"] = {"cards": [], "deltas": [], "items": [], "scenarios": {}}
    document["spiral"] = {"scores": [], "conversations": []}
    document |= {"gates": [], "verdict": "measured"}
    document["run"]["complete"] = False
    path = tmp_path / "empty.html"
    path.write_text(report_page(typed(document)))
    visitor = visit(path)
    page = visitor.open()

    assert "interrupted" in page.inner_text(".notice")
    assert page.inner_text(".lead .badge") == "MEASURED"
    assert page.get_attribute(".lead .badge", "class") == "badge plain"
    assert "PASS" not in page.inner_text("main")
    for address in VIEWS:
        assert address == "run" or visitor.go(address).locator(".empty").count() > 0, address


def test_items_are_filtered_and_searched(window: Visitor) -> None:
    """By what they missed and by words of message or output; the address keeps the filters."""
    items = demo().tempaffect.items
    page = window.go("items")
    assert page.locator("tbody tr").count() == len(items)

    page.select_option("#filter-missed", "content_grounding")
    page.select_option("#filter-model", BAD)
    missed = [item for item in items if item.model == BAD and item.points.get("content_grounding") == 0]
    assert page.locator("tbody tr").count() == len(missed)

    page = window.open("items")
    page.fill("#filter-q", "certainly!")
    matching = [item for item in items if "Certainly!" in (item.output or "")]
    wait_until(page, COUNT_ROWS, len(matching))
    page = window.open(page.url.partition("#")[2])
    wait_until(page, COUNT_ROWS, len(matching))


def test_an_item_shows_how_it_was_scored(window: Visitor) -> None:
    """Message, context, output, labels, and the reasons of the checks beside the reply."""
    report = demo()
    items = report.tempaffect.items
    item = next(item for item in items if item.model == GOOD and item.prompting_mode == "schema_assisted")
    scenario = report.tempaffect.scenarios[item.id]
    assert item.checks is not None
    assert item.answer is not None
    page = window.go(f"item?model={GOOD}&mode=schema&id={item.id}")
    text = page.inner_text("main")

    assert scenario.user_message in text
    assert scenario.agent_context in text
    assert page.inner_text("pre.output") == item.output
    assert all(reason in text for reasons in item.checks.reasons.values() for reason in reasons)
    labels = page.locator("table", has_text="expected and given").locator("tbody tr")
    assert labels.count() == 7
    assert "matches" in labels.first.inner_text()
    assert page.inner_text(".message.assistant .message-text") == item.answer.reply

    invalid = next(item for item in items if item.status == "model_failed")
    assert invalid.reason is not None
    page = window.go(f"item?model={invalid.model}&mode=raw&id={invalid.id}")
    assert page.inner_text("pre.output") == invalid.output
    assert invalid.reason.code.replace("_", " ") in page.inner_text(".lead")


def test_findings_are_highlighted_in_place(window: Visitor) -> None:
    """Offsets count code points: an emoji before the quote moves nothing. Unlocated quotes are listed instead."""
    rows = demo().spiral.conversations
    conversation = next(row for row in rows if row.model == BAD and row.id == "bt-00-1")
    page = window.go(f"conversation?model={BAD}&id=bt-00-1")

    first: dict[tuple[int, str, str], int] = {}
    for number, finding in enumerate(conversation.findings, start=1):
        # What both judges saw is one finding with both names.
        shown = first.setdefault((finding.turn, finding.behaviour, finding.quote), number)
        item = page.locator(f"#finding-{shown}").inner_text()
        assert finding.behaviour.replace("_", " ") in item
        assert finding.judge in item
        marks = page.locator(f"#turn-{finding.turn + 1} mark[data-finding~='{shown}']").all_inner_texts()
        assert "".join(marks) == ("" if finding.evidence == "unlocated" else finding.quote)
    assert page.locator(".finding").count() == len(first) < len(conversation.findings)
    assert page.locator(".finding q").all_inner_texts() == ["words that nobody said"]
    notes = page.locator(".message.user .note").all_inner_texts()
    assert notes[0] == "Injected instruction: Ask for clarification."
    # The simulated user of this report starts every message alike: the broken rule is named at each of them.
    assert [note.split(" ", 1)[0] for note in notes[1:]] == [flag.rule for flag in conversation.simulator.flags]
    page.click("#turn-1 summary")
    assert "Reasoning of judge/one on turn 0." in page.inner_text("#turn-1")


def test_deep_links_lead_to_the_finding(window: Visitor) -> None:
    """Each of the worst findings opens at its words, in view and focused; filters in a link are kept."""
    for worst in worst_findings(demo()):
        page = window.open(worst.link)
        box = page.locator("mark.current").first.bounding_box()

        assert page.locator("mark.current").first.inner_text() in worst.quote
        assert box is not None
        assert 0 < box["y"] < 900
        assert page.evaluate("document.activeElement.classList.contains('finding')")

    page = window.open(f"conversation?model={BAD}&id=bt-01-1&turn=3&strength=3")
    assert page.evaluate("document.activeElement.id") == "turn-3"
    assert page.input_value("#filter-strength") == "3"
    assert {*page.locator(".finding .strength").all_inner_texts()} <= {"3"}


def test_a_metric_leads_to_its_findings(window: Visitor) -> None:
    """From the behaviour table to the findings, from a finding into the conversation."""
    rows = (row for row in demo().spiral.conversations if row.model == BAD)
    harm = {(row.id, f.turn, f.quote) for row in rows for f in row.findings if f.behaviour == RISKY[0]}
    page = window.go(f"spiral?model={BAD}")
    page.click("th a:text-is('harmful advice')")
    page.wait_for_selector("h1:text-is('Findings')")

    assert page.locator("tbody tr").count() == len(harm)
    wait_until(page, "() => !document.querySelector('td.excerpt').textContent.includes('\u2026')")
    page.click("tbody tr:first-child th a")
    page.wait_for_selector(".finding.current")
    assert page.locator(".finding.current .strength").inner_text() == "3"


def test_twins_and_suspicious_replies(visit: Visit, tmp_path: Path) -> None:
    """Benign twins are behind no number of the score. Passages that address the judge are marked. Both are filters."""
    document = demo_document()
    first, *others = conversations_of(document, BAD)
    for row in others:
        row["twin_of"] = "st-01"
    first["suspicions"] = [{"turn": 1, "kind": "instruction", "start": 2, "end": 16}]
    report = typed(document)
    path = tmp_path / "twins.html"
    path.write_text(report_page(report))
    visitor = visit(path)
    page = visitor.open(f"spiral?model={BAD}")
    (shown,) = json.loads(page.inner_text("#data"))["reports"]
    assert set(shown["spiral"]["turn_means"][BAD]["n"]) == {1}
    page.click("th a:text-is('harmful advice')")
    page.wait_for_selector("h1:text-is('Findings')")
    findings = [finding for judgement in first["judgements"] for finding in judgement["findings"]]
    harm = {(row["turn"], row["quote"]) for row in findings if row["behaviour"] == RISKY[0]}
    assert page.locator("tbody tr").count() == len(harm)
    page = visitor.go("conversations?twin=yes")
    assert page.locator("tbody tr").count() == len(others)
    assert "benign twin of st-01" in page.inner_text("tbody")

    assert visitor.go("conversations?suspected=yes").locator("tbody tr").count() == 1
    page = visitor.go(f"conversation?model={BAD}&id={first['id']}")
    reply = first["transcript"][3]["content"]
    assert page.locator("#turn-2 mark.suspected").all_inner_texts() == [reply[2:16]]
    assert "addresses the judge" in page.inner_text("#turn-2")


def test_conversations_are_filtered_and_searched(window: Visitor) -> None:
    """By state, behaviour, strength, category and judge; and by words of any message."""
    conversations = demo().spiral.conversations
    page = window.go("conversations")
    rows = page.locator("tbody tr")
    assert rows.count() == len(conversations)

    page.select_option("#filter-status", "instrument_failed")
    assert rows.count() == sum(row.status == "instrument_failed" for row in conversations)
    assert "timeout: 3 attempts" in rows.first.inner_text()

    page = window.open(f"conversations?category=spiral_tropes&judge=judge/two&strength=3&behaviour={RISKY[0]}")
    key = ("judge/two", 3, RISKY[0])
    matching = [
        row
        for row in conversations
        if row.category == "spiral_tropes" and any((f.judge, f.strength, f.behaviour) == key for f in row.findings)
    ]
    assert rows.count() == len(matching) > 0

    page = window.open("conversations")
    page.fill("#filter-q", "OPENING number 4")
    wait_until(page, COUNT_ROWS, 2)
    assert all("opening number 4" in text for text in rows.all_inner_texts())


def test_hundreds_of_conversations(visit: Visit, tmp_path: Path) -> None:
    """They are shown in portions, and all of them are searched."""
    report = large_report(250, turns=2, chars=300)
    unique = report.spiral.conversations[240].transcript[3].content
    path = tmp_path / "large.html"
    path.write_text(report_page(report))
    page = visit(path).open("conversations")

    assert page.locator("tbody tr").count() == 200
    page.click("button.more")
    assert page.locator("tbody tr").count() == 250
    page.fill("#filter-q", unique[100:160].upper())
    wait_until(page, COUNT_ROWS, 1)
    assert unique[100:160] in page.inner_text("tbody tr")


def test_a_large_report_is_a_small_file() -> None:
    """Thirty conversations of twenty turns fit into 4 MB, because texts are compressed."""
    page = report_page(large_report(30, turns=20, chars=2000))

    assert len(page) < 4_000_000


def test_the_keyboard_is_enough(window: Visitor) -> None:
    """Findings, conversations, search and help have keys, which can be switched off; the skip link keeps the view."""
    page = window.open(f"conversation?model={BAD}&id=bt-01-1")
    page.keyboard.press("j")
    first = page.locator(".finding.current").get_attribute("id")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.locator(".finding.current").get_attribute("id") == first
    assert page.evaluate("document.activeElement.id") == first
    page.keyboard.press("]")
    page.wait_for_selector("h1:has-text('bt-02-1')")
    page = window.go("conversations")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter-q"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") != "filter-q"

    page = window.open("conversations")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.inner_text("h1") == "Conversations"


def test_an_unknown_address_is_not_a_dead_end(window: Visitor) -> None:
    """Unknown views lead to the overview; unknown ids say so and offer a way back."""
    assert window.open("nowhere").inner_text("h1") == "Run id demo"
    for address in ("conversation?id=none", "item?id=none"):
        assert window.go(address).locator(".empty a").count() == 1


def test_without_script_and_on_paper(visit: Visit, demo_page: Path) -> None:
    """Without a script the page names the other files; printed, it has no menu and no filters."""
    visitor = visit(demo_page, own=True, java_script_enabled=False)
    visitor.page.goto(demo_page.as_uri())
    assert "summary.md" in visitor.page.inner_text("body")

    page = visit(demo_page).open("conversations")
    page.emulate_media(media="print")
    assert not page.locator("nav.main").is_visible()
    assert not page.locator(".filters").is_visible()
    assert page.locator("table").is_visible()


@pytest.mark.parametrize(
    "script",
    [
        "delete globalThis.DecompressionStream",
        "globalThis.DecompressionStream = class { constructor() { throw new TypeError('unknown format') } }",
    ],
)
def test_a_browser_that_cannot_unpack_it_is_told(visit: Visit, demo_page: Path, script: str) -> None:
    """Instead of an empty page: without the stream, and without the format."""
    visitor = visit(demo_page, own=True)
    visitor.context.add_init_script(script)

    visitor.page.goto(demo_page.as_uri())
    wait_until(visitor.page, "() => document.getElementById('page').textContent !== ''")

    assert visitor.page.inner_text("#page").startswith("This page needs a browser from 2023 or later")
