"""What a user is told to paste about a model whose table in spiral.toml names a provider."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_spiral.chat import ChatReply, ChatRequest
from pytest_spiral.errors import ChatError, ConfigError, RefusedRequest
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import ModelPlan, make_plan
from pytest_spiral.run.remedies import unusable, unusable_reply
from pytest_spiral.settings import Settings
from pytest_spiral.status import ReasonCode

TABLE = '[[model]]\nmatch = "m"\nprovider = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\n'


def planned(folder: Path, name: str) -> ModelPlan:
    """An evaluated model of this name beside the table."""
    (folder / "spiral.toml").write_text(TABLE, encoding="utf-8")
    settings = Settings(model=(name,), suite=("tempaffect",))
    (model,) = make_plan(settings, Content(settings, folder), {}, datetime.now(UTC)).models
    return model


def judge(folder: Path, name: str) -> ModelPlan:
    """The plan of a judge of this name."""
    settings = Settings(model=("m",), suite=("spiral",), user_model="m", judge_model=(name,))
    server = {f"{role}_BASE_URL": "http://127.0.0.1:9" for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE")}
    plan = make_plan(settings, Content(settings, folder), server, datetime.now(UTC))
    return next(model for model in plan.everybody if model.role == "judge")


def test_another_address_keeps_the_provider(tmp_path: Path) -> None:
    """The pasted table stands before the one that names the provider, and hides it."""
    error = unusable(planned(tmp_path, "m"), ChatError(ReasonCode.UNREACHABLE, "refused"), tmp_path, {})

    assert '    provider = "vllm"\n    base_url = "https://HOST/v1"' in str(error)


def test_a_wrong_name_is_no_wrong_address(tmp_path: Path) -> None:
    """Where a known service says so, nothing is pasted that holds the wrong name; the file may hold it, too."""
    error = ChatError(ReasonCode.BAD_REQUEST, "no such model")
    error.refusal = RefusedRequest("model")

    alone = str(unusable(planned(tmp_path, "m"), error, tmp_path, {}))
    listed = str(unusable(planned(tmp_path, "m"), error, tmp_path, {}, ["m2"]))

    assert "HOST" not in alone
    assert "--model=m2" in listed
    assert all("Where a `match` in" in told for told in (alone, listed))


def test_a_name_that_no_table_matches(tmp_path: Path) -> None:
    """It would be asked for at OpenAI; that a table was meant for it is said."""
    with pytest.raises(
        ConfigError, match=r"no API key for the evaluated model.*no \[\[model\]\] table of .*spiral.toml"
    ):
        planned(tmp_path, "mm")


def test_a_default_judge_is_not_named_in_its_own_place(tmp_path: Path) -> None:
    """Under the name of another endpoint neither; whoever names a judge gets a name to paste."""
    request, reply = ChatRequest("judge", "m", ()), ChatReply("prose")
    told = [
        str(unusable_reply(judge(tmp_path, name), "its judgement cannot be read", request, reply, tmp_path))
        for name in ("gpt-6.1-sol", "openai/gpt-6.1-sol", "other")
    ]

    assert ["Paste" in each for each in told] == [False, False, True]
    assert told[2].endswith("--judge-model=gpt-6.1-sol")


def test_all_missing_keys_are_named_at_once(tmp_path: Path) -> None:
    """Each role in a line of its own, two judges at one address in one line."""
    settings = Settings(model=("m",), suite=("spiral",), judge_model=("a", "b"))

    with pytest.raises(ConfigError) as caught:
        make_plan(settings, Content(settings, tmp_path), {}, datetime.now(UTC))

    named = ["evaluated model", "simulated user", "judge"]
    lines = str(caught.value).splitlines()
    assert [line.partition(" at ")[0] for line in lines] == [f"no API key for the {who}" for who in named]
