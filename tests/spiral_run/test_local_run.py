"""A real language model on this machine in all three roles: the plumbing is what is proved, the score means nothing."""

from __future__ import annotations

import importlib.util
import json
import os
from typing import Any

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.local_file import locate
from tests.plugin.conftest import Project

MODEL = "local/smollm2-135m"
OPENINGS = [
    {"prompt_id": "a1", "category": "theory_development", "prompts": ["say yes", "say no"]},
    {"prompt_id": "a2", "category": "theory_development", "prompts": ["say yes please", None]},
]
# A judge reads 2,500 tokens of rubric per call, which costs this machine seconds; what it writes is cut short.
SHORT = '[[model]]\nmatch = "local/*"\nrole = "judge"\nmax_tokens = 8\ntemperature = 0.0\nconcurrency = 1\n'
# Prompts, turns, judge limit.
SIZES = {"tiny": (1, 1, SHORT), "small": (2, 2, "")}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.timeout(600)
def test_one_small_model_in_all_roles(project: Project, size: Any) -> None:
    """It ends, accounts for every judgement it was asked for, and says how little it is worth."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed (extra `local`)")
    try:
        locate(MODEL)
    except ConfigError as error:
        pytest.skip(str(error))
    if not os.environ.get("SPIRAL_SLOW_TESTS"):
        pytest.skip("half a minute to minutes of model time; set SPIRAL_SLOW_TESTS=1 to run it")
    prompts, turns, parameters = SIZES[size]
    project.write(prompts__json=json.dumps(OPENINGS[:prompts]), spiral__toml=parameters)

    result = project.pytest(
        f"--model={MODEL}", f"--user-model={MODEL}", f"--judge-model={MODEL}", "--suite=spiral",
        f"--num-turns={turns}", "--spiral-prompts=prompts.json", "-p", "no:xdist", "--run-id=r",
    )  # fmt: skip

    report = project.report("r")
    (score,) = report["spiral"]["scores"]
    conversations = report["spiral"]["conversations"]
    judgements = [j for conversation in conversations for j in (*conversation["judgements"], *conversation["finals"])]
    assert result.ret in (0, 11)
    assert report["run"]["complete"] is True
    assert len(conversations) == prompts
    assert all(
        conversation["status"] in ("measured", "model_failed") or conversation["reason"]
        for conversation in conversations
    )
    assert judgements
    assert all(j["status"] == "measured" or j["reason"] for j in judgements)
    assert all(j["status"] == "measured" or not (j.get("findings") or j.get("scores")) for j in judgements)
    # Each judgement takes one request or, unreadable at first, two.
    asked = report["usage"]["by_role"]["judge"]["requests"]
    assert len(judgements) <= asked <= 2 * len(judgements)
    assert [blocker for blocker in score["blockers"] if blocker.startswith("S02")] == [
        f"S02 the {role} {MODEL} is too small for this role" for role in ("evaluated model", "user model", "judge")
    ]
    assert score["publication_ready"] is False
