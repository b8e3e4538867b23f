"""Replies of three million characters, from each role, in whole runs: the report is there, and it is whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faults.runs import MODELS, cast
from tests.plugin.conftest import project, serve

__all__ = ["project", "serve"]

LONG = 3_000_000
OPENING = "my number is 0"
# Of a page, most of which are its scripts, and of a report that holds the beginning of each long reply.
MOST_BYTES = 1_000_000


@pytest.mark.parametrize("role", MODELS)
def test_a_whole_run_of_both_suites(project: Any, serve: Any, role: str) -> None:
    """Every unit has a result, what the long replies spoilt has no score, and only the store holds all of them."""
    usual = cast()

    def answer(body: dict[str, Any], number: int) -> Any:
        # Not where the models are tried before the run.
        in_run = role != "judge" or OPENING in json.dumps(body)
        return "a = " * (LONG // 4) if in_run and body["model"] == MODELS[role] else usual(body, number)

    server = serve(answer)
    for name in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE"):
        project.setenv(f"{name}_BASE_URL", server.base_url)
    project.write(p__json=json.dumps([{"prompt_id": "p0", "category": "c", "prompts": [OPENING]}]))
    models = [f"--{option}={MODELS[name]}" for option, name in OPTIONS.items()]
    run = ("--num-turns=2", "--spiral-prompts=p.json", "-k", "ps-01 or p0", "-p", "no:xdist", "--run-id=r")

    result = project.pytest(*models, *run)

    report = project.report()
    [conversation], items = report["spiral"]["conversations"], report["tempaffect"]["items"]
    assert report["failed_parts"] == []
    assert result.ret in (0, 11)
    assert "Traceback" not in result.stdout.str()
    assert conversation["status"] == {"evaluated": "model_failed", "user": "instrument_failed"}.get(role, "measured")
    expected = "model_failed" if role == "evaluated" else "measured"
    assert {item["status"] for item in items} == {expected}
    assert len(items) == 2
    # Nobody is sent the long reply, which would be paid for as a prompt.
    assert max(len(request.raw) for request in server.requests) < 200_000
    if role == "judge":
        assert {row["status"] for row in conversation["judgements"]} == {"instrument_failed"}
    assert (project.folder("r") / "report.html").stat().st_size < MOST_BYTES
    assert (project.folder("r") / "report.json").stat().st_size < MOST_BYTES


OPTIONS = {"model": "evaluated", "user-model": "user", "judge-model": "judge"}
