"""What a user is told to paste about a model whose table in spiral.toml names a provider."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_spiral.errors import ChatError, ConfigError, Refusal
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import ModelPlan, make_plan
from pytest_spiral.run.remedies import unusable
from pytest_spiral.settings import Settings
from pytest_spiral.status import ReasonCode

TABLE = '[[model]]\nmatch = "m"\nprovider = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\n'


def planned(folder: Path, name: str) -> ModelPlan:
    """An evaluated model of this name beside the table."""
    (folder / "spiral.toml").write_text(TABLE, encoding="utf-8")
    settings = Settings(model=(name,), suite=("tempaffect",))
    (model,) = make_plan(settings, Content(settings, folder), {}, datetime.now(UTC)).models
    return model


def test_another_address_keeps_the_provider(tmp_path: Path) -> None:
    """The pasted table stands before the one that names the provider, and hides it."""
    error = unusable(planned(tmp_path, "m"), ChatError(ReasonCode.UNREACHABLE, "refused"), tmp_path)

    assert '    provider = "vllm"\n    base_url = "https://HOST/v1"' in str(error)


def test_a_wrong_name_is_no_wrong_address(tmp_path: Path) -> None:
    """Where a known service says so, nothing is pasted that holds the wrong name; the file may hold it, too."""
    error = ChatError(ReasonCode.BAD_REQUEST, "no such model")
    error.refusal = Refusal("model")

    alone = str(unusable(planned(tmp_path, "m"), error, tmp_path))
    listed = str(unusable(planned(tmp_path, "m"), error, tmp_path, ["m2"]))

    assert "HOST" not in alone
    assert "--model=m2" in listed
    assert all("Where a `match` in" in told for told in (alone, listed))


def test_a_name_that_no_table_matches(tmp_path: Path) -> None:
    """It would be asked for at OpenAI; that a table was meant for it is said."""
    with pytest.raises(
        ConfigError, match=r"no API key for the evaluated model.*no \[\[model\]\] table of .*spiral.toml"
    ):
        planned(tmp_path, "mm")
