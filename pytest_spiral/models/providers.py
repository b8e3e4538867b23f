"""What is particular to each provider of models: address, key, headers, error messages. Read from `data/providers`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Annotated
from urllib.parse import quote, urlsplit

from pydantic import Field, StringConstraints

from pytest_spiral.resources import data_root
from pytest_spiral.status import ReasonCode
from pytest_spiral.tables import Table, Text, read_table

_Status = Annotated[int, Field(ge=300, le=599)]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ErrorRule(Table):
    """What an error answer means where the provider says it in a way of its own. The first rule that fits decides.

    Attributes:
        code: Lower-case texts, one of which must be in the error's codes; none fits every code.
        contains: Lower-case texts, one of which must be in the error's codes or message; none fits every text.
    """

    status: Annotated[tuple[_Status, ...], Field(min_length=1)]
    # Only the shared rules have it, so it is no part of what identifies a preset.
    code: tuple[Text, ...] = Field(default=(), exclude=True)
    contains: tuple[Text, ...] = ()
    means: ReasonCode
    remedy: str = ""

    def fits(self, status: int, code: str, message: str) -> bool:
        """Whether this is what the answer says, in lower case."""
        text = f"{code} {message}"
        is_code = not self.code or any(mark in code for mark in self.code)
        return status in self.status and is_code and (not self.contains or any(mark in text for mark in self.contains))


class Defaults(Table):
    """Settings of a provider's models that spiral.toml does not give.

    Attributes:
        free: The provider charges nothing, so a model without a price costs nothing.
    """

    concurrency: Annotated[int, Field(ge=1)] | None = None
    timeout_seconds: _Seconds | None = None
    total_timeout_seconds: _Seconds | None = None
    free: bool = False


class Provider(Table):
    """One preset.

    Attributes:
        base_url: None where each customer has an address of their own.
        url_variable: Environment variable that holds such an address.
        path: What follows the host where an address names the host only.
        addresses: Patterns of host and path by which the provider is recognised where nobody names it.
        key_variable: Environment variable that holds the key, None for servers that need none.
        key_header: Header that carries the key, after `key_prefix`.
        chat_path: Where completions are asked for; `{model}` stands for the model's name.
        models_path: Where the models are listed, "" where no such list can be had with the key.
        models_prefix: What the list puts before each name.
        lists_models: Whether that list holds the names that requests use.
        emulated: Whether the tests run against an emulation of it.
    """

    name: str = ""
    title: Text
    documentation: tuple[Text, ...]
    base_url: Text | None = None
    url_variable: _Variable | None = None
    path: str = "/v1"
    addresses: tuple[Text, ...] = ()
    key_variable: _Variable | None = None
    key_header: Text = "Authorization"
    key_prefix: str = "Bearer "
    chat_path: Text = "/chat/completions"
    models_path: str = "/models"
    models_prefix: str = ""
    lists_models: bool = True
    headers: Mapping[str, str] = Field(default_factory=dict)
    query: Mapping[str, str] = Field(default_factory=dict)
    defaults: Defaults = Defaults()
    errors: tuple[ErrorRule, ...] = ()
    emulated: bool = False
    example_url: str = ""
    example_model: str = "some-model"
    before: str = ""
    example_arguments: str = ""
    notes: tuple[Text, ...] = ()

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) of the preset."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def path_of(self, model: str) -> str:
        """Where completions of a model are asked for, below the base URL."""
        return self.chat_path.replace("{model}", quote(model, safe=""))

    def rule(self, status: int, code: str, message: str) -> ErrorRule | None:
        """The provider's rule for an error answer with these lower-case codes and message."""
        return next((rule for rule in self.errors if rule.fits(status, code, message)), None)


GENERIC = Provider(title="OpenAI-compatible endpoint", documentation=())


@cache
def providers() -> Mapping[str, Provider]:
    """All presets by name."""
    files = sorted((data_root() / "providers").glob("*.toml"))
    return {path.stem: read_table(Provider, path).model_copy(update={"name": path.stem}) for path in files}


class _ErrorRules(Table):
    errors: tuple[ErrorRule, ...]


@cache
def error_rules() -> tuple[ErrorRule, ...]:
    """What errors mean where the provider has no rule of its own."""
    return read_table(_ErrorRules, data_root() / "errors.toml").errors


def provider_at(url: str) -> Provider:
    """The preset of the provider that an address belongs to, `GENERIC` for none."""
    parts = urlsplit(url)
    where = f"{parts.hostname or ''}{parts.path}/"
    known = (each for each in providers().values() if any(fnmatchcase(where, glob) for glob in each.addresses))
    return next(known, GENERIC)
