"""`--strict-items`: every answer that is not useful and bounded is a failed test."""

from __future__ import annotations

from tests.plugin.conftest import Project

MIXED = ("--model", "dry/shuffled_replies", "--suite=tempaffect", "--prompting", "raw")


def test_failed_tests_are_the_items_that_were_not_useful(project: Project) -> None:
    """The tests say what the report says; the run fails although no gate was given."""
    result = project.pytest(*MIXED, "--strict-items", "-p", "no:xdist")

    useful = [item["useful_bounded"] for item in project.items().values()]
    result.assert_outcomes(passed=useful.count(True), failed=useful.count(False))
    assert result.ret == (1 if False in useful else 0)
    assert False in useful


def test_a_failure_says_why(project: Project) -> None:
    """The reason stands in the failure, without frames of ours."""
    result = project.pytest(
        "--model", "dry/malformed", "--suite=tempaffect", "--strict-items", "-k", "raw and pi-01", "-p", "no:xdist"
    )

    (item,) = project.items().values()
    assert "{code}: {detail}".format(**item["reason"]) in " ".join(result.stdout.str().split())
    assert "pytest_spiral/" not in result.stdout.str()


def test_without_it_the_gates_decide(project: Project) -> None:
    """Bad answers are results, not failed tests."""
    result = project.pytest("--model", "dry/malformed", "--suite=tempaffect", "--prompting", "raw", "-p", "no:xdist")

    result.assert_outcomes(passed=75)
    assert result.ret == 0


def test_ini(project: Project) -> None:
    """The ini key switches it on."""
    project.write(pytest__ini="[pytest]\nspiral_strict_items = true\n")

    result = project.pytest("--model", "dry/malformed", "--suite=tempaffect", "-k", "raw and pi-01", "-p", "no:xdist")

    result.assert_outcomes(failed=1)
