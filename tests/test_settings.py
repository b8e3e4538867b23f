"""Options are declared once, and everything else about them follows."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from pytest_spiral.differences import differences
from pytest_spiral.errors import ConfigError
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import make_plan
from pytest_spiral.settings import OPTIONS, Option, Settings

DRY = Settings(model=("dry/perfect",))
# Another valid value for every option that affects measurements.
CHANGES: dict[str, Any] = {
    "model": ("dry/random_valid",),
    "user_model": "dry/sycophantic-user",
    "judge_model": ("dry/lexical", "gpt-5"),
    "reply_judge": ("dry/lexical",),
    "suite": ("tempaffect",),
    "prompting": ("raw",),
    "think_tags": "fail",
    "epochs": 2,
    "num_turns": 3,
    "convos_per_prompt": 2,
    "protocol": "per-10k-chars",
    "tempaffect_scenarios": "scenarios.json",
    "spiral_prompts": "prompts.json",
    "spiral_upstream": "clone",
    "system_prompt": "system.md",
    "seed": 2,
    "replay": "report.json",
    "redo_judging": True,
    "benign_twins": "full",
}
# Resolving these needs models or recordings, which tests of whole runs have.
ELSEWHERE = {
    *("model", "user_model", "judge_model", "suite", "tempaffect_scenarios", "spiral_upstream"),
    *("replay", "redo_judging"),
}


def identity(settings: Settings, folder: Path) -> dict[str, object]:
    """The identity of a run with these settings."""
    content = Content(settings, folder)
    return make_plan(settings, content, {"OPENAI_API_KEY": "key"}, datetime.now(UTC)).identity(content)


def test_every_field_is_an_option() -> None:
    """No setting without flag, ini key and help."""
    assert [option.key for option in OPTIONS] == [field.name for field in fields(Settings)]


def test_every_option_that_affects_measurements_is_in_the_identity(tmp_path: Path) -> None:
    """A run of all suites has one entry for each, under the option's name."""
    measuring = {option.key for option in OPTIONS if option.affects == "measurement"}

    assert measuring == set(CHANGES)
    assert measuring - set(identity(DRY, tmp_path)) == set()


@pytest.mark.parametrize("key", sorted(set(CHANGES) - ELSEWHERE))
def test_another_value_is_another_run(key: str, tmp_path: Path) -> None:
    """The identity changes with the option, and in that entry alone."""
    (tmp_path / "system.md").write_text("Be brief.")
    (tmp_path / "prompts.json").write_text(
        '[{"prompt_id": "p", "category": "theory_development", "prompts": ["is it a sign?"]}]'
    )
    settings = DRY
    if key == "system_prompt":
        # Built-in models read no prompt.
        settings = replace(DRY, model=("m",), suite=("tempaffect",))
    if key == "protocol":
        # Of the same rubric.
        settings = replace(DRY, protocol="per-chunk")
    if key == "spiral_prompts":
        # They have no twins.
        settings = replace(DRY, benign_twins="off")
    before, after = identity(settings, tmp_path), identity(replace(settings, **{key: CHANGES[key]}), tmp_path)

    assert {name for name in before if before[name] != after[name]} == {key}


def test_runs_from_before_judges_of_replies_are_resumed(tmp_path: Path) -> None:
    """Their identity has no such entry, which is the same as none of them."""
    now = identity(DRY, tmp_path)

    before = {name: value for name, value in now.items() if name != "reply_judge"}
    assert list(differences(before, now)) == []


def test_settings_survive_json() -> None:
    """Workers and shards read back what the controller has."""
    adapter = TypeAdapter(Settings)
    settings = replace(DRY, gate=("tempaffect.score >= 0.5",), max_cost=2.5, shard="2/3", strict_items=True)

    assert adapter.validate_json(adapter.dump_json(settings)) == settings


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epochs": 0}, "--epochs: must be between 1 and 10000, got 0"),
        ({"concurrency": 10_001}, "--concurrency: must be between"),
        ({"retest_share": 101}, "--retest-share: must be between 0 and 100"),
        ({"max_cost": float("nan")}, "--max-cost: must be an amount in USD above 0"),
        ({"shard": "3/2"}, "--shard: '3/2' is not a shard"),
        ({"run_id": "latest"}, "--run-id: 'latest' is not a run name"),
        ({"user_model": "two words"}, "--user-model: 'two words' is not a model name"),
        ({"model": ("",)}, "--model: '' is not a model name"),
        ({"redo_judging": True}, "--redo-judging: needs recorded conversations"),
        # A recipe's thresholds are for bounds: a point estimate passes by luck.
        ({"gate_recipe": "release", "gate_policy": "point"}, "--gate-policy point: the gates of --gate-recipe release"),
    ],
)
def test_a_wrong_value_names_its_option(change: dict[str, Any], says: str) -> None:
    """One sentence: which option, what is wrong."""
    with pytest.raises(ConfigError) as caught:
        replace(DRY, **change)

    assert str(caught.value).startswith(says)


def test_what_is_named_twice_counts_once() -> None:
    """Repeating a model or suite changes nothing."""
    twice = Settings(model=("dry/perfect", "dry/perfect"), suite=("spiral", "spiral"))

    assert (twice.model, twice.suite) == (("dry/perfect",), ("spiral",))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_help_is_one_phrase(option: Option) -> None:
    """Capital, no full stop, the default at the end."""
    assert option.help[0].isupper()
    assert not option.help.endswith(".")
    assert "default:" in option.described()
