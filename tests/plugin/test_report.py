"""The report of a run: what is in it, where it lies, and that it is whole."""

from __future__ import annotations

import stat

import pytest

from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import Card
from pytest_spiral.report.read import load_report
from pytest_spiral.store import RunStore
from tests.plugin.conftest import Project

# What other programs rely on; the schema and the report model are tested for more.
CARD_KEYS = {
    *("model", "prompting_mode", "score", "skill", "valid_output_rate", "useful_bounded_response_rate"),
    *("ubr_rate_deduped", "fields", "reply_checks", "families", "detectors", "intervals", "baselines", "integrity"),
    "cautions",
}
ITEM_KEYS = {"id", "family", "model", "prompting_mode", "epoch", "status", "reason", "output", "points", "score"}
GATE_KEYS = {"expr", "model", "metric", "value", "ci_low", "ci_high", "threshold", "policy", "outcome", "worst_case"}


@pytest.fixture
def run(project: Project) -> Project:
    """A complete run with a gate."""
    project.setenv("GITHUB_STEP_SUMMARY", str(project.path / "steps.md"))
    project.write(steps__md="before\n")
    result = project.pytest(
        "--model",
        "dry/perfect",
        "--suite=tempaffect",
        "--run-id",
        "r",
        "--gate",
        "tempaffect.score >= 0.1",
        "-p",
        "no:xdist",
    )
    assert result.ret == 0
    return project


def test_all_files_are_there(run: Project) -> None:
    """Everything that is promised exists, `latest` points to it, and the job summary has the summary appended."""
    folder = run.folder("r")
    report = load_report(folder / "report.json")
    document = run.report("r")

    assert (report.verdict, report.run.complete) == ("pass", True)
    assert report.integrity.tempaffect is not None
    assert report.usage.by_role["evaluated"].requests == 150
    assert report.usage.by_role["evaluated"].cost_usd == 0.0
    assert [set(card) >= CARD_KEYS for card in document["tempaffect"]["cards"]] == [True, True]
    assert all(set(item) >= ITEM_KEYS for item in document["tempaffect"]["items"])
    assert [set(gate) >= GATE_KEYS for gate in document["gates"]] == [True, True]
    assert (run.path / "reports" / "latest").resolve() == folder
    cards = [Card.model_validate_json(card) for card in run.cards("r").values()]
    assert sorted(card.prompting_mode for card in cards) == ["raw_json", "schema_assisted"]
    assert all(card in report.tempaffect.cards for card in cards)
    summary = (folder / "summary.md").read_text()
    assert "dry/perfect" in summary.replace("\\", "")
    assert (run.path / "steps.md").read_text() == "before\n" + summary_markdown(report, page=None)
    page = (folder / "report.html").read_text()
    assert f"<title>pytest-spiral {report.run.id}</title>" in page
    assert page.count('id="pack-s') == 75
    assert not list(folder.rglob(".*"))
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in folder.rglob("*.json")} == {0o044}


def test_every_request_and_reply_is_kept(run: Project) -> None:
    """`run.sqlite` holds both, word for word."""
    store = RunStore.join(run.folder("r") / "run.sqlite")
    exchanges = store.exchanges()
    store.close()

    outputs = {item["output"] for item in run.report("r")["tempaffect"]["items"]}
    assert len({each.request.key for each in exchanges}) == 150
    assert {each.reply.text for each in exchanges} == outputs
    assert {message.role for each in exchanges for message in each.request.messages} == {"system", "user"}


def test_a_second_run_moves_latest(project: Project) -> None:
    """`latest` is the newest report."""
    for name in ("one", "two"):
        project.pytest(
            "--model", "dry/perfect", "--suite=tempaffect", "--run-id", name, "-k", "ps-01 and raw", "-p", "no:xdist"
        )

    assert (project.path / "reports" / "latest").resolve().name == "two"


def test_keys_are_taken_out_of_argv(project: Project) -> None:
    """The command line is part of the report; a key that somebody put there is not."""
    key = "sk-argv-0123456789abcdefXYZ"
    args = (
        "--model",
        "dry/perfect",
        "--suite=tempaffect",
        "-k",
        "ps-01 and raw",
        "-p",
        "no:xdist",
        "-o",
        f"junit_suite_name={key}",
    )

    project.pytest(*args)

    assert key not in (project.folder() / "report.json").read_text()


def test_short_keys_are_taken_out_of_argv_as_words_only(project: Project) -> None:
    """A local server's key may be one letter; a command with half a model's name would not work."""
    project.setenv("OPENAI_API_KEY", "x")
    project.setenv("JUDGE_API_KEY", "one")
    ours = ["--model", "dry/perfect", "--suite=tempaffect", "--run-id", "one"]
    args = [*ours, "-k", "ps-01 and raw", "-p", "no:xdist", "-o", "junit_suite_name=x", "-o", "junit_logging=no"]

    project.pytest(*args)

    expected = [arg.replace("suite_name=x", "suite_name=[redacted]") for arg in args]
    assert project.report("one")["run"]["argv"] == expected


def test_an_unwritable_job_summary_costs_no_report(project: Project) -> None:
    """The report is written although the job summary cannot be."""
    project.setenv("GITHUB_STEP_SUMMARY", str(project.path / "no" / "such" / "folder.md"))

    project.pytest(
        "--model", "dry/perfect", "--suite=tempaffect", "--run-id", "r", "-k", "ps-01 and raw", "-p", "no:xdist"
    )

    assert (project.folder("r") / "report.json").is_file()
