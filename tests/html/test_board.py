"""The leaderboard: one table for equal protocols only, ranks that know their intervals, none for what is not ready."""

from __future__ import annotations

import copy
import json

import pytest

from pytest_spiral.cli import main
from pytest_spiral.report.html.leaderboard import Entry, board
from pytest_spiral.report.site import write_site
from tests.html.reports import BAD, GOOD, demo_report


def ready(report=None):
    """The report as if nothing stood in the way of publishing."""
    report = report or demo_report()
    for card in report["tempaffect"]["cards"]:
        card["integrity"]["publication_blockers"] = []
    for score in report["spiral"]["scores"]:
        score["blockers"] = []
    return report


def groups(*reports):
    return {
        (group["title"], str(group["same"])): group for group in board([Entry(r, "x.html") for r in reports])["groups"]
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["integrity", "spiral", "rubric_hash"], "d" * 64),
        (["integrity", "spiral", "prompts_hash"], "d" * 64),
        (["spiral", "scores", 0, "protocol_hash"], "d" * 64),
        (["spiral", "scores", 0, "judges", "per_judge"], {"judge/other": {}}),
        (["run", "config", "num_turns"], 20),
        (["tempaffect", "cards", 0, "integrity", "suite_hash"], "d" * 64),
        (["tempaffect", "cards", 0, "integrity", "scorer_fingerprint"], "d" * 64),
    ],
    ids=["rubric", "prompts", "protocol", "judges", "turns", "suite", "scorer"],
)
def test_unequal_runs_never_share_a_table(path, value):
    """One difference, one more table."""
    other = ready()
    at = other
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    assert len(groups(ready(), ready())) == 3
    assert len(groups(ready(), other)) == 4


def test_the_simulated_user_tells_tables_apart():
    """Conversations held with another seeker are another measurement."""
    other = ready()
    for talk in other["spiral"]["conversations"]:
        talk["origin"]["user_model"] = "another"

    assert len(groups(ready(), other)) == 4


def test_what_was_not_run_makes_no_table_of_its_own():
    """A conversation that never took place names no seeker; that is no other seeker."""
    whole = ready()
    whole["spiral"]["conversations"] = [t for t in whole["spiral"]["conversations"] if t["status"] == "measured"]

    assert len(groups(ready(), whole)) == 3


def test_rank_counts_who_is_surely_better():
    """Overlapping intervals share a rank; a run that may not be published has none."""
    report = ready()
    (spiral,) = (group for key, group in groups(report).items() if key[0].startswith("Spiral"))
    assert {row["model"]: row["rank"] for row in spiral["rows"]} == {GOOD: 1, BAD: 2}

    close = copy.deepcopy(report)
    close["spiral"]["scores"][1]["ci_high"] = 99.0
    (spiral,) = (group for key, group in groups(close).items() if key[0].startswith("Spiral"))
    assert {row["rank"] for row in spiral["rows"]} == {1}

    (spiral,) = (group for key, group in groups(demo_report()).items() if key[0].startswith("Spiral"))
    assert {row["rank"] for row in spiral["rows"]} == {None}


def test_runs_of_one_model_are_one_model_better():
    """Ten runs of a better model push the next one down by one rank, not by ten."""
    (spiral,) = (g for key, g in groups(*[ready() for _ in range(5)]).items() if key[0].startswith("Spiral"))

    assert {row["rank"] for row in spiral["rows"] if row["model"] == BAD} == {2}


def test_the_site_sorts_and_links(visit, tmp_path):
    """Columns sort both ways by button, rows lead to the run's own page and back."""
    later = ready()
    later["run"]["id"] = "demo"
    written = write_site([ready(), later], tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == ["index.html", "runs/demo.html", "runs/demo-2.html"]

    visitor = visit(written[0])
    page = visitor.open()
    section = page.locator("section", has_text="Spiral-Bench, per-10k-chars")
    models = section.locator("tbody th")
    assert models.all_inner_texts() == [GOOD, GOOD, BAD, BAD]
    section.locator("button:has-text('score')").click()
    assert models.all_inner_texts() == [BAD, BAD, GOOD, GOOD]
    assert section.locator("th[aria-sort=ascending]").count() == 1
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"
    section.locator("button:has-text('Model')").click()
    assert models.all_inner_texts() == [BAD, BAD, GOOD, GOOD]
    assert section.locator("svg.spark").count() == 4

    visitor.file = written[1]
    visitor.requests.clear()
    section.locator("tbody a").first.click()
    page.wait_for_selector("h1:has-text('Run demo')")
    assert page.get_attribute(".brand a", "href") == "../index.html"


def test_the_console_script_writes_pages(tmp_path, monkeypatch, capsys):
    """report again beside the report or where told; leaderboard over a folder of runs; latest is no second run."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "reports" / "demo"
    run.mkdir(parents=True)
    (run / "report.json").write_text(json.dumps(demo_report()))
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
        (["report", "list.json"], "neither a report of ours nor"),
        (["report", "old.json"], "old.json: "),
        (["report", "empty"], "empty: neither a run folder nor a folder of runs"),
        (["leaderboard", "empty", "-o", "site"], "empty: neither a run folder nor a folder of runs"),
    ],
)
def test_wrong_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, says):
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
