"""`--plan`: calls, tokens and cost by role, and nothing run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.fakes import spiral_cast
from tests.fakes.openai_server import Fault, Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

PRICES = '[[model]]\nmatch = ["m", "j"]\nprice = { input = 1.0, output = 2.0 }\n'
SPIRAL = ("--model=m", "--user-model=u", "--judge-model=j", "--suite=spiral", "--num-turns=3")


def rows(result: pytest.RunResult) -> dict[str, list[str]]:
    """Columns of the plan by role and model."""
    found = {}
    for line in result.outlines:
        if match := re.match(r"(evaluated \S+|user \S+|judge \S+|total) +(\d.*)$", line):
            found[match[1]] = re.split(r"\s{2,}", match[2].strip())
    return found


def test_nothing_is_sent_or_written_and_no_key_is_needed(project: Project) -> None:
    """Every call of a run is in the plan, the first one to each model and the twins included; what is not known is
    named."""
    project.write(spiral__toml=PRICES)

    result = project.here(*SPIRAL, "--plan", "-n", "2")

    assert result.ret == 0
    found = rows(result)
    assert {name: columns[0] for name, columns in found.items()} == {
        "evaluated m": "127",
        "user u": "85",
        # 42 conversations, the first question, and two judgements of each of 24 anchors.
        "judge j": f"{42 * 4 + 1 + 48}",
        "total": "429",
    }
    assert found["user u"][3:] == ["no price", "no price"]
    assert float(found["judge j"][3]) < float(found["judge j"][4])
    result.stdout.fnmatch_lines(["*no price known for u: add it to spiral.toml*"])
    result.stdout.no_fnmatch_line("*report:*")
    assert not (project.path / "reports").exists()


def test_only_what_is_selected_counts(project: Project) -> None:
    """25 scenarios in one mode, and what is asked before the first."""
    result = project.here(
        "--model=gpt-5-mini", "--suite=tempaffect", "--plan", "--prompting=schema", "-m", "pressured_integrity"
    )

    assert rows(result)["evaluated gpt-5-mini"][0] == "26"
    result.stdout.fnmatch_lines(
        [
            "*evaluated gpt-5-mini: 1,000 tokens of reasoning in a reply, assumed*",
            "*unverified list price for gpt-5-mini (2026-10-12)*",
        ]
    )
    # 26 replies with 125 tokens of text.
    assert rows(result)["evaluated gpt-5-mini"][2] == f"{26 * 1125:,}"


def test_the_plan_of_a_broken_run_is_what_is_left(project: Project, serve: Serve) -> None:
    """What the store has is not counted again, and preflight has counted the reasoning."""
    model = ScriptedModel("perfect", answers=70)

    def thinking(body: dict[str, Any], n: int) -> str | Reply | Fault:
        said = model(body, n)
        usage = {"prompt_tokens": 9, "completion_tokens": 700, "completion_tokens_details": {"reasoning_tokens": 640}}
        return Reply(said, usage=usage) if isinstance(said, str) else said

    project.reach(serve(thinking))
    project.write(spiral__toml='[[model]]\nmatch = "m"\nreasoning_tokens = 50\n')
    run = ("--model=m", "--suite=tempaffect", "--run-id=r", "--prompting=raw")
    project.pytest(*run, "-p", "no:xdist")

    plan = project.here(*run, "--plan")

    assert rows(plan)["evaluated m"][0] == "5"
    assert rows(plan)["evaluated m"][2] == f"{5 * (640 + 125):,}"
    plan.stdout.fnmatch_lines(["*evaluated m: 640 tokens of reasoning in a reply, as preflight counted*"])


def test_the_count_is_that_of_the_run(project: Project, serve: Serve) -> None:
    """Planned calls are exactly the calls that the run then makes."""

    def cast(body: dict[str, Any], n: int) -> str | Reply | Fault:
        if "response_format" in body:
            return spiral_cast.judge(body)
        return (spiral_cast.simulated_user if body["messages"][0]["role"] == "system" else spiral_cast.assistant)(body)

    server = serve(cast)
    project.setenv("OPENAI_BASE_URL", server.base_url)

    planned = rows(project.here(*SPIRAL, "--plan", "-k", "tropes"))["total"][0]
    project.pytest(*SPIRAL, "-k", "tropes", "-p", "no:xdist")

    assert int(planned) == len(server.requests) > 0


@pytest.mark.parametrize(("limit", "first"), [((), 32_768), (("--max-cost=5",), 1_024)])
def test_the_most_holds_the_limit_of_preflight(project: Project, limit: tuple[str, ...], first: int) -> None:
    """Its question is asked with the highest token limit, but under --max-cost as in the run."""
    project.write(spiral__toml=PRICES)

    result = project.here("--model=m", "--suite=tempaffect", "--prompting=raw", "-k", "ps-01", "--plan", *limit)

    calls, prompt, _, _, most = rows(result)["evaluated m"]
    assert calls == "2"
    assert float(most) == round((int(prompt.replace(",", "")) + 2 * (first + 1_024)) / 1e6, 4)


def test_built_in_models_cost_nothing(project: Project) -> None:
    """No price is missing, no call is paid for."""
    result = project.here("--model=dry/perfect", "--suite=tempaffect", "--plan")

    assert result.ret == pytest.ExitCode.OK
    assert rows(result)["total"][3:] == ["0.0000", "0.0000"]


def test_a_run_of_another_configuration_is_refused(project: Project) -> None:
    """The plan of a run that could not be resumed would be no plan."""
    project.pytest("--model=dry/perfect", "--suite=tempaffect", "--run-id=r", "-k", "ps-01", "-p", "no:xdist")

    result = project.here("--model=dry/echo", "--suite=tempaffect", "--run-id=r", "--plan")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'r' exists with another configuration*"])
