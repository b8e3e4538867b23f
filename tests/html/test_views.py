"""Every view is reached, and what a reader does in it works, without a complaint of the browser or a network."""

from __future__ import annotations

import json
import re

import pytest

from pytest_spiral.report.html.build import compare_page, report_page
from pytest_spiral.report.html.view import view_of
from tests.html.reports import BAD, GOOD, RISKY, demo_report

VIEWS = {
    "overview": "Run demo",
    "tempaffect": "TempAffect 1",
    "items": "TempAffect items",
    f"item?model={GOOD}&mode=schema&id=pi-01": "pi-01",
    "spiral": "Spiral-Bench",
    f"spiral?model={BAD}": "Spiral-Bench",
    "talks": "Conversations",
    f"talk?model={BAD}&id=bt-00-1": "bt-00-1",
    "findings": "Findings",
    "compare": "Compare",
    "compare?talk=bt-01-1": "Compare",
    "compare?item=pi-01&mode=schema": "Compare",
    "run": "About this run",
}


def test_every_view_is_reached(visit, demo):
    """By its address, with a heading of its own and nothing wider than the window."""
    visitor = visit(demo)
    visitor.open()
    for address, heading in VIEWS.items():
        page = visitor.go(address)

        assert page.inner_text("h1").startswith(heading), address
        assert page.locator("main").inner_text().count("undefined") == 0, address
        assert "NaN" not in page.locator("main").inner_html(), address
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address


def test_every_view_fits_a_phone(visit, demo):
    """375 pixels wide, nothing scrolls sideways but tables in their frames."""
    visitor = visit(demo, viewport={"width": 375, "height": 812})
    visitor.open()
    for address in VIEWS:
        page = visitor.go(address)

        assert page.evaluate("document.documentElement.scrollWidth") <= 375, address


def test_the_navigation_leads_everywhere(visit, demo):
    """A reader who only clicks reaches each page of the menu, and the one he is on is marked."""
    visitor = visit(demo)
    page = visitor.open()
    for name in page.locator("nav.main a").all_inner_texts():
        page.click(f"nav.main a:text-is('{name}')")
        page.wait_for_selector(f"nav.main a[aria-current=page]:text-is('{name}')")

    assert page.locator("nav.main a").count() == 8


def test_the_numbers_are_those_of_the_report(visit, demo):
    """What the pages say is what report.json says."""
    report = demo_report()
    visitor = visit(demo)
    page = visitor.open("tempaffect")
    card = report["tempaffect"]["cards"][0]
    row = page.locator("table", has_text="Two rows per model").locator("tbody tr").first.inner_text()

    assert card["model"] in row
    assert f"{card['useful_bounded_response_rate']:.2f}" in row
    assert page.locator("table", has_text="Two rows per model").locator("tbody tr").count() == 4

    page = visitor.go(f"spiral?model={BAD}")
    score = next(score for score in report["spiral"]["scores"] if score["model"] == BAD)
    assert page.inner_text(".lead").startswith(f"{score['score']:.1f} of 100 for {BAD}")
    harm = page.locator("tr", has=page.locator("th a:text-is('harmful advice')")).inner_text()
    assert f"{score['metrics']['harmful_advice']['mean']:.2f}" in harm


def test_all_that_the_public_page_promises_is_drawn(visit, demo):
    """Strip, claim, table, lines, delta, bars, scatter, heat cells, hatched families, integrity."""
    page = visit(demo).open("tempaffect")
    page.wait_for_selector("figure svg")

    assert page.locator(".strip li").count() == 4
    assert page.locator(".claim li").count() == 4
    headings = page.locator("main h2").all_inner_texts()
    assert headings[:8] == [
        "Cards", "Useful and bounded, by family", "Schema-assisted against raw JSON", "Metric by metric",
        "Format against behaviour", "Gaming detectors", "Families", "Integrity",
    ]  # fmt: skip
    charts = page.locator("figure svg[role=img]")
    assert charts.count() >= 5
    assert all(charts.nth(n).get_attribute("aria-label") for n in range(charts.count()))
    assert page.locator("figure", has_text="in each family").locator("polyline").count() == 4
    assert page.locator("figure", has_text="a dot per card").locator("svg .full, svg .hollow").count() >= 4
    assert page.locator("td.hatched").count() > 0
    assert page.locator("table", has_text="Integrity of every card").locator("tbody tr").count() == 8


def test_without_results_every_view_says_so(visit, tmp_path):
    """An empty report has empty states, not empty pages."""
    report = demo_report()
    report["tempaffect"] = {"cards": [], "deltas": [], "items": [], "scenarios": {}}
    report["spiral"] = {"scores": [], "conversations": []}
    report["gates"] = []
    report["run"]["complete"] = False
    path = tmp_path / "empty.html"
    path.write_text(report_page(report))
    visitor = visit(path)
    assert "interrupted" in visitor.open().inner_text(".notice")
    for address in VIEWS:
        page = visitor.go(address)

        assert address == "run" or page.locator(".empty").count() > 0, address


def test_items_are_filtered_and_searched(visit, demo):
    """By what they missed and by words of message or output; the address keeps the filters."""
    items = demo_report()["tempaffect"]["items"]
    visitor = visit(demo)
    page = visitor.open("items")
    rows = page.locator("tbody tr")
    assert rows.count() == len(items)

    page.select_option("#filter-missed", "content_grounding")
    page.select_option("#filter-model", BAD)
    wanted = [i for i in items if i["model"] == BAD and i["points"].get("content_grounding") == 0]
    assert rows.count() == len(wanted)

    page = visitor.open("items")
    page.fill("#filter-q", "certainly!")
    said = [item for item in items if "Certainly!" in item["output"]]
    page.wait_for_function("n => document.querySelectorAll('tbody tr').length === n", arg=len(said))
    assert "q=certainly" in page.url

    page = visitor.open(page.url.partition("#")[2])
    page.wait_for_function("n => document.querySelectorAll('tbody tr').length === n", arg=len(said))


def test_an_item_shows_why_it_earned_what_it_earned(visit, demo):
    """Message, context, output, field by field, reasons of the checks with their words marked in the reply."""
    report = demo_report()
    item = next(
        i for i in report["tempaffect"]["items"] if i["model"] == GOOD and i["prompting_mode"] == "schema_assisted"
    )
    scenario = report["tempaffect"]["scenarios"][item["id"]]
    page = visit(demo).open(f"item?model={GOOD}&mode=schema&id={item['id']}")
    text = page.inner_text("main")

    assert scenario["user_message"] in text
    assert scenario["agent_context"] in text
    assert page.inner_text("pre.output") == item["output"]
    for reasons in item["checks"]["reasons"].values():
        assert all(reason in text for reason in reasons)
    labels = page.locator("table", has_text="expected against given").locator("tbody tr")
    assert labels.count() == 7
    assert "matches" in labels.first.inner_text()
    marked = page.locator(".said mark").all_inner_texts()
    reply = item["answer"]["reply"]
    assert marked
    assert all(words in reply for words in marked)
    assert page.locator(".said", has=page.locator("mark")).inner_text() == reply


def test_an_invalid_output_is_shown_with_its_reason(visit, demo):
    """Nothing is hidden because it could not be parsed."""
    item = next(i for i in demo_report()["tempaffect"]["items"] if i["status"] == "model_failed")
    page = visit(demo).open(f"item?model={item['model']}&mode=raw&id={item['id']}")

    assert page.inner_text("pre.output") == item["output"]
    assert item["reason"].replace("_", " ") in page.inner_text(".lead")


def test_findings_are_marked_where_they_stand(visit, demo):
    """Code points, not code units: an emoji before the quote moves nothing. Unlocated quotes are listed, not marked."""
    report = demo_report()
    talk = next(t for t in report["spiral"]["conversations"] if t["model"] == BAD and t["id"] == "bt-00-1")
    page = visit(demo).open(f"talk?model={BAD}&id=bt-00-1")

    for number, finding in enumerate(talk["findings"], start=1):
        item = page.locator(f"#finding-{number}")
        assert finding["behaviour"].replace("_", " ") in item.inner_text()
        assert finding["judge"] in item.inner_text()
        marks = page.locator(f"#turn-{finding['turn'] + 1} mark[data-finding~='{number}']").all_inner_texts()
        assert "".join(marks) == ("" if finding["evidence"] == "unlocated" else finding["quote"])
    assert page.locator(".finding q").all_inner_texts() == ["words that nobody said"]
    notes = page.locator(".message.user .note").all_inner_texts()
    assert notes[0] == "It was told: Ask for clarification."
    # The seeker of this report starts every message alike: the rule it breaks is named at each of them.
    flags = [flag["rule"] for flag in talk["simulator"]["flags"]]
    assert [note.split(" ", 1)[0] for note in notes[1:]] == flags
    page.click("#turn-1 summary")
    assert "Reasoning of judge/one on turn 0." in page.inner_text("#turn-1")


def test_words_to_the_judge_are_marked(visit, tmp_path):
    """A reply that speaks to the judge is flagged at its words, and such conversations can be filtered."""
    report = demo_report()
    talk = next(t for t in report["spiral"]["conversations"] if t["model"] == BAD and t["transcript"])
    talk["suspicions"] = [{"turn": 1, "kind": "instruction", "start": 2, "end": 16}]
    path = tmp_path / "suspected.html"
    path.write_text(report_page(report))
    visitor = visit(path)
    page = visitor.open("talks?suspected=yes")
    assert page.locator("tbody tr").count() == 1

    page = visitor.go(f"talk?model={BAD}&id={talk['id']}")
    reply = talk["transcript"][3]["content"]
    assert page.locator("#turn-2 mark.suspected").all_inner_texts() == [reply[2:16]]
    assert "speaks to the judge" in page.inner_text("#turn-2")


def test_deep_links_lead_to_the_very_finding(visit, demo):
    """Each of the worst findings opens at its words, in view and focused; filters in a link are kept."""
    visitor = visit(demo)
    worst = view_of(demo_report()).shown["worst"]
    assert len(worst) == 3
    for finding in worst:
        page = visitor.open(finding["link"])
        if not finding["link"].startswith("talk?"):
            continue
        assert page.locator("mark.current").first.inner_text() in finding["quote"]
        box = page.locator("mark.current").first.bounding_box()
        assert 0 < box["y"] < 900
        assert page.evaluate("document.activeElement.classList.contains('finding')")

    page = visitor.open(f"talk?model={BAD}&id=bt-01-1&turn=3&strength=3")
    assert page.evaluate("document.activeElement.id") == "turn-3"
    assert page.input_value("#filter-strength") == "3"
    assert {int(text) for text in page.locator(".finding .strength").all_inner_texts()} <= {3}


def test_a_metric_leads_to_the_turns_behind_it(visit, demo):
    """From the behaviour table to its findings, from a finding into the conversation."""
    report = demo_report()
    harm = [
        f for t in report["spiral"]["conversations"] if t["model"] == BAD for f in t["findings"]
        if f["behaviour"] == RISKY[0]
    ]  # fmt: skip
    page = visit(demo).open(f"spiral?model={BAD}")
    page.click("th a:text-is('harmful advice')")
    page.wait_for_selector("h1:text-is('Findings')")

    assert page.locator("tbody tr").count() == len(harm)
    page.wait_for_function("() => !document.querySelector('td.excerpt').textContent.includes('\u2026')")
    page.click("tbody tr:first-child th a")
    page.wait_for_selector(".finding.current")
    assert page.locator(".finding.current .strength").inner_text() == "3"


def test_benign_twins_stand_apart(visit, tmp_path):
    """They are behind no number of the score: neither its findings nor its course; and they can be filtered."""
    report = demo_report()
    talks = [t for t in report["spiral"]["conversations"] if t["model"] == BAD and t["transcript"]]
    for talk in talks[1:]:
        talk["twin_of"] = "st-01"
    view = view_of(report).shown["spiral"]
    assert set(view["courses"][BAD]["n"]) == {1}

    path = tmp_path / "twins.html"
    path.write_text(report_page(report))
    visitor = visit(path)
    page = visitor.open(f"spiral?model={BAD}")
    page.click("th a:text-is('harmful advice')")
    page.wait_for_selector("h1:text-is('Findings')")
    own = [f for f in talks[0]["findings"] if f["behaviour"] == RISKY[0]]
    assert page.locator("tbody tr").count() == len(own)
    page = visitor.go("talks?twin=yes")
    assert page.locator("tbody tr").count() == len(talks) - 1
    assert "benign twin of st-01" in page.inner_text("tbody")


def test_conversations_are_filtered_and_searched(visit, demo):
    """By state, behaviour, strength, category, judge; everything said is searched."""
    talks = demo_report()["spiral"]["conversations"]
    visitor = visit(demo)
    page = visitor.open("talks")
    rows = page.locator("tbody tr")
    assert rows.count() == len(talks)

    page.select_option("#filter-status", "instrument_failed")
    assert rows.count() == sum(t["status"] == "instrument_failed" for t in talks)
    assert "timeout" in rows.first.inner_text()

    page = visitor.open(f"talks?category=spiral_tropes&judge=judge/two&strength=3&behaviour={RISKY[0]}")
    wanted = [
        t for t in talks if t["category"] == "spiral_tropes"
        and any((f["judge"], f["strength"], f["behaviour"]) == ("judge/two", 3, RISKY[0]) for f in t["findings"])
    ]  # fmt: skip
    assert rows.count() == len(wanted) > 0

    page = visitor.open("talks")
    page.fill("#filter-q", "OPENING number 4")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 2")
    assert all("opening number 4" in text for text in rows.all_inner_texts())


def test_the_keyboard_is_enough(visit, demo):
    """j and k step through findings, brackets through conversations, / finds the search, ? the help; and all can be
    switched off."""
    visitor = visit(demo)
    page = visitor.open(f"talk?model={BAD}&id=bt-01-1")
    page.keyboard.press("j")
    first = page.locator(".finding.current").get_attribute("id")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.locator(".finding.current").get_attribute("id") == first
    assert page.evaluate("document.activeElement.id") == first
    page.keyboard.press("]")
    page.wait_for_selector("h1:has-text('bt-02-1')")
    page = visitor.go("talks")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter-q"
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") != "filter-q"


def test_the_skip_link_is_no_route(visit, demo):
    """It moves the focus to the content and leaves the view alone."""
    page = visit(demo).open("talks")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    assert page.evaluate("document.activeElement.id") == "main"
    assert page.inner_text("h1") == "Conversations"


def test_two_runs_stand_side_by_side(visit, tmp_path):
    """The same prompt and the same scenario of two runs; unequal runs are named as such."""
    one, other = demo_report(), demo_report()
    other["run"]["id"] = "later"
    other["integrity"]["spiral"]["rubric_hash"] = "d" * 64
    path = tmp_path / "compare.html"
    metric = {"first": 1.0, "second": 2.25, "difference": -1.25, "low": -2.0, "high": -0.5, "differs": True, "mde": 1.1}
    row = {"suite": "spiral", "mode": None, "first": GOOD, "second": GOOD, "paired": 9, "unit": "prompt"}
    row |= {"metrics": {"score": {**metric, "p": None}}, "only_first": [], "only_second": ["bt-99"]}
    path.write_text(compare_page([one, other], {"notes": ["not checked: turns"], "comparisons": [row]}))
    visitor = visit(path)
    page = visitor.open()

    assert "rubric hash" in page.inner_text(".notice")
    assert "\u22121.250 (\u22122.000 to \u22120.500)" in " ".join(page.inner_text("main").split())
    assert "measured on the right alone: bt-99" in page.inner_text("main")
    assert page.input_value("#left").startswith("0:")
    assert page.input_value("#right").startswith("1:")
    page.click("tbody a:has-text('bt-01-1')")
    page.wait_for_selector(".sides")
    assert page.locator(".sides > header h3").all_inner_texts() == [f"demo: {GOOD}", f"later: {GOOD}"]
    assert page.locator(".sides .message.assistant").count() == 12

    page = visitor.go("overview?run=1")
    assert page.inner_text("h1") == "Run later"
    page.click("nav.main a:text-is('Conversations')")
    page.wait_for_selector("h1:text-is('Conversations')")
    page.click("tbody th a >> nth=0")
    page.wait_for_selector(".chat")
    assert "run=1" in page.url


def test_what_later_releases_add_is_shown(visit, tmp_path):
    """Unknown keys of scores, gates, conversations and the report itself appear as plain tables."""
    report = demo_report()
    report["novelty"] = {"lexical_profile": {"mtld": 71.25}}
    report["gates"][0]["second_opinion"] = "design effect 4.5"
    report["spiral"]["scores"][0]["stamina"] = {"half_life": 12.5}
    report["spiral"]["conversations"][0]["suspected_injection"] = ["turn 3 speaks to the judge"]
    path = tmp_path / "later.html"
    path.write_text(report_page(report))
    visitor = visit(path)

    assert "71.25" in visitor.open("run").inner_text("main")
    page = visitor.go("overview")
    page.click("summary:text-is('more')")
    assert "design effect 4.5" in page.inner_text("main")
    model = report["spiral"]["scores"][0]["model"]
    assert "12.5" in visitor.go(f"spiral?model={model}").inner_text("main")
    talk = report["spiral"]["conversations"][0]
    page = visitor.go(f"talk?model={talk['model']}&id={talk['id']}")
    page.click("summary:text-is('More about this conversation')")
    assert "turn 3 speaks to the judge" in page.inner_text("main")


def test_an_unknown_address_is_no_dead_end(visit, demo):
    """Wrong views lead to the overview; wrong ids say so and offer a way back."""
    visitor = visit(demo)
    assert visitor.open("nowhere").inner_text("h1") == "Run demo"
    for address in ("talk?id=none", "item?id=none"):
        assert visitor.go(address).locator(".empty a").count() == 1


def test_without_script_the_page_points_to_the_other_files(visit, demo):
    """A reader who allows no script is told where the results are."""
    visitor = visit(demo, java_script_enabled=False)
    visitor.page.goto(demo.as_uri())

    assert "summary.md" in visitor.page.inner_text("body")


def test_charts_keep_to_what_is_printed(visit, demo):
    """On paper there is no menu and no filter, and nothing hides in a scrolling frame."""
    page = visit(demo).open("talks")
    page.emulate_media(media="print")

    assert not page.locator("nav.main").is_visible()
    assert not page.locator(".filters").is_visible()
    assert page.locator("table").is_visible()


@pytest.mark.parametrize("key", ["tempaffect", "spiral", "run", "gates"])
def test_what_is_no_report_is_refused(key):
    """One sentence, not a broken page."""
    from pytest_spiral.errors import DataError

    report = demo_report()
    del report[key]

    with pytest.raises(DataError, match=re.escape("not a report of this version")):
        report_page(report)


def test_the_report_keeps_its_schema():
    """Scenarios and all: what pages are made from is what the shipped schema says."""
    from jsonschema import Draft202012Validator

    from pytest_spiral.resources import data_root

    schema = json.loads((data_root() / "report.schema.json").read_text())

    assert [error.message for error in Draft202012Validator(schema).iter_errors(demo_report())] == []
