"""`--seed`: the draws of the bootstrap, and nothing else."""

from __future__ import annotations

import json

from tests.plugin.conftest import Project

RANDOM = ("--model", "dry/random_valid", "--suite=tempaffect", "--prompting", "raw", "-p", "no:xdist")


def test_a_seed_moves_bounds_but_no_value(project: Project) -> None:
    """Another seed gives other bootstrap intervals around the same values."""
    cards = []
    for seed in ("1", "2"):
        assert project.pytest(*RANDOM, "--seed", seed, "--run-id", f"seed-{seed}").ret == 0
        (text,) = project.cards(f"seed-{seed}").values()
        cards.append(json.loads(text))

    first, second = cards
    assert first["score"] == second["score"]
    assert first["fields"] == second["fields"]
    assert first["intervals"] != second["intervals"]
    assert project.report("seed-2")["run"]["seed"] == 2


def test_ini(project: Project) -> None:
    """The ini key sets it, the command line wins."""
    project.write(pytest__ini="[pytest]\nspiral_seed = 5\n")
    project.pytest(*RANDOM, "-k", "ps-01", "--run-id", "ini")
    project.pytest(*RANDOM, "-k", "ps-01", "--run-id", "given", "--seed", "6")

    assert [project.report(run)["run"]["seed"] for run in ("ini", "given")] == [5, 6]
