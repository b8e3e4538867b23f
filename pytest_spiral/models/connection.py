"""The keys of a spiral.toml table that say where a model is reached and what each request carries.

Keys and tokens are never in the file: it names the environment variables that hold them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.endpoint import ATTEMPT_SECONDS, CALL_SECONDS, Secret, normalise_base_url
from pytest_spiral.models.providers import Defaults, Provider, providers

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
_Line = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$", max_length=1000)]
_Alias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)]
# Written by the client itself.
_RESERVED = frozenset(
    ("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding")
)
# Words in the names of headers and parameters that carry credentials.
_CREDENTIAL = re.compile(r"(?:^|[-_])(?:api-?|access-?)?(?:auth|authorization|cookie|key|secret|sig|token)(?:$|[-_])")


class FromVariable(BaseModel):
    """A value that is in an environment variable, after a fixed prefix such as "Bearer "."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: _Variable
    prefix: _Line = ""


HeaderValue = _Line | FromVariable


class Connection(BaseModel):
    """Where a model is reached.

    Attributes:
        api_key_env: The variable that holds the key.
        endpoint: A name for the endpoint in the run's identity, where two of them serve different models by one name.
        timeout_seconds: For one HTTP request.
        total_timeout_seconds: For all requests of one call; waits between them are not counted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: str | None = None
    base_url: str | None = Field(default=None, repr=False)
    api_key_env: _Variable | None = None
    headers: Mapping[_HeaderName, HeaderValue] | None = None
    query: Mapping[Annotated[str, Field(min_length=1)], HeaderValue] | None = None
    endpoint: _Alias | None = None
    timeout_seconds: Seconds | None = None
    total_timeout_seconds: Seconds | None = None

    @field_validator("provider")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in providers():
            raise ValueError(f"no such provider; there are {', '.join(providers())}")
        return name

    @field_validator("headers", "query")
    @classmethod
    def _carries_no_secret(cls, values: Mapping[str, HeaderValue]) -> Mapping[str, HeaderValue]:
        for name, value in values.items():
            if name.lower() in _RESERVED:
                raise ValueError(f"{name} is set by the client; remove it")
            if isinstance(value, str) and (_CREDENTIAL.search(name.lower()) or Secret().redact(value) != value):
                # Not echoed: the value may be the secret itself.
                raise ValueError(
                    f'{name} carries a credential, which must not be in a file; write {name} = {{ env = "NAME" }} and '
                    "set the environment variable NAME"
                )
        return values

    @model_validator(mode="after")
    def _consistent_connection(self) -> Self:
        if self.base_url is not None:
            try:
                normalise_base_url(self.base_url)
            except ConfigError as error:
                raise ValueError(str(error)) from None
        if (one := self.timeout_seconds) and (total := self.total_timeout_seconds) and total < one:
            raise ValueError("total_timeout_seconds is less than timeout_seconds, the time for one request")
        return self

    @property
    def preset(self) -> Provider | None:
        """The provider that is named, None where none is."""
        return None if self.provider is None else providers()[self.provider]

    @property
    def credentials(self) -> tuple[str, ...]:
        """Variables whose values go into headers and the query."""
        values = [*(self.headers or {}).values(), *(self.query or {}).values()]
        return tuple(value.env for value in values if isinstance(value, FromVariable))

    def timeouts(self, defaults: Defaults) -> dict[str, float]:
        """The deadlines of an `Endpoint`. Without one for a call it has time for one request at least."""
        one = self.timeout_seconds or defaults.timeout_seconds or ATTEMPT_SECONDS
        total = self.total_timeout_seconds or max(defaults.total_timeout_seconds or CALL_SECONDS, one)
        return {"attempt_timeout": one, "timeout": total}

    @property
    def is_given(self) -> bool:
        """Whether the file says anything of where and with what the model is reached."""
        return any((self.provider, self.base_url, self.api_key_env, self.headers, self.query))
