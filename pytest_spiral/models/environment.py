"""Which base URL and which key a role has, from environment variables and a `.env` file.

A `.env` file often comes with a project, the keys in the environment belong to the user. So an address from the file
gets keys from the file only, unless the user says that it may have others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from pytest_spiral.chat import Role
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.endpoint import (
    ENV_PREFIXES,
    OPENAI_URL,
    OPENROUTER_URL,
    Secret,
    host_of,
    is_loopback,
    normalise_base_url,
    shown_url,
)

_OURS = re.compile(rf"({'|'.join((*ENV_PREFIXES.values(), 'OPENAI', 'OPENROUTER'))})_(BASE_URL|API_KEY)")


class _Line(NamedTuple):
    """Where a file sets a variable, and to what."""

    value: str
    place: str


class Environment(dict[str, str]):
    """Environment variables, completed from a `.env` file; what is set in the environment wins.

    Attributes:
        lines: What the file sets, with its place.
        untrusted: The variables that only the file sets; empty if the user trusts it.
    """

    def __init__(self, variables: Mapping[str, str], lines: Mapping[str, _Line], *, trust: bool = False) -> None:
        super().__init__({name: line.value for name, line in lines.items()} | dict(variables))
        self.lines = lines
        self.untrusted = frozenset(() if trust else {*lines} - {*variables})

    def may_send(self, name: str) -> bool:
        """Whether an address from the file may have this key: the one that the file itself has."""
        return name in self.lines and self.lines[name].value == self[name]


def _as_environment(environ: Mapping[str, str]) -> Environment:
    return environ if isinstance(environ, Environment) else Environment(environ, {})


class EndpointSettings(BaseModel):
    """Where a role's requests go. The key is held apart, and the address is not shown, so that this may be printed."""

    model_config = ConfigDict(frozen=True)

    base_url: str = Field(repr=False)
    key_variable: str | None
    """Name of the environment variable that holds the key, None where no key is sent."""
    key_in_file: bool = False
    """Whether the key must be the one that the `.env` file has, because the address is from there."""

    def shown(self) -> EndpointSettings:
        """With the base URL as it may be shown and stored."""
        return self.model_copy(update={"base_url": shown_url(self.base_url)})

    def key(self, environ: Mapping[str, str]) -> Secret:
        """The key in this process. Raises `ConfigError` where it must not be sent."""
        name = self.key_variable
        if name is None:
            return Secret()
        if self.key_in_file and not _as_environment(environ).may_send(name):
            raise ConfigError(f"{name}: the address of the endpoint is from a .env file, and the key here is another")
        return Secret(environ[name])


def load_environment(environ: Mapping[str, str], folder: Path, *, trust: bool = False) -> Environment:
    """The environment, completed from a `.env` file in `folder`.

    Args:
        environ: The variables of this process.
        folder: Where the file is looked for.
        trust: Whether addresses from the file may have keys from the environment.

    Raises:
        ConfigError: The file cannot be read, or a variable of ours in it refers to another one.
    """
    path = folder / ".env"
    if not path.is_file():
        return Environment(environ, {})
    from dotenv.parser import parse_stream

    lines = {}
    try:
        with path.open(encoding="utf-8") as file:
            for binding in parse_stream(file):
                if binding.key is None or binding.value is None:
                    continue
                text = binding.original.string
                number = binding.original.line + text[: len(text) - len(text.lstrip())].count("\n")
                lines[binding.key] = _Line(binding.value, f"{path}:{number}")
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeError) else error
        raise ConfigError(f"{path}: cannot be read ({reason}); mend or remove it") from None
    for name, line in lines.items():
        if _OURS.fullmatch(name) and "${" in line.value:
            raise ConfigError(
                f"{line.place}: {name} refers to another variable, which .env files cannot: they could send any secret "
                "of the environment to any address; write the value itself"
            )
    return Environment(environ, lines, trust=trust)


def endpoint_settings(role: Role, environ: Mapping[str, str]) -> EndpointSettings:
    """Base URL and key variable of a role.

    Each of the role's two variables falls back to OPENAI_*, then to OPENROUTER_API_KEY with its own URL. A fallback key
    is sent neither to a server on this machine nor, if it is OpenRouter's, to anybody else.

    Raises:
        ConfigError: The address is none, an https endpoint has no key, or the key is not meant for the address.
    """
    prefix, variables = ENV_PREFIXES[role], _as_environment(environ)
    source = next((name for name in (f"{prefix}_BASE_URL", "OPENAI_BASE_URL") if environ.get(name)), None)
    url = normalise_base_url(environ[source], source) if source else ""
    names = [f"{prefix}_API_KEY"]
    if not is_loopback(url):
        names.append("OPENAI_API_KEY")
        if not url or re.search(r"(^|\.)openrouter\.ai$", host_of(url)):
            names.append("OPENROUTER_API_KEY")
    variable = next((name for name in names if environ.get(name)), None)
    if not url:
        url = OPENROUTER_URL if variable == "OPENROUTER_API_KEY" else OPENAI_URL
    from_file = source in variables.untrusted
    if source and from_file and variable and not variables.may_send(variable):
        if not is_loopback(url):
            raise ConfigError(
                f"{variables.lines[source].place} sets {source} to {shown_url(url)}, and the environment sets "
                f"{variable}: an address from a file gets no key from elsewhere. If that address may have the key, add "
                f"--trust-env; if it has a key of its own, paste this line into the file, followed by it: "
                f"{prefix}_API_KEY="
            )
        variable = None
    if variable is None and url.startswith("https:"):
        raise ConfigError(
            f"no API key for the {role} model at {shown_url(url)}: set {prefix}_API_KEY or OPENAI_API_KEY in the "
            f"environment or in .env, or {prefix}_BASE_URL for a server of your own"
        )
    return EndpointSettings(base_url=url, key_variable=variable, key_in_file=from_file and variable is not None)
