"""The same cards, byte for byte, however the items are spread over processes and whatever their order is."""

from __future__ import annotations

from typing import Any

from tests.plugin.conftest import ADDOPTS, Project

# Its answers spread over all labels.
MODEL = ("--model", "dry/random_valid", "--suite=tempaffect")


def _items(project: Project) -> list[dict[str, Any]]:
    """Items without the wording of their reasons."""
    items: list[dict[str, Any]] = project.report()["tempaffect"]["items"]
    for item in items:
        (item["checks"] or {}).pop("reasons", None)
    return items


def test_cards_do_not_depend_on_the_distribution(project: Project) -> None:
    """Cards and items are the same over no xdist, 0 and 2 workers and in random order."""
    assert project.pytest(*MODEL, "-p", "no:xdist").ret == 0
    cards, items, deltas = project.cards(), _items(project), project.report()["tempaffect"]["deltas"]
    project.setenv("PYTEST_ADDOPTS", ADDOPTS.replace("-p no:randomly", ""))

    for args in [("-n", "0", "-p", "randomly"), ("-n", "2", "-p", "randomly")]:
        result = project.pytest(*MODEL, *args)

        assert result.ret == 0
        result.assert_outcomes(passed=150)
        assert project.cards() == cards
        assert _items(project) == items
        assert project.report()["tempaffect"]["deltas"] == deltas


def test_a_lost_worker_is_replaced(project: Project) -> None:
    """A worker that dies takes one test with it; everything else is measured and the report says what is missing."""
    project.write(
        deadly__py="import os, pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_setup(item):\n"
        "    if 'ps-05' in item.name: os._exit(1)\n"
    )

    result = project.process(
        "--model", "dry/perfect", "--suite=tempaffect", "--prompting", "raw", "-n", "2", "-p", "deadly"
    )

    missing = project.report()["tempaffect"]["cards"][0]["missing"]
    assert (missing["n"], missing["ids"]) == (1, ["ps-05"])
    # One lost item is within the limit; the test is an error all the same.
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*1 failed*"])
