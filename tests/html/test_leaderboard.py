"""The leaderboard: one table for comparable results, ranks that account for intervals, none for the unpublishable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.cli import main
from pytest_spiral.cli.runs import open_report
from pytest_spiral.report.html.leaderboard import BoardEntry, Group, leaderboard
from pytest_spiral.report.model import TempAffect
from pytest_spiral.report.write import write_site
from tests.fakes.bootstrap import few_draws
from tests.fakes.published import ENSEMBLE, SCORED, numbers_of
from tests.html.conftest import Visitor
from tests.html.reports import BAD, GOOD, demo, demo_document, typed

Document = dict[str, Any]


def publishable() -> Document:
    """The report with no blockers."""
    document = demo_document()
    for card in document["tempaffect"]["cards"]:
        card["integrity"]["publication_blockers"] = []
    for score in document["spiral"]["scores"]:
        score["blockers"] = []
    return document


def groups(*documents: Document) -> list[Group]:
    return leaderboard([BoardEntry(typed(document), "x.html") for document in documents])


def ranks(*documents: Document) -> dict[str, set[int | None]]:
    """Ranks of each model in the one table of Spiral-Bench."""
    (group,) = (group for group in groups(*documents) if group.title.startswith("Spiral"))
    return {model: {row.rank for row in group.rows if row.model == model} for model in (GOOD, BAD)}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["integrity", "spiral", "rubric_hash"], "d" * 64),
        (["integrity", "spiral", "prompts_hash"], "d" * 64),
        (["spiral", "scores", 0, "protocol_hash"], "d" * 64),
        (["spiral", "scores", 0, "turns"], {"20": 3}),
        (["run", "seed"], 2),
        (["tempaffect", "cards", 0, "integrity", "suite_hash"], "d" * 64),
        (["tempaffect", "cards", 0, "integrity", "scorer_fingerprint"], "d" * 64),
    ],
    ids=["rubric", "prompts", "protocol", "turns", "seed", "suite", "scorer"],
)
def test_unequal_runs_never_share_a_table(path: list[str | int], value: object) -> None:
    """One difference, one more table, and the reason."""
    other = publishable()
    node: Any = other
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value

    assert len(groups(publishable(), publishable())) == 3
    tables = groups(publishable(), other)
    assert len(tables) == 4
    assert len({name for table in tables for name in table.apart}) == 1


def test_files_of_both_versions_and_own_runs_are_never_ranked_together() -> None:
    """Three tables that say why, whatever else of the results could be ranked."""
    with few_draws():
        imported = [open_report(numbers_of(name), ()) for name in (SCORED[0], ENSEMBLE)]
    reports = [*imported, typed(publishable())]
    publication = {"blockers": (), "publication_ready": True}
    for number, report in enumerate(reports):
        scores = tuple(score.model_copy(update=publication) for score in report.spiral.scores)
        spiral = report.spiral.model_copy(update={"scores": scores})
        reports[number] = report.model_copy(update={"spiral": spiral, "tempaffect": TempAffect()})
    tables = leaderboard([BoardEntry(report, "x.html") for report in reports])

    assert sorted((table.title, dict(table.same)["turns"], len(table.rows)) for table in tables) == [
        ("Spiral-Bench, per-10k-chars", "20 turns", 1),
        ("Spiral-Bench, per-turn", "6 turns", 2),
        ("Spiral-Bench, upstream-v1.2", "3 turns", 1),
    ]
    assert all({"judges", "turns", "seed", "prompts hash"} <= {*table.apart} for table in tables)
    assert sorted(row.rank or 0 for table in tables for row in table.rows) == [1, 1, 1, 2]


def test_judges_and_simulated_user_separate_tables() -> None:
    """Another judge or simulated user is another measurement; a conversation that was not run names neither."""
    whole, judged, simulated, unmeasured = (publishable() for _ in range(4))
    judges = judged["spiral"]["scores"][0]["judges"]["per_judge"]
    judges["judge/other"] = judges.pop("judge/one")
    for origin in simulated["spiral"]["origins"]:
        origin["user_model"] = "another"
    rows = unmeasured["spiral"]["conversations"]
    rows[:] = [row for row in rows if row["status"] == "measured"]

    assert [len(groups(whole, other)) for other in (judged, simulated, unmeasured)] == [4, 4, 3]


def test_rank_counts_the_surely_better_models() -> None:
    """Overlapping intervals share a rank, several runs of a model count once, blockers mean no rank."""
    close = publishable()
    for number in ("risk", "protection", "worst"):
        close["spiral"]["scores"][1]["headline"][number] |= {"ci_low": 0.0, "ci_high": 99.0}

    assert ranks(publishable()) == {GOOD: {1}, BAD: {2}}
    assert ranks(*[publishable() for _ in range(3)]) == {GOOD: {1}, BAD: {2}}
    assert ranks(close) == {GOOD: {1}, BAD: {1}}
    assert ranks(demo_document()) == {GOOD: {None}, BAD: {None}}


def test_a_card_whose_interval_failed_shows_its_value() -> None:
    """The value was measured; only where it ranks is not known."""
    document = publishable()
    card = document["tempaffect"]["cards"][0]
    del card["intervals"]["score"]
    rows = [row for group in groups(document) for row in group.rows if group.title.startswith("TempAffect")]

    assert (card["score"], None, None) in [row.values["score"] for row in rows]


def test_protection_pays_for_no_risk_in_the_ranks() -> None:
    """Who protects more and harms more is not ranked above, whatever the composite says."""
    mixed = publishable()
    worse = mixed["spiral"]["scores"][1]
    worse["headline"]["protection"] |= {"ci_low": 98.0, "ci_high": 99.0}
    worse |= {"ci_low": 98.0, "ci_high": 99.0}

    assert ranks(mixed) == {GOOD: {1}, BAD: {1}}


def test_over_correction_ranks() -> None:
    """Who objects to everybody is not the equal of who does not."""
    equal = publishable()
    good, bad = equal["spiral"]["scores"]
    bad["headline"] = good["headline"]
    over = {"conversations": 12, "of_conversations": 12, "turns": 48, "why": {}, "originals": None}
    good["over_correction"] = {**over, "share": 0.0, "ci_low": 0.0, "ci_high": 0.26}
    bad["over_correction"] = {**over, "share": 1.0, "ci_low": 0.74, "ci_high": 1.0}

    assert ranks(equal) == {GOOD: {1}, BAD: {2}}


def test_without_a_headline_the_composite_ranks() -> None:
    """As in reports of earlier versions."""
    earlier, close = publishable(), publishable()
    for document in (earlier, close):
        for score in document["spiral"]["scores"]:
            score["headline"] = None
        good, bad = document["spiral"]["scores"]
        good |= {"ci_low": 90.0, "ci_high": 99.0}
        bad |= {"ci_low": 60.0, "ci_high": 70.0}
    close["spiral"]["scores"][1]["ci_high"] = 95.0

    assert ranks(earlier) == {GOOD: {1}, BAD: {2}}
    assert ranks(close) == {GOOD: {1}, BAD: {1}}


def test_the_site_sorts_and_links(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    """Columns sort both ways by button; rows lead to the run's page and back."""
    report = typed(publishable())
    written, _ = write_site([report, report], tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == ["index.html", "runs/demo.html", "runs/demo-2.html"]

    visitor = visit(written[0])
    page = visitor.open()
    section = page.locator("section", has_text="Spiral-Bench, per-turn")
    models = section.locator("tbody th")
    assert models.all_inner_texts() == [GOOD, GOOD, BAD, BAD]
    section.locator("button:has-text('risk')").first.click()
    assert models.all_inner_texts() == [BAD, BAD, GOOD, GOOD]
    assert section.locator("th[aria-sort=descending]").count() == 1
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"
    section.locator("button:has-text('Model')").click()
    assert models.all_inner_texts() == [BAD, BAD, GOOD, GOOD]
    assert section.locator("svg.spark").count() == 16
    assert f"(least: {GOOD} above {BAD})" in section.inner_text()

    visitor.file = written[1]
    visitor.requests.clear()
    section.locator("tbody a").first.click()
    page.wait_for_selector("h1:has-text('Run id demo')")
    assert page.get_attribute(".brand a", "href") == "../index.html"


def test_the_console_script_writes_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pages beside the report or where told; a leaderboard over a directory of runs, `latest` not counted."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "reports" / "demo"
    run.mkdir(parents=True)
    (run / "report.json").write_text(demo().model_dump_json())
    (tmp_path / "reports" / "latest").symlink_to("demo")

    assert main(["report", "reports/demo"]) == 0
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert main(["report", "reports/demo/report.json", "-o", "one.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": ["one.html"]}
    assert (tmp_path / "one.html").read_text() == (run / "report.html").read_text()
    assert main(["leaderboard", "reports", "-o", "site", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": ["site/index.html", "site/runs/demo.html"]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["report", "nothing.json"], "nothing.json: cannot be read"),
        (["report", "list.json"], "expected an object, got list"),
        (["report", "old.json"], "old.json: "),
        (["report", "empty"], "empty: no report.json in it"),
        (["leaderboard", "empty", "-o", "site"], "empty: no report.json in it"),
    ],
)
def test_wrong_input_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    """Exit code 4, the file named, nothing written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "old.json").write_text('{"schema_version": 1}')

    assert main(arguments) == 4

    out, err = capsys.readouterr()
    assert says in err
    assert err.count("\n") == 1
    assert out == ""
    assert not (tmp_path / "site").exists()
