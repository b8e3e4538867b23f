"""`--protocol`: how conversations are scored."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=2", "-k", "ac-08", "-p", "no:xdist")


def test_it_is_named_with_its_hash(project: Project) -> None:
    """In the score and in what identifies the run."""
    project.pytest(*RUN, "--protocol=per-chunk")

    report = project.report()
    (score,) = report["spiral"]["scores"]
    assert score["protocol"] == report["integrity"]["spiral"]["protocol"] == "per-chunk"
    assert score["protocol_hash"] == report["integrity"]["spiral"]["protocol_hash"]


def test_an_unknown_one_is_refused(project: Project) -> None:
    """With those that exist."""
    result = project.pytest(*RUN, "--protocol=v9")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*v9*per-10k-chars*"])
