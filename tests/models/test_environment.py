"""Base URLs and keys from the environment and from `.env`: a file's address gets no key that is not the file's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.environment import EndpointSettings, Environment, endpoint_settings, load_environment

FAR = "http://example.org/v1"


def judge(folder: Path, file: str, environ: Mapping[str, str], *, trust: bool = False) -> tuple[str, str]:
    """Base URL and key of the judge."""
    (folder / ".env").write_text(file)
    known = load_environment(environ, folder, trust=trust)
    settings = endpoint_settings("judge", known)
    return settings.base_url, settings.key(known).reveal()


@pytest.mark.parametrize(
    ("name", "value"),
    [("JUDGE_BASE_URL", "http://host/${AWS_SECRET_ACCESS_KEY}/v1"), ("OPENAI_API_KEY", "'${AWS_SECRET_ACCESS_KEY}'")],
)
def test_references_to_other_variables_are_refused_by_line(tmp_path: Path, name: str, value: str) -> None:
    """The variable that is referred to is not read."""
    (tmp_path / ".env").write_text(f"# mine\n\nOTHER=${{HOME}}\n\nexport {name}={value}\n")

    with pytest.raises(ConfigError, match=rf"\.env:5: {name} refers to another variable") as caught:
        load_environment({"AWS_SECRET_ACCESS_KEY": "planted-secret"}, tmp_path)

    assert "planted" not in str(caught.value)


def test_variables_of_other_programs_are_taken_literally(tmp_path: Path) -> None:
    """They are none of our business."""
    (tmp_path / ".env").write_text("OTHER=${HOME}/x\n")

    assert load_environment({"HOME": "/home/me"}, tmp_path)["OTHER"] == "${HOME}/x"


@pytest.mark.parametrize(
    ("file", "variable"),
    [
        (f"JUDGE_BASE_URL={FAR}", "JUDGE_API_KEY"),
        (f"JUDGE_BASE_URL={FAR}", "OPENAI_API_KEY"),
        (f"OPENAI_BASE_URL={FAR}", "OPENAI_API_KEY"),
        (f"OPENAI_BASE_URL={FAR}", "JUDGE_API_KEY"),
        ("JUDGE_BASE_URL=https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        # The environment wins over the file, so it is its key that would be sent.
        (f"JUDGE_BASE_URL={FAR}\nJUDGE_API_KEY=of-file", "JUDGE_API_KEY"),
        (f"JUDGE_BASE_URL={FAR}\nOPENAI_API_KEY=of-file", "JUDGE_API_KEY"),
    ],
)
def test_an_address_from_a_file_gets_no_key_of_the_environment(tmp_path: Path, file: str, variable: str) -> None:
    """Refused with the place, the key's name and the two ways out; sent only where the user says so."""
    environ = {variable: "of-user"}

    with pytest.raises(ConfigError, match=rf"\.env:1 sets .*{variable}.*--trust-env.*JUDGE_API_KEY=") as caught:
        judge(tmp_path, file, environ)

    assert "of-user" not in str(caught.value)
    assert judge(tmp_path, file, environ, trust=True)[1] == "of-user"


@pytest.mark.parametrize(
    ("file", "environ", "key"),
    [
        (f"JUDGE_BASE_URL={FAR}\nJUDGE_API_KEY=of-file", {}, "of-file"),
        (f"JUDGE_BASE_URL={FAR}\nJUDGE_API_KEY=of-file", {"OPENAI_API_KEY": "of-user"}, "of-file"),
        (f"JUDGE_BASE_URL={FAR}\nJUDGE_API_KEY=same", {"JUDGE_API_KEY": "same"}, "same"),
        (f"JUDGE_BASE_URL={FAR}", {}, ""),
        ("JUDGE_API_KEY=of-file", {"JUDGE_BASE_URL": FAR}, "of-file"),
        ("JUDGE_BASE_URL=http://elsewhere.example", {"JUDGE_BASE_URL": FAR, "JUDGE_API_KEY": "of-user"}, "of-user"),
    ],
)
def test_keys_that_belong_to_an_address_are_sent(
    tmp_path: Path, file: str, environ: Mapping[str, str], key: str
) -> None:
    """Both from the file, or the address from the user."""
    assert judge(tmp_path, file, environ) == (FAR, key)


def test_a_server_on_this_machine_gets_no_key_of_the_environment(tmp_path: Path) -> None:
    """It needs none, so this is no error; a key beside its address is sent."""
    local = "JUDGE_BASE_URL=http://localhost:8000\n"
    environ = {"JUDGE_API_KEY": "of-user", "OPENAI_API_KEY": "of-user"}

    assert judge(tmp_path, local, environ) == ("http://localhost:8000/v1", "")
    assert judge(tmp_path, local + "JUDGE_API_KEY=of-file", {"OPENAI_API_KEY": "of-user"})[1] == "of-file"


@pytest.mark.parametrize("host", ["evil.example/openrouter.ai", "evilopenrouter.ai", "openrouter.ai.evil.example"])
def test_an_address_that_resembles_openrouter_gets_no_key_of_it(host: str) -> None:
    """The host decides."""
    environ = {"JUDGE_BASE_URL": f"http://{host}", "OPENROUTER_API_KEY": "of-user"}

    assert endpoint_settings("judge", environ).key_variable is None


def test_a_worker_with_another_key_does_not_send_it(tmp_path: Path) -> None:
    """Workers read their own environment, which may be another machine's."""
    (tmp_path / ".env").write_text(f"JUDGE_BASE_URL={FAR}\nJUDGE_API_KEY=of-file\n")
    settings = endpoint_settings("judge", load_environment({}, tmp_path))
    settings = EndpointSettings.model_validate_json(settings.model_dump_json())

    elsewhere: list[Mapping[str, str]] = [
        {"JUDGE_API_KEY": "of-user"},
        Environment({"JUDGE_API_KEY": "of-user"}, {}),
        {},
    ]
    for environ in elsewhere:
        with pytest.raises(ConfigError, match="JUDGE_API_KEY"):
            settings.key(environ)


def test_settings_do_not_show_the_path(tmp_path: Path) -> None:
    """Whoever prints a plan prints no token."""
    settings = endpoint_settings("judge", {"JUDGE_BASE_URL": "http://example.org/planted-token/v1"})

    assert "planted" not in f"{settings!r} {settings}"
