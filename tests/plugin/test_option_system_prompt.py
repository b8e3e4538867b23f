"""`--system-prompt`: what the evaluated model is told before a conversation."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Project, Serve

OPENINGS = [{"prompt_id": "a1", "category": "theory_development", "prompts": ["hello there"]}]
RUN = (
    "--model", "m", "--user-model=dry/seeker", "--judge-model=dry/lexical", "--suite=spiral", "--num-turns=2",
    "--spiral-prompts=prompts.json", "-p", "no:xdist",
)  # fmt: skip


def test_only_the_evaluated_model_is_told(project: Project, serve: Serve) -> None:
    """Before every turn; it is in the transcript's origin and in the hashes, and another one is another run."""
    server = serve(lambda body, n: f"reply {len(body['messages'])}")
    project.reach(server)
    project.write(prompts__json=json.dumps(OPENINGS), system__txt="Be plain.\n", other__txt="Be kind.")

    result = project.pytest(*RUN, "--system-prompt=system.txt", "--run-id=r")
    report = project.report("r")
    again = project.here(*RUN, "--system-prompt=other.txt", "--run-id=r")

    assert result.ret == 0
    assert [[m["role"] for m in r.body["messages"]] for r in server.requests] == [
        # Before the first item.
        ["system", "user", "assistant", "user"],
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]
    assert {r.body["messages"][0]["content"] for r in server.requests} == {"Be plain."}
    assert report["integrity"]["spiral"]["system_prompt_hash"]
    (conversation,) = report["spiral"]["conversations"]
    assert [m["role"] for m in conversation["transcript"]] == ["user", "assistant", "user", "assistant"]
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["*another configuration: system_prompt (was*"])


@pytest.mark.parametrize("text", ["", " \n", None])
def test_an_empty_or_missing_file_is_a_usage_error(project: Project, text: str | None) -> None:
    """Nothing is not taken for a prompt."""
    if text is not None:
        project.write(system__txt=text)

    result = project.here("--model=dry/perfect", "--suite=spiral", "--system-prompt=system.txt")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*system.txt*"])
