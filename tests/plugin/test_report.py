"""The report of a run: what is in it, where it lies, and that it is whole."""

from __future__ import annotations

import json

import pytest

from pytest_spiral.store import RunStore

KEYS = {"schema_version", "verdict", "run", "integrity", "gates", "tempaffect", "spiral", "usage"}
RUN_KEYS = {"id", "started_at", "finished_at", "complete", "argv", "config", "versions", "seed"}
CARD_KEYS = {
    "model",
    "prompting_mode",
    "score",
    "skill",
    "valid_output_rate",
    "useful_bounded_response_rate",
    "ubr_rate_deduped",
    "fields",
    "reply_checks",
    "families",
    "detectors",
    "intervals",
    "baselines",
    "integrity",
    "cautions",
}
ITEM_KEYS = {"id", "family", "model", "prompting_mode", "epoch", "status", "reason", "output", "points", "score"}
GATE_KEYS = {"expr", "model", "metric", "value", "ci_low", "ci_high", "threshold", "policy", "outcome", "worst_case"}


@pytest.fixture
def run(project):
    """A complete run with a gate."""
    project.setenv("GITHUB_STEP_SUMMARY", str(project.path / "steps.md"))
    project.write(steps__md="before\n")
    result = project.pytest(
        "--model", "dry/perfect", "--run-id", "r", "--gate", "tempaffect.score >= 0.1", "-p", "no:xdist"
    )
    assert result.ret == 0
    return project


def test_all_files_and_all_keys(run):
    """Everything that is promised is there, `latest` points to it, and the job summary has got the summary appended."""
    report = run.report("r")
    folder = run.folder("r")

    assert set(report) >= KEYS
    assert set(report["run"]) >= RUN_KEYS
    assert [set(card) >= CARD_KEYS for card in report["tempaffect"]["cards"]] == [True, True]
    assert all(set(item) >= ITEM_KEYS for item in report["tempaffect"]["items"])
    assert [set(gate) >= GATE_KEYS for gate in report["gates"]] == [True, True]
    assert {"suite_hash", "scorer_fingerprint", "components"} <= set(report["integrity"]["tempaffect"])
    assert set(report["usage"]["by_role"]["evaluated"]) == {
        "requests",
        "prompt_tokens",
        "cached_tokens",
        "cached_share",
        "completion_tokens",
        "cost_usd",
        "retries",
        "failures",
    }
    assert report["run"]["complete"] is True
    assert (run.path / "reports" / "latest").resolve() == folder
    cards = [json.loads(card) for card in run.cards("r").values()]
    assert sorted(cards, key=lambda card: card["prompting_mode"]) == sorted(
        report["tempaffect"]["cards"], key=lambda card: card["prompting_mode"]
    )
    summary = (folder / "summary.md").read_text()
    assert "dry/perfect" in summary.replace("\\", "")
    assert (run.path / "steps.md").read_text() == "before\n" + summary
    page = (folder / "report.html").read_text()
    assert f"<title>pytest-spiral {report['run']['id']}</title>" in page
    assert page.count('id="pack-s') == 75
    assert not list(folder.rglob(".*"))
    assert all(path.stat().st_mode & 0o077 == 0o044 for path in folder.rglob("*.json"))


def test_every_request_and_reply_is_kept(run):
    """`run.sqlite` holds both, word for word."""
    store = RunStore.join(run.folder("r") / "run.sqlite")
    exchanges = store.exchanges()
    store.close()

    outputs = {item["output"] for item in run.report("r")["tempaffect"]["items"]}
    assert len({each.request.key for each in exchanges}) == 150
    assert {each.reply.text for each in exchanges} == outputs
    assert {message.role for each in exchanges for message in each.request.messages} == {"system", "user"}


def test_a_second_run_moves_latest(project):
    """`latest` is the newest report."""
    for name in ("one", "two"):
        project.pytest("--model", "dry/perfect", "--run-id", name, "-k", "ps-01 and raw", "-p", "no:xdist")

    assert (project.path / "reports" / "latest").resolve().name == "two"


def test_keys_are_taken_out_of_argv(project, serve):
    """The command line is part of the report; a key that somebody put there is not."""
    key = "sk-argv-0123456789abcdefXYZ"
    args = ("--model", "dry/perfect", "-k", "ps-01 and raw", "-p", "no:xdist", "-o", f"junit_suite_name={key}")

    project.pytest(*args)

    assert key not in (project.folder() / "report.json").read_text()


def test_an_unwritable_job_summary_costs_no_report(project):
    """The report is written although the job summary cannot be."""
    project.setenv("GITHUB_STEP_SUMMARY", str(project.path / "no" / "such" / "folder.md"))

    project.pytest("--model", "dry/perfect", "--run-id", "r", "-k", "ps-01 and raw", "-p", "no:xdist")

    assert (project.folder("r") / "report.json").is_file()
