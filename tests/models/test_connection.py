"""Addresses, keys, headers and parameters that spiral.toml gives a model, and which secrets a file gets at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.models.environment import EndpointSettings, endpoint_settings, load_environment
from pytest_spiral.models.parameters import resolve_parameters
from pytest_spiral.models.providers import GENERIC, provider_at, providers

FAR = "https://gateway.example.org/v1"
SECRET = "planted-0123456789abcdef"


def settings(
    folder: Path, toml: str, environ: Mapping[str, str], *, dotenv: str = "", trust: bool = False
) -> EndpointSettings:
    """How the evaluated model `m` is reached. toml: the keys of its table."""
    (folder / "spiral.toml").write_text(f'[[model]]\nmatch = "m"\n{toml}\n')
    (folder / ".env").write_text(dotenv)
    known = load_environment(environ, folder, trust=trust)
    connection = resolve_parameters("m", "evaluated", folder / "spiral.toml").connection
    return endpoint_settings("evaluated", known, connection)


def endpoint(folder: Path, toml: str, environ: Mapping[str, str], *, dotenv: str = "", trust: bool = False) -> Endpoint:
    """The endpoint with its secrets."""
    found = settings(folder, toml, environ, dotenv=dotenv, trust=trust)
    return found.endpoint("evaluated", load_environment(environ, folder))


def test_a_provider_needs_its_name_and_its_key(tmp_path: Path) -> None:
    """Its address and the name of its key are the package's own knowledge, so the key of the environment goes there."""
    found = endpoint(tmp_path, 'provider = "groq"', {"GROQ_API_KEY": SECRET, "OPENAI_API_KEY": "of-others"})

    assert (found.base_url, found.api_key.reveal()) == ("https://api.groq.com/openai/v1", SECRET)
    assert found.key_name == "GROQ_API_KEY"


@pytest.mark.parametrize(
    ("toml", "environ"),
    [
        (f'base_url = "{FAR}"', {"EVALUATED_MODEL_API_KEY": SECRET}),
        (f'base_url = "{FAR}"', {"OPENAI_API_KEY": SECRET}),
        (f'base_url = "{FAR}"\napi_key_env = "AWS_SECRET_ACCESS_KEY"', {"AWS_SECRET_ACCESS_KEY": SECRET}),
        (f'base_url = "{FAR}"\nprovider = "groq"', {"GROQ_API_KEY": SECRET}),
        (f'base_url = "{FAR}"\nprovider = "groq"\nheaders.X = {{ env = "GROQ_API_KEY" }}', {"GROQ_API_KEY": SECRET}),
        ('provider = "groq"\napi_key_env = "AWS_SECRET_ACCESS_KEY"', {"AWS_SECRET_ACCESS_KEY": SECRET}),
        ('provider = "groq"', {"EVALUATED_MODEL_API_KEY": SECRET}),
        ('provider = "openrouter"\nheaders.X-Title = { env = "A" }', {"OPENROUTER_API_KEY": "k", "A": SECRET}),
        ('provider = "openrouter"\nquery.q = { env = "A" }', {"OPENROUTER_API_KEY": "k", "A": SECRET}),
        (f'base_url = "{FAR}"\nheaders.X = {{ env = "A" }}', {"A": SECRET}),
        ('base_url = "http://127.0.0.1:9/v1"\nheaders.X = { env = "A" }', {"A": SECRET}),
        ('headers.X = { env = "A" }', {"EVALUATED_MODEL_BASE_URL": FAR, "EVALUATED_MODEL_API_KEY": "k", "A": SECRET}),
    ],
)
def test_a_file_gets_no_secret_of_the_environment(tmp_path: Path, toml: str, environ: Mapping[str, str]) -> None:
    """Refused with the two ways out; each of them works."""
    (name,) = [name for name, value in environ.items() if value == SECRET]

    with pytest.raises(ConfigError, match="--trust-env") as caught:
        settings(tmp_path, toml, environ)

    assert SECRET not in str(caught.value)
    assert str(caught.value).endswith(("_API_KEY=", f"{name}="))
    for found in (
        endpoint(tmp_path, toml, environ, trust=True),
        endpoint(tmp_path, toml, environ, dotenv=f"{name}={SECRET}"),
    ):
        sent = [found.api_key, *(secret for _, secret in (*found.headers.values(), *found.query.values()))]
        assert SECRET in [secret.reveal() for secret in sent]


def test_a_server_on_this_machine_is_asked_without_the_key(tmp_path: Path) -> None:
    """It needs none, so this is no error; a key beside its address is sent."""
    toml = 'provider = "vllm"\nbase_url = "http://localhost:8001"'
    environ = {"VLLM_API_KEY": SECRET}

    assert endpoint(tmp_path, toml, environ).api_key.reveal() == ""
    assert endpoint(tmp_path, toml, {}, dotenv=f"VLLM_API_KEY={SECRET}").api_key.reveal() == SECRET


def test_a_worker_with_other_secrets_does_not_send_them(tmp_path: Path) -> None:
    """Workers read their own environment, which may be another machine's."""
    toml = f'base_url = "{FAR}"\nheaders.X = {{ env = "A" }}'
    found = settings(tmp_path, toml, {}, dotenv=f"A={SECRET}")
    found = EndpointSettings.model_validate_json(found.model_dump_json())

    for environ in ({"A": "of-user"}, {}):
        with pytest.raises(ConfigError, match="A: "):
            found.endpoint("evaluated", environ)


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    """Neither in what is stored and printed nor, when a server echoes them, in messages."""
    toml = f"""base_url = "{FAR}/planted-path"
headers = {{ X-Gateway = {{ env = "A", prefix = "Bearer " }}, X-Team = "planted-team" }}
query = {{ sig = {{ env = "B" }}, api-version = "1" }}"""
    environ = {"A": SECRET, "B": "planted-b-9876543210"}
    dotenv = "".join(f"{name}={value}\n" for name, value in environ.items())
    found = settings(tmp_path, toml, {}, dotenv=dotenv)
    reached = endpoint(tmp_path, toml, {}, dotenv=dotenv)

    texts = (
        f"{found!r} {reached!r}",
        found.shown().model_dump_json(),
        reached.clean(f"bad key {SECRET}, {environ['B']}"),
    )
    assert [text for text in texts if "planted" in text] == []
    assert found.secrets == {"A", "B"}
    assert reached.headers["X-Gateway"][0] == "Bearer "


@pytest.mark.parametrize(
    ("toml", "environ", "says"),
    [
        ('provider = "groq"', {"OPENAI_API_KEY": "k"}, "set GROQ_API_KEY in the environment"),
        ('provider = "azure-v1"', {}, 'base_url = "https://YOUR-RESOURCE.openai.azure.com"'),
        (f'base_url = "{FAR}"\napi_key_env = "MINE"', {}, "MINE, which is not set"),
        (f'base_url = "{FAR}"', {}, "set EVALUATED_MODEL_API_KEY or OPENAI_API_KEY"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, toml: str, environ: Mapping[str, str], says: str) -> None:
    """With the variable or the line to add."""
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, toml, environ)

    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "url", "base_url", "path"),
    [
        (
            "azure-classic",
            "https://r.openai.azure.com/",
            "https://r.openai.azure.com/openai",
            "/deployments/a%2Fb/chat",
        ),
        (
            "azure-classic",
            "https://r.openai.azure.com/openai/deployments/gpt/chat/completions",
            "https://r.openai.azure.com/openai",
            "/deployments/a%2Fb/chat",
        ),
        ("azure-v1", "https://r.openai.azure.com", "https://r.openai.azure.com/openai/v1", "/chat"),
        ("gemini", "http://proxy.example.org:8080", "http://proxy.example.org:8080/v1beta/openai", "/chat"),
        (
            "bedrock",
            "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1/",
            "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1",
            "/chat",
        ),
    ],
)
def test_addresses_as_portals_give_them(tmp_path: Path, name: str, url: str, base_url: str, path: str) -> None:
    """The provider's path is added where it is missing."""
    found = endpoint(tmp_path, f'provider = "{name}"\nbase_url = "{url}"\napi_key_env = "K"', {}, dotenv="K=k")

    assert found.base_url == base_url
    assert found.provider.path_of("a/b").startswith(path)


def test_an_address_of_the_environment_may_have_the_providers_key(tmp_path: Path) -> None:
    """The variable that the provider's own client reads; and a known address brings its provider's conventions."""
    azure = {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com", "AZURE_OPENAI_API_KEY": SECRET}
    groq = {"EVALUATED_MODEL_BASE_URL": "https://api.groq.com/openai/v1", "GROQ_API_KEY": SECRET}

    assert endpoint(tmp_path, 'provider = "azure-classic"', azure).api_key.reveal() == SECRET
    assert endpoint(tmp_path, "", groq).api_key.reveal() == SECRET
    assert endpoint(tmp_path, "", groq).provider.name == "groq"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://r.openai.azure.com/openai/deployments/gpt-4o", "azure-classic"),
        ("https://r.openai.azure.com/openai/v1", "azure-v1"),
        ("https://bedrock-mantle.eu-west-1.api.aws/v1", "bedrock"),
        ("https://evil.example/openrouter.ai", ""),
        ("https://evilopenrouter.ai/v1", ""),
        ("https://api.groq.com.evil.example/v1", ""),
        ("http://127.0.0.1:8000/v1", ""),
    ],
)
def test_providers_are_recognised_by_their_host(url: str, name: str) -> None:
    """By the whole host: what only resembles one is nobody's."""
    assert provider_at(url).name == name


def test_presets_are_complete() -> None:
    """Every preset can be used: an address or an example of one, https where a key is sent over a network."""
    presets = providers().values()

    assert [each.name for each in presets if not (each.base_url or each.example_url)] == []
    assert [
        each.name for each in presets if each.base_url and provider_at(each.base_url) not in (each, provider_at(""))
    ] == []
    assert {each.name for each in presets if each.base_url and not each.base_url.startswith("https://")} == {
        "vllm",
        "sglang",
        "llama-cpp",
        "ollama",
        "lm-studio",
    }
    assert len({each.hash for each in presets}) == len(presets) >= 17


def test_timeouts_and_alias_come_from_the_table(tmp_path: Path) -> None:
    """A table may change one of them; keys of several tables are merged, headers one by one."""
    (tmp_path / "spiral.toml").write_text(
        '[[model]]\nmatch = "m"\ntimeout_seconds = 900\nendpoint = "gpu-1"\nheaders.A = "1"\n'
        '[[default]]\nprovider = "vllm"\nheaders = { A = "2", B = "3" }\n'
    )

    found = resolve_parameters("m", "judge", tmp_path / "spiral.toml")
    other = resolve_parameters("x", "judge", tmp_path / "spiral.toml")

    assert (found.connection.provider, found.connection.timeout_seconds, found.connection.endpoint) == (
        "vllm",
        900,
        "gpu-1",
    )
    assert found.connection.headers == {"A": "1", "B": "3"}
    assert other.connection.headers == {"A": "2", "B": "3"}
    assert (found.place, other.place) == (f"{tmp_path}/spiral.toml:1", f"{tmp_path}/spiral.toml:6")


@pytest.mark.parametrize(
    ("toml", "one", "total"),
    [
        ("", 180, 600),
        ("timeout_seconds = 30", 30, 600),
        ("timeout_seconds = 900", 900, 900),
        ("total_timeout_seconds = 60", 180, 60),
        ('provider = "ollama"', 900, 3600),
        ('provider = "ollama"\ntimeout_seconds = 5000', 5000, 5000),
    ],
)
def test_a_call_has_time_for_one_request_at_least(tmp_path: Path, toml: str, one: float, total: float) -> None:
    """A short deadline for one request leaves the usual one for the call, and its retries, alone."""
    (tmp_path / "spiral.toml").write_text(f"[[default]]\n{toml}\n")
    given = resolve_parameters("m", "judge", tmp_path / "spiral.toml").connection

    assert given.timeouts((given.preset or GENERIC).defaults) == {"attempt_timeout": one, "timeout": total}
