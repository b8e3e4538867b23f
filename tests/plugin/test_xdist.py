"""The same cards, byte for byte, however the items are spread over processes and whatever their order is."""

from __future__ import annotations

from typing import Any

from tests.fakes.forks import ADDOPTS
from tests.plugin.conftest import Project

# Its answers spread over all labels.
MODEL = ("--model", "dry/random_valid", "--suite=tempaffect", "-m", "pressured_integrity")


def _items(project: Project) -> list[dict[str, Any]]:
    """Items without the wording of their reasons."""
    items: list[dict[str, Any]] = project.report()["tempaffect"]["items"]
    for item in items:
        (item["checks"] or {}).pop("reasons", None)
    return items


def test_cards_do_not_depend_on_the_distribution(project: Project) -> None:
    """Cards and items are the same over no xdist, 0 and 2 workers and in random order."""
    whole = project.pytest(*MODEL, "-p", "no:xdist")
    cards, items, deltas = project.cards(), _items(project), project.report()["tempaffect"]["deltas"]
    project.setenv("PYTEST_ADDOPTS", ADDOPTS.replace("-p no:randomly", ""))

    for args in [("-n", "0", "-p", "randomly"), ("-n", "2", "-p", "randomly")]:
        result = project.pytest(*MODEL, *args)

        assert result.ret == whole.ret
        result.assert_outcomes(passed=50)
        assert project.cards() == cards
        assert _items(project) == items
        assert project.report()["tempaffect"]["deltas"] == deltas
