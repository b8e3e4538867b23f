"""`--prompting`: with the schema enforced, with the prompt alone, or both."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project, node

DRY = ("--model", "dry/perfect", "--suite=tempaffect")


@pytest.mark.parametrize(
    ("args", "modes"),
    [
        ((), ("schema", "raw")),
        (("--prompting", "raw"), ("raw",)),
        (("--prompting", "schema"), ("schema",)),
        (("--prompting", "raw", "--prompting", "schema"), ("raw", "schema")),
    ],
    ids=["default", "raw", "schema", "reversed"],
)
def test_modes(project: Project, args: tuple[str, ...], modes: tuple[str, ...]) -> None:
    """Both modes by default, in the order in which they are given."""
    ids = project.collected(*DRY, *args)

    assert [node("pi-01", mode) for mode in modes] == ids[::75]
    assert len(ids) == 75 * len(modes)


def test_one_mode_alone_is_not_published(project: Project) -> None:
    """A card without its partner says so (B10), and there is no difference to show."""
    project.pytest(*DRY, "--prompting", "schema", "-k", "ps-01", "-p", "no:xdist")

    report = project.report()
    (card,) = report["tempaffect"]["cards"]
    assert "B10" in [blocker.split()[0] for blocker in card["integrity"]["publication_blockers"]]
    assert report["tempaffect"]["deltas"] == []


def test_ini(project: Project) -> None:
    """The ini key, native TOML and classic, and its check."""
    project.write(pyproject__toml='[tool.pytest]\nspiral_prompting = ["raw"]\n')

    assert len(project.collected(*DRY)) == 75

    project.write(pyproject__toml='[tool.pytest]\nspiral_prompting = ["loud"]\n')
    result = project.here(*DRY)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: ini key spiral_prompting: 'loud' is not one of schema, raw"])
