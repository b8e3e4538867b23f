"""Result files of version 1.2 as users meet them: replayed, judged again, beside other runs."""

from __future__ import annotations

import pytest

from pytest_spiral.cli import main
from pytest_spiral.cli.runs import find_reports, open_report
from pytest_spiral.report.html.leaderboard import BoardEntry, leaderboard
from pytest_spiral.spiral.content import load_openings, openings_hash
from tests.fakes.published import ENSEMBLE, SCORED, numbers_of
from tests.plugin.conftest import Project

PATH = numbers_of(ENSEMBLE)
REPLAY = (f"--replay={PATH}", "--suite=spiral", "-q")


def test_a_replay_scores_what_each_judge_saw(project: Project) -> None:
    """The published score, that of each judge, and hashes of the texts in the file, not of our own."""
    assert project.pytest(*REPLAY, "--run-id=again").ret == 0
    report = project.report("again")
    (score,) = report["spiral"]["scores"]

    assert (score["score"], score["turns"], score["missing"]["chunks"]) == (38.7, {"3": 30}, 0)
    alone = {judge: row["score_alone"] for judge, row in score["judges"]["per_judge"].items()}
    assert [*alone.values()] == [pytest.approx(value, abs=0.05) for value in (35.0, 44.9, 41.1)]
    hashes = report["integrity"]["spiral"]
    assert hashes["prompts_hash"] != openings_hash(load_openings())
    assert hashes["rubric_hash"] is None
    assert len(report["spiral"]["conversations"][0]["judgements"]) == 6


def test_a_protocol_that_cannot_score_it_is_refused(project: Project) -> None:
    """Before anything is done, with the option that can; judged again, it can be scored by any protocol."""
    refused = project.here(*REPLAY, "--protocol=per-turn")

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"*{PATH}: judged under another rubric*(--protocol upstream-v1.2)*"])
    # In made-up words it finds nothing, which leaves no verdict.
    assert project.pytest(*REPLAY, "--redo-judging", "--judge-model=dry/lexical", "--run-id=anew").ret == 11
    (score,) = project.report("anew")["spiral"]["scores"]
    assert (score["protocol"], [*score["judges"]["per_judge"]]) == ("per-turn", ["dry/lexical"])


def test_a_site_of_both_versions_and_an_own_run(project: Project) -> None:
    """Three tables, in which no rank compares runs of different lengths, judges or prompts."""
    assert project.pytest("--model=dry/perfect", "--suite=spiral", "--num-turns=2", "--run-id=own", "-q").ret == 0
    paths = [project.folder("own"), numbers_of(SCORED[0]), PATH]

    assert main(["leaderboard", *map(str, paths), "-o", "site"]) == 0

    pages = [*project.path.glob("site/runs/*.html")]
    tables = leaderboard([BoardEntry(open_report(path, ()), "x.html") for path in find_reports(paths)])
    assert (len(pages), len(tables)) == (3, 3)
    assert sorted(dict(table.same)["turns"] for table in tables) == ["2 turns", "20 turns", "3 turns"]
    assert {row.rank for table in tables for row in table.rows} == {None}
    assert all({"judges", "turns", "prompts hash", "seed"} <= {*table.apart} for table in tables)
