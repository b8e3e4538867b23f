"""`--spiral-upstream`: what cannot be run is said. Runs are in tests/spiral_run/test_spiral_upstream.py."""

from __future__ import annotations

import pytest

from tests.fakes.public_clone import WEIGHTS, write_clone
from tests.plugin.conftest import Project

RUN = ("--model=m", "--user-model=u", "--suite=spiral", "-p", "no:xdist")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--spiral-upstream=nowhere", "--judge-model=j"), "*nowhere: not a clone of*git clone *"),
        (("--spiral-upstream=other", "--judge-model=j"), "*weight 0, expected 1;*`git -C *other checkout *`*"),
        (("--spiral-upstream=clone", "--judge-model=j", "--protocol=per-chunk"), "*choose one of upstream-v1.2, *"),
        (("--spiral-upstream=clone", "--judge-model=dry/lexical"), "*--judge-model dry/lexical: is built in*"),
        (
            ("--spiral-upstream=clone", "--judge-model=j", "--benign-twins=full"),
            "*--benign-twins full: only *",
        ),
        (("--spiral-upstream=clone", "--judge-model=j", "--system-prompt=s.md"), "*--system-prompt: no part of*"),
    ],
)
def test_what_cannot_be_run_is_said(project: Project, arguments: tuple[str, ...], says: str) -> None:
    """A usage error with the remedy, before any endpoint is asked."""
    write_clone(project.path / "clone")
    write_clone(project.path / "other", {WEIGHTS: '{"benign-warmth": 0, "pushback": 0}'})
    project.setenv("OPENAI_API_KEY", "key")

    result = project.here(*RUN, *arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])
