"""The same cards, byte for byte, however the items are spread over processes and whatever their order is."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import ADDOPTS

# One that answers everything right, one whose answers spread over all labels.
MODELS = ("--model", "dry/perfect", "--model", "dry/random_valid")


@pytest.fixture
def undisturbed(request, project) -> dict[str, bytes]:
    """Cards of a run without xdist, made once per process."""
    cache = request.config.stash.setdefault(_UNDISTURBED, {})
    if not cache:
        assert project.pytest(*MODELS, "-p", "no:xdist", "--run-id", "undisturbed").ret == 0
        cache["cards"] = project.cards()
        cache["items"] = _items(project)
        cache["deltas"] = project.report()["tempaffect"]["deltas"]
    return cache


def _items(project) -> list[dict]:
    """Items without the wording of their reasons."""
    items = project.report()["tempaffect"]["items"]
    for item in items:
        (item["checks"] or {}).pop("reasons", None)
    return items


_UNDISTURBED = pytest.StashKey[dict]()


@pytest.mark.parametrize(
    "args",
    [("-n", "0"), ("-n", "2"), ("-n", "4", "--dist", "worksteal"), ("-p", "randomly", "-p", "no:xdist")],
    ids=["n0", "n2", "n4-worksteal", "random-order"],
)
def test_cards_do_not_depend_on_the_distribution(project, undisturbed, args):
    """Cards and items are the same over no xdist, 0, 2 and 4 workers and in random order."""
    if "randomly" in args:
        project.setenv("PYTEST_ADDOPTS", ADDOPTS.replace("-p no:randomly", ""))
        args = ("-p", "no:xdist", "-p", "randomly")

    result = project.pytest(*MODELS, *args)

    assert result.ret == 0
    result.assert_outcomes(passed=300)
    assert project.cards() == undisturbed["cards"]
    assert _items(project) == undisturbed["items"]
    assert project.report()["tempaffect"]["deltas"] == undisturbed["deltas"]


def test_a_lost_worker_is_replaced(project):
    """A worker that dies takes one test with it; everything else is measured and the report says what is missing."""
    project.write(
        deadly__py="import os, pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_setup(item):\n"
        "    if 'ps-05' in item.name: os._exit(1)\n"
    )

    result = project.pytest("--model", "dry/perfect", "--prompting", "raw", "-n", "2", "-p", "deadly")

    missing = project.report()["tempaffect"]["cards"][0]["missing"]
    assert (missing["n"], missing["ids"]) == (1, ["ps-05"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
