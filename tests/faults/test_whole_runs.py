"""Faults met by whole pytest runs: what people and CI see of them, and the key nowhere in it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.fakes.script import Rule, Script
from tests.faults.catalogue import CATALOGUE, KEY
from tests.faults.runs import cast, remains
from tests.plugin.conftest import project, serve

__all__ = ["project", "serve"]

CASES = {case.name: case for case in CATALOGUE}
LOUD = ("-rA", "-vv", "--showlocals", "--tb=long", "--junitxml=out.xml", "--log-level=DEBUG", "-o", "log_cli=true")
TEMPAFFECT = ("--suite=tempaffect", "--model=m", "--prompting=raw", "-k", "ps-0 or pi-0")
SPIRAL = (
    "--suite=spiral",
    "--model=m",
    "--user-model=u",
    "--judge-model=j",
    "--num-turns=2",
    "--spiral-prompts=p.json",
)


@pytest.mark.parametrize(
    ("args", "model", "fault", "calls", "codes"),
    [
        (TEMPAFFECT, "m", "401", {3, 4}, (11, 11)),
        (TEMPAFFECT, "m", "content: null", {3}, (11, 11)),
        # After the judge's first question and its anchors.
        (SPIRAL, "j", "401", {50, 51, 52, 53}, (11, 0)),
        (SPIRAL, "u", "429 out of credit", {1, 2}, (11, 0)),
        (SPIRAL, "m", "502, HTML page", {1}, (0, 0)),
    ],
    ids=["evaluated-401", "evaluated-null", "judge-401", "user-quota", "assistant-502"],
)
def test_codes_and_messages(
    project: Any, serve: Any, args: tuple[str, ...], model: str, fault: str, calls: set[int], codes: tuple[int, int]
) -> None:
    """Exit codes before and after the resume; no traceback; the key is in no file and on no line."""
    case = CASES[fault]
    openings = [{"prompt_id": f"p{n}", "category": "c", "prompts": [f"my number is {n}"]} for n in range(4)]
    project.write(p__json=json.dumps(openings))
    script = Script(cast(), [Rule(case.make, model, calls=calls)])
    server = serve(script, key=KEY)
    for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE"):
        project.setenv(f"{role}_BASE_URL", server.base_url)
        project.setenv(f"{role}_API_KEY", KEY)

    broken = project.pytest(*args, *LOUD, "--run-id=r", "-p", "no:xdist")
    errors = broken.parseoutcomes().get("errors", 0)
    script.rules = []
    before = len(server.requests)
    resumed = project.pytest(*args, *LOUD, "--run-id=r", "-p", "no:xdist")
    asked = Counter(request.raw for request in server.requests[before:])

    assert (broken.ret, resumed.ret) == codes
    assert (errors > 0) == (case.nature == "final")
    assert resumed.parseoutcomes().get("errors", 0) == 0
    assert set(asked.values()) <= {1}
    assert bool(asked) == (case.nature == "final")
    said = broken.stdout.str() + broken.stderr.str() + resumed.stdout.str() + resumed.stderr.str()
    assert "Traceback" not in said
    assert "INTERNALERROR" not in said
    assert KEY[8:24] not in said
    assert [name for name in remains(project.path, KEY) if not name.endswith("_API_KEY")] == []


def test_the_plan_does_not_show_the_key(project: Any, serve: Any) -> None:
    """`--plan` reads keys and prints none."""
    server = serve(cast(), key=KEY)
    project.setenv("EVALUATED_MODEL_BASE_URL", server.base_url)
    project.setenv("EVALUATED_MODEL_API_KEY", KEY)

    result = project.here("--suite=tempaffect", "--model=m", "--plan", "-vv")

    assert result.ret == 0
    assert KEY[8:24] not in result.stdout.str() + result.stderr.str()
    assert [name for name in remains(project.path, KEY) if not name.endswith("_API_KEY")] == []
    assert server.requests == []
