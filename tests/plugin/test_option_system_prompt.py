"""`--system-prompt`: what the evaluated model is told before a conversation or scenario."""

from __future__ import annotations

import json

import pytest

from pytest_spiral.cli import main
from pytest_spiral.report.html.leaderboard import BoardEntry, leaderboard
from pytest_spiral.report.read import load_report
from pytest_spiral.tempaffect.suite import prompt_texts
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

OPENINGS = [{"prompt_id": "a1", "category": "theory_development", "prompts": ["hello there"]}]
RUN = (
    "--model", "m", "--user-model=dry/seeker", "--judge-model=dry/lexical", "--suite=spiral", "--num-turns=2",
    "--spiral-prompts=prompts.json", "-p", "no:xdist",
)  # fmt: skip


def test_only_the_evaluated_model_is_told(project: Project, serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """Before every turn; in the transcript's origin and in the hashes. Another one is another run, and one without it
    is not compared with it."""
    server = serve(lambda body, n: f"reply {len(body['messages'])}")
    project.reach(server)
    project.write(prompts__json=json.dumps(OPENINGS), system__txt="Be plain.\n", other__txt="Be kind.")

    result = project.pytest(*RUN, "--system-prompt=system.txt", "--run-id=r")
    report = project.report("r")
    again = project.here(*RUN, "--system-prompt=other.txt", "--run-id=r")
    asked = len(server.requests)
    plain = project.here(*RUN, "--run-id=plain")
    compared = main(["compare", str(project.folder("plain")), str(project.folder("r"))])

    assert result.ret == 0
    assert [[m["role"] for m in r.body["messages"]] for r in server.requests[:asked]] == [
        # Before the first item.
        ["system", "user", "assistant", "user"],
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]
    assert {r.body["messages"][0]["content"] for r in server.requests[:asked]} == {"Be plain."}
    assert report["integrity"]["spiral"]["system_prompt_hash"]
    assert [score["wrapped"] for score in report["spiral"]["scores"]] == [True]
    result.stdout.fnmatch_lines(["spiral  m (wrapped)"])
    (conversation,) = report["spiral"]["conversations"]
    assert [m["role"] for m in conversation["transcript"]] == ["user", "assistant", "user", "assistant"]
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["*another configuration: system_prompt (was*"])
    assert (plain.ret, compared) == (0, 1)
    assert "they differ in spiral.system_prompt (none and " in " ".join(capsys.readouterr().out.split())


def test_wrapped_and_plain_cards_are_kept_apart(
    project: Project, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prompt comes before the suite's own; no comparison, gate or table puts such a card beside one without."""
    server = serve(ScriptedModel())
    project.reach(server)
    project.write(system__txt="Be plain.\n")
    run = ("--model=m", "--suite=tempaffect", "--prompting=raw", "-k", "ps-01", "-p", "no:xdist")

    project.pytest(*run, "--run-id=plain")
    asked = len(server.requests)
    wrapped = project.pytest(*run, "--system-prompt=system.txt", "--run-id=wrapped")
    gate = ("--baseline=reports/plain", "--gate", "tempaffect.score >= baseline - 0.5")
    refused = project.here(*run, "--system-prompt=system.txt", *gate)
    project.here("--replay=reports/wrapped", *run[1:], "--run-id=again")
    compared = main(["compare", str(project.folder("plain")), str(project.folder("wrapped"))])

    told = {request.body["messages"][0]["content"] for request in server.requests[asked:]}
    assert told == {f"Be plain.\n\n{prompt_texts()[0]}"}
    wrapped.stdout.fnmatch_lines(["tempaffect  m (wrapped)"])
    assert [card["wrapped"] for run in ("plain", "wrapped") for card in project.report(run)["tempaffect"]["cards"]] == [
        False,
        True,
    ]
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*cannot be compared: they differ in tempaffect.system_prompt (none and *"])
    assert compared == 4
    assert "they differ in tempaffect.system_prompt (none and " in capsys.readouterr().err
    entries = [
        BoardEntry(load_report(project.folder(run) / "report.json"), "") for run in ("plain", "wrapped", "again")
    ]
    # What is replayed was wrapped when it was recorded.
    assert sorted(len(group.rows) for group in leaderboard(entries)) == [1, 2]


def test_two_prompts_are_compared(project: Project, serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """A change of the prompt is what a baseline is for: gate and comparison take both runs, and say what differs."""
    project.reach(serve(ScriptedModel()))
    project.write(old__txt="Be plain.\n", new__txt="Be kind.\n")
    run = ("--model=m", "--suite=tempaffect", "--prompting=raw", "-k", "ps-01", "-p", "no:xdist")

    project.pytest(*run, "--system-prompt=old.txt", "--run-id=old")
    gate = ("--baseline=reports/old", "--gate", "tempaffect.score >= baseline - 1")
    gated = project.here(*run, "--system-prompt=new.txt", "--run-id=new", *gate)
    compared = main(["compare", str(project.folder("old")), str(project.folder("new"))])
    entries = [BoardEntry(load_report(project.folder(run) / "report.json"), "") for run in ("old", "new")]

    # 74 of 75 are missing, so nothing is decided, but nothing is refused.
    assert gated.ret == 11
    assert compared == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "tempaffect: the system prompts differ; what is compared is the model with its prompt" in said
    assert [len(group.rows) for group in leaderboard(entries)] == [1, 1]


def test_a_recording_cannot_be_wrapped(project: Project) -> None:
    """Its outputs were given without the prompt."""
    project.write(system__txt="Be plain.")

    result = project.here("--replay=reports/r", "--system-prompt=system.txt")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--system-prompt: what is replayed was answered without it*"])


def test_a_built_in_model_cannot_be_told(project: Project) -> None:
    """It would answer as it always does, and the report would call that wrapped."""
    project.write(system__txt="Be plain.")

    result = project.here("--model=dry/perfect", "--system-prompt=system.txt")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--system-prompt: dry/perfect is built in and reads no prompt*"])


@pytest.mark.parametrize("text", ["", " \n", None])
def test_an_empty_or_missing_file_is_a_usage_error(project: Project, text: str | None) -> None:
    """Nothing is not taken for a prompt."""
    if text is not None:
        project.write(system__txt=text)

    result = project.here("--model=dry/perfect", "--suite=spiral", "--system-prompt=system.txt")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*system.txt*"])


def test_a_field_that_may_carry_instructions_wraps_the_score(project: Project, serve: Serve) -> None:
    """A chat template of the user's own can hold a system prompt; how tokens are drawn cannot."""
    server = serve(lambda body, n: f"reply {len(body['messages'])}")
    project.reach(server)
    project.write(
        prompts__json=json.dumps(OPENINGS),
        spiral__toml="""
            [[model]]
            match = "m"
            [model.extra_body]
            chat_template = "Be kind."
            top_k = 5
            chat_template_kwargs = { enable_thinking = false, persona = "x" }
            """,
    )

    result = project.pytest(*RUN, "--run-id=r")
    (score,) = project.report("r")["spiral"]["scores"]
    project.here("--replay=reports/r", *RUN[6:], "--run-id=again")
    (again,) = project.report("again")["spiral"]["scores"]

    blocker = (
        "S12 request fields that may carry instructions: extra_body.chat_template, "
        "extra_body.chat_template_kwargs.persona"
    )
    assert server.requests[0].body["chat_template"] == "Be kind."
    assert (score["wrapped"], again["wrapped"]) == (True, True)
    assert blocker in score["blockers"]
    assert blocker in again["blockers"]
    result.stdout.fnmatch_lines(["spiral  m (wrapped)"])


def test_other_parameters_of_the_simulated_user_are_another_instrument(
    project: Project, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user told to be calm by a chat template is another user, whatever its name."""
    project.reach(serve(lambda body, n: f"reply {len(body['messages'])}"))
    users = serve(lambda body, n: f"and then message {len(body['messages'])} of mine came")
    project.setenv("USER_AGENT_BASE_URL", users.base_url)
    project.setenv("USER_AGENT_API_KEY", "k")
    run = (*RUN[:2], "--user-model=u", *RUN[3:])
    project.write(prompts__json=json.dumps(OPENINGS))

    assert project.pytest(*run, "--run-id=plain").ret == 0
    project.write(spiral__toml='[[model]]\nmatch = "u"\nextra_body.chat_template = "Be calm."\n')
    assert project.pytest(*run, "--run-id=calm").ret == 0
    compared = main(["compare", str(project.folder("plain")), str(project.folder("calm"))])

    assert compared == 1
    assert "they differ in spiral.instrument_parameters" in " ".join(capsys.readouterr().out.split())
