"""Request parameters and prices of models, from the shipped `models.toml` and a project's `spiral.toml`.

No model name and no number of a model is in code: a new model is a new table in a file.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, model_validator

from pytest_spiral.chat import TOKEN_LIMITS, Role, TokenUsage
from pytest_spiral.errors import ConfigError, DataError, fault_words
from pytest_spiral.models.connection import Connection
from pytest_spiral.resources import data_root, line_in_toml, read_toml
from pytest_spiral.settings import SuiteName
from pytest_spiral.tables import Table, Text, read_table

# The tables of spiral.toml that are read here. Others belong to other modules.
_SECTIONS = ("model", "default")
_Unset = Literal["unset"]
_Tokens = Annotated[int, Field(ge=1, strict=True)]
_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

PARAMETERS = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "reasoning_effort",
)
"""Request parameters that a table names without `extra_body`, in the order they are sent and reported."""
# Set by the request itself. From a file they would change what is measured without the report showing it.
_RESERVED = frozenset({"model", "messages", "stream", "stream_options", "response_format", "n", "tools", "functions"})
# What endpoints take as instructions beside the messages, in any spelling: a wrapping that no report would name.
_WRAPPING = frozenset({"system", "systemprompt", "systeminstruction", "instructions", "prompt"})


Patterns = str | Annotated[tuple[str, ...], Field(min_length=1)]


def matches(model_id: str, patterns: Patterns) -> bool:
    """Whether a model's name fits one of the patterns, in whatever case."""
    each = (patterns,) if isinstance(patterns, str) else patterns
    return any(fnmatchcase(model_id.lower(), pattern.lower()) for pattern in each)


class _Strict(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)


class Price(_Strict):
    """USD per million tokens.

    Attributes:
        cached_input: None means the price of other input.
        as_of: When it was listed: a day or month, such as 2026-10-12.
        source: The list.
        unchecked: Nobody has compared it with the provider's price list; results computed from it say so.
    """

    input: _Dollars
    output: _Dollars
    cached_input: _Dollars | None = None
    unchecked: bool = False
    as_of: Annotated[str, StringConstraints(pattern=r"^(\d{4}-\d\d(-\d\d)?)?$")] = ""
    source: str = ""

    def cost(self, usage: TokenUsage) -> float:
        """USD of one call or of a sum of calls.

        >>> Price(input=2.0, cached_input=0.5, output=8.0).cost(TokenUsage(1_000_000, 500_000, 1_000_000))
        9.25
        """
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = usage.prompt_tokens - usage.cached_tokens
        return (fresh * self.input + usage.cached_tokens * cached + usage.completion_tokens * self.output) / 1_000_000


class _Entry(Connection):
    """A [[default]] table."""

    role: Role | None = None
    suite: SuiteName | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | _Unset | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | _Unset | None = None
    max_tokens: _Tokens | _Unset | None = None
    max_completion_tokens: _Tokens | _Unset | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | _Unset | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | _Unset | None = None
    seed: Annotated[int, Field(strict=True)] | _Unset | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "unset"] | None = None
    extra_body: dict[str, JsonValue] | None = None
    price: Price | None = None
    context_length: _Tokens | None = None
    concurrency: _Tokens | None = None
    longest_string: _Tokens | None = None
    patience: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    most_tokens: _Tokens | None = None
    reasoning_tokens: Annotated[int, Field(ge=0, strict=True)] | None = None
    fixed_limit: bool | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if None not in (limits := (self.max_tokens, self.max_completion_tokens)) and "unset" not in limits:
            raise ValueError("max_tokens and max_completion_tokens are two names of one limit; give one of them")
        if self.suite is not None and (given := self.model_fields_set & set(Connection.model_fields)):
            raise ValueError(f"{min(given)} is the same for all suites; put it into a table without suite")
        for key in self.extra_body or {}:
            if key in _RESERVED:
                raise ValueError(f"extra_body.{key} cannot be set here: every request sets it itself")
            if key.replace("_", "").lower() in _WRAPPING:
                raise ValueError(
                    f"extra_body.{key} cannot be set here: the report would not name it; use --system-prompt FILE, "
                    "which wraps the evaluated model"
                )
            if key in PARAMETERS:
                raise ValueError(f"extra_body.{key}: write {key} without extra_body")
        return self

    def applies(self, role: Role, suite: SuiteName | None, model_id: str) -> bool:
        """Whether the table is about this use of a model."""
        return self.role in (None, role) and self.suite in (None, suite)


class _ModelEntry(_Entry):
    """A [[model]] table."""

    match: Patterns

    def applies(self, role: Role, suite: SuiteName | None, model_id: str) -> bool:
        return matches(model_id, self.match) and super().applies(role, suite, model_id)


class LocalModel(_Strict):
    """A model that can be fetched and run on this machine: a GGUF file inside a wheel.

    Attributes:
        member: Path of the file inside the wheel.
        context: Tokens of messages and reply together.
        slots: Requests that are answered at once, each by one thread; fewer where the machine has fewer cores.
    """

    package: str
    version: str
    wheel_sha256: _Hex
    member: str
    member_sha256: _Hex
    member_bytes: _Tokens
    context: _Tokens
    slots: _Tokens
    licence: str


class _UserFile(_Strict):
    model: tuple[_ModelEntry, ...] = ()
    default: tuple[_Entry, ...] = ()


class _ShippedFile(_UserFile):
    local: dict[str, LocalModel] = Field(default_factory=dict)


class Freedom(_Strict):
    """Which request parameters may differ from the configured ones, so that a model can be used at all.

    Attributes:
        chosen: Those that the project's file sets: they are sent as they are, or not at all.
        fixed_limit: Whether a reply that reaches the token limit is the model's failure. Otherwise the limit is ours:
            the model is asked again with a higher one.
        most_tokens: Up to which the limit is raised.
    """

    chosen: tuple[str, ...] = ()
    fixed_limit: bool = False
    most_tokens: int = 1


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """How one model is asked in one role.

    Attributes:
        request: Keys sent with every request, for `ChatRequest.params`. Treat as read-only.
        price: None where unknown; then no cost can be stated.
        concurrency: Most requests in flight to this model, None for no limit of its own.
        longest_string: Most characters of a string in enforced JSON, for models that do not stop by themselves.
        patience: Seconds to wait for an endpoint that answers nothing, None for what --patience says.
        reasoning_tokens: Of a typical reply, for plans.
        connection: Where and with what the model is reached, as far as the project's file says so.
        place: The table of that file that says so, as FILE:LINE.
        freedom: What may be changed about `request`.
    """

    request: Mapping[str, Any]
    price: Price | None = None
    concurrency: int | None = None
    longest_string: int | None = None
    patience: float | None = None
    reasoning_tokens: int = 0
    connection: Connection = field(default_factory=Connection)
    place: str = ""
    freedom: Freedom = field(default_factory=Freedom)


def resolve_parameters(
    model_id: str, role: Role, user_toml: Path | None = None, *, suite: SuiteName | None = None
) -> ModelParameters:
    """Parameters of `model_id` in `role`, merged key by key from the project's file and the shipped one.

    Args:
        user_toml: The project's spiral.toml, None if it has none.
        suite: For roles that are asked differently in the two suites.

    Raises:
        ConfigError: The project's file is wrong; the message names file and key.
    """
    files: list[_UserFile] = [_shipped()]
    if user_toml is not None:
        if not user_toml.exists():
            raise ConfigError(f"{user_toml}: no such file; check the path")
        files.insert(0, _user(user_toml, user_toml.stat().st_mtime_ns))
    tables = [(file.model, file) for file in files] + [(file.default, file) for file in files]
    # For every key the first entry that has it.
    applying = [(entry, file) for table, file in tables for entry in table if entry.applies(role, suite, model_id)]

    found, chosen = _merged([(entry, len(files) == 2 and file is files[0]) for entry, file in applying])
    request = {key: found[key] for key in PARAMETERS if found.get(key, "unset") != "unset"}
    extra = copy.deepcopy(found.get("extra_body", {}))
    request.update({key: value for key, value in extra.items() if value != "unset"})
    connection = Connection.model_validate({key: found[key] for key in Connection.model_fields if key in found})
    others = ("concurrency", "longest_string", "patience", "reasoning_tokens")
    return ModelParameters(
        request=request,
        price=next((layer.price for layer, _ in applying if layer.price is not None), None),
        connection=connection,
        place=_place(files[0], user_toml, [entry for entry, _ in applying]) if connection.is_given else "",
        freedom=Freedom(
            chosen=tuple(sorted(chosen & request.keys())),
            fixed_limit=found.get("fixed_limit", not chosen.isdisjoint({*TOKEN_LIMITS} & request.keys())),
            most_tokens=found["most_tokens"],
        ),
        **{key: found[key] for key in others if key in found},
    )


def _merged(layers: Sequence[tuple[_Entry, bool]]) -> tuple[dict[str, Any], set[str]]:
    """What the tables say together, and the keys from the project's. layers: whether each table is its own."""
    found: dict[str, Any] = {}
    chosen: set[str] = set()
    reached: set[type[_Entry]] = set()
    for layer, is_own in layers:
        given = layer.model_dump(exclude_none=True, exclude={"match", "role", "suite", "price"})
        if layer.is_given and type(layer) in reached:
            # One address and another one's key would not fit together.
            given = {key: value for key, value in given.items() if key not in Connection.model_fields}
        elif layer.is_given:
            reached.add(type(layer))
        if any(key in found for key in TOKEN_LIMITS):
            given = {key: value for key, value in given.items() if key not in TOKEN_LIMITS}
        if is_own:
            chosen |= {*given, *given.get("extra_body", ())} - found.keys()
        for key, value in given.items():
            if key in ("extra_body", "headers", "query"):
                found[key] = {**value, **found.get(key, {})}
            else:
                found.setdefault(key, value)
    return found, chosen


class _KnownFields(Table):
    fields: tuple[Text, ...]
    tables: Mapping[str, tuple[Text, ...]]


def unknown_fields(request: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Fields of a request's parameters that may change more than how tokens are drawn, as `extra_body.NAME`."""
    known = read_table(_KnownFields, data_root() / "known_fields.toml")
    fields, tables = {*PARAMETERS, *known.fields}, known.tables
    found = []
    for name, value in request.items():
        if isinstance(value, Mapping) and name in tables:
            found += [f"{name}.{key}" for key in value if key not in tables[name]]
        elif name not in fields:
            found.append(name)
    return tuple(f"extra_body.{name}" for name in sorted(found))


def local_models() -> Mapping[str, LocalModel]:
    """The models that `local/NAME` knows."""
    return _shipped().local


def _place(user: _UserFile, path: Path | None, layers: Sequence[_Entry]) -> str:
    """The first of these tables that says where a model is reached, as FILE:LINE."""
    assert path is not None
    for section, tables in (("model", user.model), ("default", user.default)):
        for index, table in enumerate(tables):
            if table.is_given and any(table is layer for layer in layers):
                return f"{path}:{line_in_toml(path, (section, index))}"
    return str(path)


@cache
def _shipped() -> _ShippedFile:
    return _ShippedFile.model_validate(read_toml(data_root() / "models.toml"))


@cache
def _user(path: Path, _changed: int) -> _UserFile:
    try:
        data = read_toml(path)
    except DataError as error:
        raise ConfigError(str(error)) from None
    for name, value in data.items():
        table = name.removesuffix("s")
        if table in _SECTIONS and (name != table or isinstance(value, dict)):
            line = line_in_toml(path, (name,))
            brackets = f"write [[{table}]] with two brackets; there may be several"
            says = brackets if name == table else f"unknown table; write [[{table}]]"
            raise ConfigError(f"{path}:{line}: {name}: {says}")
    try:
        return _UserFile.model_validate({key: data[key] for key in _SECTIONS if key in data})
    except ValidationError as problem:
        # Only the most telling one: a misspelt key explains the missing one, and a union reports every alternative.
        found = problem.errors(include_url=False)
        first = min(found, key=lambda item: item["type"] != "extra_forbidden")
        says = fault_words(first)
        if first["type"] == "extra_forbidden":
            kind = Price if "price" in first["loc"] else _ModelEntry if "model" in first["loc"] else _Entry
            says = f"unknown key; known are {', '.join(sorted(kind.model_fields))}"
        line, where = line_in_toml(path, first["loc"]), _where(first["loc"], data)
        raise ConfigError(f"{path}:{line}: {where}: {says}") from None


def _where(location: tuple[int | str, ...], data: Any) -> str:
    """`model[2].price.input`, counted from 0, without the names pydantic gives to alternatives of a type."""
    out = ""
    for step in location:
        if isinstance(step, int):
            out += f"[{step}]"
            data = data[step] if isinstance(data, list) and step < len(data) else None
        elif isinstance(data, dict) and (step in data or not out):
            out += f".{step}" if out else step
            data = data.get(step)
        elif isinstance(data, dict):
            out += f".{step}"
            data = None
    return out
