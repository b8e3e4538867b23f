"""`--judge-model`: who judges, alone or as an ensemble."""

from __future__ import annotations

from tests.fakes import spiral_cast
from tests.plugin.conftest import Project, Serve

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=1", "-k", "ac-08")


def test_an_ensemble(project: Project, serve: Serve, one_or_two: tuple[str, ...]) -> None:
    """Every judge named judges every chunk, a built-in one beside one over HTTP."""
    project.setenv("JUDGE_BASE_URL", serve(spiral_cast.judge).base_url)

    project.pytest(*RUN, "--judge-model=dry/lexical", "--judge-model=j", *one_or_two)

    (held,) = (each for each in project.report()["spiral"]["conversations"] if each["transcript"])
    assert {judgement["judge"] for judgement in held["judgements"]} == {"dry/lexical", "j"}
    assert {final["judge"] for final in held["finals"]} == {"dry/lexical", "j"}
