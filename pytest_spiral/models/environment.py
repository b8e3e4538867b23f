"""Which base URL and which key a model has, from spiral.toml, environment variables and a `.env` file.

Files often come with a project, the keys in the environment belong to the user. So an address from a file gets keys
from `.env` only, and a variable that spiral.toml names is sent only if `.env` sets it, unless the user says that they
may have others. The address that the package itself knows of a provider gets the provider's own key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from pytest_spiral.chat import Role
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.connection import Connection, FromVariable, HeaderValue
from pytest_spiral.models.endpoint import (
    ATTEMPT_SECONDS,
    CALL_SECONDS,
    ENV_PREFIXES,
    OPENAI_URL,
    OPENROUTER_URL,
    Endpoint,
    Secret,
    env_name,
    is_loopback,
    normalise_base_url,
    shown_url,
)
from pytest_spiral.models.providers import GENERIC, Provider, provider_at, providers

_WHO = {"user": "simulated user", "judge": "judge", "reply_judge": "judge of replies"}
_OURS = re.compile(rf"({'|'.join((*ENV_PREFIXES.values(), 'OPENAI', 'OPENROUTER'))})_(BASE_URL|API_KEY)")


class _Line(NamedTuple):
    """Where a file sets a variable, and to what."""

    value: str
    place: str


class Environment(dict[str, str]):
    """Environment variables, completed from a `.env` file; what is set in the environment wins.

    Attributes:
        lines: What the file sets, with its place.
        exported: The variables that the environment itself sets.
        trusted: Whether addresses from files may have keys from the environment.
        untrusted: The variables that only the file sets; empty if the user trusts it.
    """

    def __init__(self, variables: Mapping[str, str], lines: Mapping[str, _Line], *, trust: bool = False) -> None:
        super().__init__({name: line.value for name, line in lines.items()} | dict(variables))
        self.lines = lines
        self.exported = frozenset(variables)
        self.trusted = trust
        self.untrusted = frozenset(() if trust else {*lines} - self.exported)

    def may_send(self, name: str) -> bool:
        """Whether an address from a file may have this key: the one that `.env` itself has."""
        return name in self.lines and self.lines[name].value == self[name]


def as_environment(environ: Mapping[str, str]) -> Environment:
    """The variables with where they come from; from no file, if that is not known."""
    return environ if isinstance(environ, Environment) else Environment(environ, {})


class EndpointSettings(BaseModel):
    """Where a model's requests go. Secrets are held apart and the address is not shown, so that this may be printed."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    base_url: str = Field(repr=False)
    key_variable: str | None
    """Name of the environment variable that holds the key, None where no key is sent."""
    from_file: tuple[str, ...] = ()
    """Variables whose values must be those of the `.env` file, because a file says where they go."""
    provider: str = ""
    """Name of the preset, "" for none."""
    provider_hash: str | None = None
    headers: Mapping[str, HeaderValue] = Field(default_factory=dict, repr=False)
    query: Mapping[str, HeaderValue] = Field(default_factory=dict, repr=False)
    alias: str | None = None
    url_name: str = ""
    """Where the user sets the base URL."""

    @property
    def preset(self) -> Provider:
        """The provider's conventions."""
        return providers()[self.provider] if self.provider else GENERIC

    @property
    def secrets(self) -> frozenset[str]:
        """Variables that hold secrets of the endpoint."""
        values = (*self.headers.values(), *self.query.values())
        named = (value.env for value in values if isinstance(value, FromVariable))
        return frozenset((*named, *([self.key_variable] if self.key_variable else ())))

    def shown(self) -> EndpointSettings:
        """With the base URL and the headers as they may be shown and stored."""
        hidden = {name: value if isinstance(value, FromVariable) else "*" for name, value in self.headers.items()}
        return self.model_copy(update={"base_url": shown_url(self.base_url), "headers": hidden})

    def key(self, environ: Mapping[str, str]) -> Secret:
        """The key in this process. Raises `ConfigError` where it must not be sent."""
        return Secret() if self.key_variable is None else self._secret(self.key_variable, environ)

    def endpoint(
        self,
        role: Role,
        environ: Mapping[str, str],
        *,
        patience: float = 600.0,
        timeout: float = CALL_SECONDS,
        attempt_timeout: float = ATTEMPT_SECONDS,
    ) -> Endpoint:
        """The endpoint with the secrets of this process. Deadlines in seconds, as `Endpoint` has them."""
        return Endpoint(
            role,
            self.base_url,
            self.key(environ),
            provider=self.preset,
            headers={name: self._pair(value, environ) for name, value in self.headers.items()},
            query={name: self._pair(value, environ) for name, value in self.query.items()},
            key_name=self.key_variable or self.preset.key_variable or "",
            url_name=self.url_name,
            patience=patience,
            timeout=timeout,
            attempt_timeout=attempt_timeout,
        )

    def _pair(self, value: HeaderValue, environ: Mapping[str, str]) -> tuple[str, Secret]:
        return (value, Secret()) if isinstance(value, str) else (value.prefix, self._secret(value.env, environ))

    def _secret(self, name: str, environ: Mapping[str, str]) -> Secret:
        if name in self.from_file and not as_environment(environ).may_send(name):
            raise ConfigError(f"{name}: the address of the endpoint is from a file, and the value here is another")
        if name not in environ:
            raise ConfigError(f"{name}: not set on this machine; set it in the environment or in .env")
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


def endpoint_settings(role: Role, environ: Mapping[str, str], connection: Connection | None = None) -> EndpointSettings:
    """Base URL, key variable and conventions of a model.

    What spiral.toml says comes first, then the provider that it names. Without them each of the role's two variables
    falls back to OPENAI_*, then to OPENROUTER_API_KEY with its own URL. A fallback key is sent neither to a server on
    this machine nor, if it is OpenRouter's, to anybody else.

    Args:
        connection: What spiral.toml says of the model.

    Raises:
        ConfigError: The address is none, an https endpoint has no key, or the key is not meant for the address.
    """
    given, variables = connection or Connection(), as_environment(environ)
    source, address = _address(role, variables, given)
    provider = given.preset or (provider_at(normalise_base_url(address, source)) if address else GENERIC)
    url = normalise_base_url(address, source, provider) if address else ""
    variable = _key_variable(role, variables, given, provider, url)
    if not url:
        url = OPENROUTER_URL if variable == "OPENROUTER_API_KEY" else OPENAI_URL
        provider = provider_at(url)
    # Whether a file decides where a key goes that is not this address's own.
    by_file = source in variables.untrusted or (bool(given.base_url) and url != provider.base_url)
    chosen = by_file or (bool(given.provider) and url == provider.base_url and variable != provider.key_variable)
    _check_named(given, variables, None if by_file else provider.key_variable, url)
    if chosen and variable and not variables.trusted and not variables.may_send(variable):
        if not is_loopback(url):
            place = variables.lines[source].place if source in variables.untrusted else "the table"
            raise ConfigError(
                f"{place} sets {source} to {shown_url(url)}, and the environment sets {variable}: an address from a "
                "file gets no key from elsewhere. If that address may have the key, add --trust-env; if it has a key "
                f"of its own, paste this line into .env, followed by it: "
                f"{variable if given.provider else env_name(role, 'API_KEY')}="
            )
        variable = None
    if variable is None and url.startswith("https:") and not given.credentials:
        names = provider.key_variable if given.provider else None
        raise ConfigError(
            f"no API key for the {_WHO.get(role, 'evaluated model')} at {shown_url(url)}: set "
            + (names or f"{env_name(role, 'API_KEY')} or OPENAI_API_KEY")
            + " in the environment or in .env"
            + ("" if given.is_given else f", or {env_name(role, 'BASE_URL')} for a server of your own")
        )
    sent = {*given.credentials, *([variable] if variable and (chosen or given.api_key_env) else ())}
    return EndpointSettings(
        base_url=url,
        key_variable=variable,
        from_file=() if variables.trusted else tuple(sorted(filter(variables.may_send, sent))),
        provider=provider.name,
        provider_hash=provider.hash if provider.name else None,
        headers=given.headers or {},
        query=given.query or {},
        alias=given.endpoint,
        url_name=source,
    )


def provider_name(role: Role, environ: Mapping[str, str], connection: Connection) -> str:
    """Name of the preset of an endpoint for which no key is set, "" for none."""
    if connection.provider is not None:
        return connection.provider
    source, address = _address(role, as_environment(environ), connection)
    return provider_at(normalise_base_url(address or OPENAI_URL, source)).name


def _check_named(given: Connection, variables: Environment, own: str | None, url: str) -> None:
    """Raise `ConfigError` for a variable that spiral.toml names and that is not set, or must not be sent.

    Args:
        own: The variable of the provider's key, where its own address gets it.
    """
    for name in filter(None, (given.api_key_env, *given.credentials)):
        if not variables.get(name):
            raise ConfigError(f"names the variable {name}, which is not set; set it in the environment or in .env")
        if name != own and not variables.trusted and not variables.may_send(name):
            raise ConfigError(
                f"names the variable {name} of the environment, but a file sends no secret from elsewhere. If "
                f"{shown_url(url)} may have it, add --trust-env, or paste this line into .env, followed by its value: "
                f"{name}="
            )


def _address(role: Role, variables: Environment, given: Connection) -> tuple[str, str]:
    """Where the base URL is set, and the URL; two empty texts for none."""
    provider = given.preset
    if given.base_url:
        return "base_url in spiral.toml", given.base_url
    names = [env_name(role, "BASE_URL"), "OPENAI_BASE_URL"]
    if provider is not None:
        if provider.base_url:
            return f"provider {provider.name} in spiral.toml", provider.base_url
        names = [provider.url_variable] if provider.url_variable else []
    source = next((name for name in names if variables.get(name)), None)
    if source is None and provider is not None:
        raise ConfigError(
            f"provider {provider.name} has no address of its own: paste this line with yours into the table: "
            f'base_url = "{provider.example_url}"'
        )
    return (source, variables[source]) if source else ("", "")


def _key_variable(role: Role, variables: Environment, given: Connection, provider: Provider, url: str) -> str | None:
    """The variable that holds the key, None for none."""
    if given.api_key_env:
        return given.api_key_env
    names = [env_name(role, "API_KEY"), provider.key_variable or ""]
    if given.provider:
        names.reverse()
    elif given.credentials and given.base_url:
        return None
    elif not is_loopback(url):
        names += ["OPENAI_API_KEY", "" if url else "OPENROUTER_API_KEY"]
    return next((name for name in names if variables.get(name)), None)
