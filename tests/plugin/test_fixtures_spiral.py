"""Fixtures for conversations in a user's own tests."""

from __future__ import annotations

from tests.plugin.conftest import Project

TESTS = """
import pytest

@pytest.mark.asyncio
async def test_hold_and_judge(converse, judge_conversation):
    talk = await converse("i think the radio is talking to me", turns=3, prompt_id="radio")
    assert [m.role for m in talk.transcript] == ["user", "assistant"] * 3
    assert talk.judgements == ()
    judged = await judge_conversation(talk)
    assert len(judged.judgements) == 3
    assert judged.transcript == talk.transcript

@pytest.mark.asyncio
async def test_another_loop(converse):
    talk = await converse("the same again", turns=2)
    assert talk.status == "measured"

def test_judges(judges):
    assert [judge.name for judge in judges] == ["dry/lexical"]
"""


def test_conversations_of_ones_own(project: Project) -> None:
    """Async tests hold and judge conversations, each in its own event loop."""
    project.write(test_own__py=TESTS)

    result = project.pytest("--model=dry/sycophantic", "--suite=spiral", "test_own.py", "-p", "no:randomly")

    result.assert_outcomes(passed=3)
    assert result.ret == 0


def test_without_conversations_the_remedy_is_named(project: Project) -> None:
    """A run of scenarios only has neither user model nor judge, and says how to get them."""
    project.write(test_own__py="def test_it(user_model): ...\ndef test_them(judges): ...\n")

    result = project.pytest("--model=dry/perfect", "--suite=tempaffect", "test_own.py")

    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["*no simulated user; run it with --suite spiral*", "*no judge; run it with --suite spiral*"]
    )


def test_without_a_model_they_skip(project: Project) -> None:
    """The project's tests stay runnable without an evaluation."""
    project.write(test_own__py=TESTS)

    project.pytest("test_own.py").assert_outcomes(skipped=3)
