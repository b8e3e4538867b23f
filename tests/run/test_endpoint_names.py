"""What stands for an endpoint in a run's identity, and what a run says of hosts that it cannot tell apart."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_spiral.differences import Difference, differences, listed
from pytest_spiral.report.model import RequestLimit
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import ModelPlan, RunPlan, make_plan
from pytest_spiral.run.results import _notes
from pytest_spiral.settings import Settings

GATEWAY = {"EVALUATED_MODEL_BASE_URL": "https://a.example/v1", "EVALUATED_MODEL_API_KEY": "k" * 12}


def planned(folder: Path, environ: dict[str, str], toml: str = "", *, plan: bool = False) -> RunPlan:
    """The plan of a run of one remote model."""
    if toml:
        (folder / "spiral.toml").write_text(f'[[model]]\nmatch = "m"\n{toml}\n')
    settings = Settings(model=("m",), suite=("tempaffect",), plan=plan)
    return make_plan(settings, Content(settings, folder), environ, datetime.now(UTC))


@pytest.mark.parametrize(
    ("environ", "toml", "name"),
    [
        (GATEWAY, "", "custom"),
        (GATEWAY, 'endpoint = "gateway-a"', "gateway-a"),
        ({"OPENAI_API_KEY": "k" * 12}, "", "openai"),
        ({"OPENROUTER_API_KEY": "k" * 12}, "", "openrouter"),
        ({"GROQ_API_KEY": "k" * 12}, 'provider = "groq"', "groq"),
        ({"EVALUATED_MODEL_BASE_URL": "http://10.0.0.7:8000"}, 'provider = "vllm"', "vllm"),
    ],
)
def test_the_name_is_declared_or_the_providers(tmp_path: Path, environ: dict[str, str], toml: str, name: str) -> None:
    """Never host or port; a service of another provider is another run."""
    model = planned(tmp_path, environ, toml).models[0]

    assert model.identity()["endpoint"] == name


@pytest.mark.parametrize(
    ("environ", "toml", "name"),
    [
        ({}, "", "openai"),
        ({}, 'provider = "groq"', "groq"),
        ({"OPENAI_BASE_URL": "https://a.example"}, "", "custom"),
    ],
)
def test_a_plan_needs_no_key_for_the_name(tmp_path: Path, environ: dict[str, str], toml: str, name: str) -> None:
    """`--plan` for an existing run works where its keys are not set."""
    assert planned(tmp_path, environ, toml, plan=True).models[0].endpoint_name == name


def limit(endpoint: str) -> RequestLimit:
    return RequestLimit(endpoint=endpoint, lowest=1, last=1, history=())


@pytest.mark.parametrize(
    ("before", "toml", "told"),
    [
        ("https://a.example:8443/v1", "", False),
        ("https://b.example/v1 m", "", True),
        ("http://127.0.0.1:8000/v1", "", True),
        ("https://b.example/v1", 'endpoint = "gateway-a"', False),
    ],
    ids=["port", "host", "this-machine", "declared"],
)
def test_another_host_under_an_undeclared_name_is_told(tmp_path: Path, before: str, toml: str, told: bool) -> None:
    """Two services cannot pass as one in silence; a declared name says that they are one."""
    plan = planned(tmp_path, GATEWAY, toml)

    notes = list(_notes(plan, [limit("https://a.example/v1"), limit(before)]))

    assert bool(notes) == told
    if told:
        assert "m (custom)" in notes[0]
        assert 'endpoint = "' in notes[0]


def test_servers_of_this_machine_are_one_place(tmp_path: Path) -> None:
    """A server that moved to another port or is reached by another name of the machine is no other service."""
    plan = planned(tmp_path, {"EVALUATED_MODEL_BASE_URL": "http://127.0.0.1:8000/v1"})

    assert list(_notes(plan, [limit("http://localhost:9000/v1"), limit("http://[::1]:1/v1")])) == []


def test_a_built_in_model_has_no_endpoint() -> None:
    """Nothing is sent, so nothing stands for an address."""
    assert "endpoint" not in ModelPlan(spec="dry/perfect", kind="dry", model_id="perfect", params={}).identity()


def test_only_what_differs_is_shown() -> None:
    """Deep inside lists of models too; of long texts the part from the first difference on."""
    models = [{"spec": "m", "params": {"seed": 1}}, {"spec": "n", "text": "x" * 100 + "a"}]
    others = [{"spec": "m", "params": {"seed": 2}}, {"spec": "n", "text": "x" * 100 + "b"}]

    found = list(differences({"model": models, "seed": 1}, {"model": others, "seed": 1}))

    assert found == [
        Difference("model[0].params.seed", "1", "2"),
        Difference("model[1].text", '"...xxxxxxxxxxa"', '"...xxxxxxxxxxb"'),
    ]
    assert listed(found[:1], "{name} (was {one}, now {other})") == "model[0].params.seed (was 1, now 2)"


def test_equal_values_of_other_shapes_differ() -> None:
    """A list that grew is shown whole, a missing key is null."""
    assert list(differences({"a": [1], "b": None}, {"a": [1, 2]})) == [Difference("a", "[1]", "[1, 2]")]
