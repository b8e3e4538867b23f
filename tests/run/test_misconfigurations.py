"""What a user sets wrongly is found before anything is measured, and the printed lines mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.openai_server import FakeOpenAI
from tests.run.misconfigured import KEY, ROLES, TABLE, Case, Project, documented, paste, works

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "a-model-does-not-work.md"


@pytest.mark.parametrize(
    ("case", "role"),
    [pytest.param(case, role, id=f"{case.name}, {role}") for case in TABLE for role in ROLES if role in case.roles],
)
def test_the_printed_lines_mend_it(server: FakeOpenAI, tmp_path: Path, case: Case, role: str) -> None:
    """The run ends with one message, after one call to the model of the role at most unless the case says why more are
    needed, and nothing measured; with the lines pasted, the same run measures everything."""
    project = Project(tmp_path, server, case, role)

    refused = project.start()
    lines = paste(project, refused.message)
    mended = project.start()

    assert refused.message
    assert KEY not in refused.message
    assert refused.asked == case.calls
    assert case.calls <= 1 or case.more
    assert lines
    assert works(mended), mended
    if role == case.roles[-1]:
        assert documented(case, lines) in PAGE.read_text()


@pytest.mark.parametrize("name", ["a wrong key, noticed at the first call", "an address where nothing listens"])
@pytest.mark.parametrize("role", ROLES)
def test_an_exported_variable_is_mended_where_it_is_set(
    server: FakeOpenAI, tmp_path: Path, name: str, role: str
) -> None:
    """A line in `.env` would do nothing: the environment comes before the file."""
    project = Project(tmp_path, server, next(case for case in TABLE if case.name == name), role, exported=True)

    (line,) = paste(project, project.start().message)

    assert line.startswith(f"export {ROLES[role]}_")
    assert works(project.start())


def test_the_table_is_long_enough() -> None:
    """Thirty misconfigurations at least."""
    assert len({case.name for case in TABLE}) >= 30
