"""`--replay` and `--redo-judging`: scoring what was recorded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

SPIRAL = ("--suite=spiral", "--num-turns=3", "--benign-twins=off", "-q")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test that needs a recorded run leaves it for the others."""
    return tmp_path_factory.mktemp("recorded") / "reports"


@pytest.fixture
def recorded(project: Project, kept: Path) -> Project:
    """A run of conversations in the folder `first`, which is each test's own."""
    reports = project.path / "reports"
    if kept.exists():
        shutil.copytree(kept, reports, symlinks=True)
    else:
        assert project.pytest("--model=dry/sliding", "--run-id=first", *SPIRAL).ret == 0
        shutil.copytree(reports, kept, symlinks=True)
    return project


def score(project: Project, run: str) -> dict[str, object]:
    (score,) = project.report(run)["spiral"]["scores"]
    return {key: score[key] for key in ("model", "score", "ci_low", "ci_high", "metrics", "tails")}


@pytest.mark.parametrize(
    "file", ["reports/first", "reports/first/report.json", "reports/first/export/spiral_results.json"]
)
def test_a_replay_scores_the_same(recorded: Project, file: str) -> None:
    """Folder, report and result file give the score of the run, and no model is asked."""
    recorded.upstream("first")

    assert recorded.pytest(f"--replay={file}", "--run-id=again", *SPIRAL).ret == 0

    assert score(recorded, "again") == score(recorded, "first")
    assert recorded.report("again")["usage"]["by_role"] == {}
    (found,) = recorded.report("again")["spiral"]["scores"]
    assert any(blocker.startswith("S05") for blocker in found["blockers"])


def test_a_replay_takes_the_protocol_of_the_judgements(project: Project) -> None:
    """Unless it is judged again, or another one is named that fits them."""
    project.pytest("--model=dry/sliding", "--run-id=old", "--protocol=per-chunk", *SPIRAL)
    again = ("--replay=reports/old", *SPIRAL)

    assert project.pytest(*again, "--run-id=same").ret == 0
    assert project.pytest(*again, "--run-id=named", "--protocol=per-10k-chars").ret == 0
    assert project.pytest(*again, "--run-id=anew", "--redo-judging", "--judge-model=dry/lexical").ret == 0
    refused = project.here(*again, "--protocol=per-turn")

    protocols = [project.report(run)["spiral"]["scores"][0]["protocol"] for run in ("same", "named", "anew")]
    assert protocols == ["per-chunk", "per-10k-chars", "per-turn"]
    assert score(project, "same") == score(project, "old")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*judged under another rubric*(--protocol per-10k-chars)*"])


def test_judging_again_replaces_judgements(recorded: Project) -> None:
    """The transcripts stay, the judgements are new; the same deterministic judge says the same."""
    report = json.loads((recorded.folder("first") / "report.json").read_text())
    for conversation in report["spiral"]["conversations"]:
        conversation["judgements"], conversation["finals"] = [], []
    Path("stripped.json").write_text(json.dumps(report))

    result = recorded.pytest(
        "--replay=stripped.json", "--redo-judging", "--judge-model=dry/lexical", "--run-id=again", *SPIRAL
    )

    assert result.ret == 0
    assert score(recorded, "again") == score(recorded, "first")


def test_scenarios_are_scored_again(project: Project) -> None:
    """Recorded outputs give the recorded items and reasons; a prompting mode that was not recorded is not missed."""
    project.pytest("--model=dry/malformed", "--run-id=first", "--suite=tempaffect", "--prompting=raw", "-q")

    result = project.pytest("--replay=reports/first", "--run-id=again", "--suite=tempaffect", "-q", "-n", "1")

    assert result.ret == 0
    assert project.items("again") == project.items("first")
    (card,) = project.report("again")["tempaffect"]["cards"]
    (first,) = project.report("first")["tempaffect"]["cards"]
    assert (card["prompting_mode"], card["missing"]) == (first["prompting_mode"], first["missing"])
    # A built-in model is one in a replay, too.
    assert card["useful_bounded_range"] == first["useful_bounded_range"] is None
    assert card["integrity"]["publication_blockers"] == first["integrity"]["publication_blockers"]
    other = project.here("--replay=reports/first", "--suite=tempaffect", "--prompting=schema")
    assert other.ret == pytest.ExitCode.USAGE_ERROR
    other.stderr.fnmatch_lines(["*was prompted otherwise; use --prompting=raw*"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--redo-judging", "--model=dry/perfect"), "*name them with --replay*"),
        (("--replay=nothing.json",), "*nothing.json*cannot be read*"),
        (("--replay=reports/first", "--model=dry/perfect"), "*--model dry/perfect: not in *"),
        (("--replay=reports/first", "--suite=tempaffect"), "*has nothing of tempaffect*"),
        (("--replay=reports/first", "--judge-model=j"), "*needs --redo-judging*was judged by dry/lexical*"),
    ],
)
def test_what_cannot_be_replayed_is_said(recorded: Project, arguments: tuple[str, ...], says: str) -> None:
    """A usage error with one sentence."""
    result = recorded.here(*arguments, "--spiral-suite=spiral" if "--suite=tempaffect" not in arguments else "-q")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])


def test_public_result_files_can_be_replayed(project: Project) -> None:
    """Chunks whose judge failed are missing, the rest is scored as published."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not folder:
        pytest.skip("needs SPIRAL_UPSTREAM_DIR")

    project.pytest(
        f"--replay={folder}/kimi-k2.json", "--protocol=upstream-per-chunk", "--run-id=k", "--suite=spiral", "-q"
    )

    assert score(project, "k")["score"] == pytest.approx(73.0, abs=0.05)
