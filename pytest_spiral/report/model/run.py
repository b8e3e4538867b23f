"""The run behind a report: its configuration, what it used, and the hashes that identify its instruments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from pytest_spiral.chat import Role
from pytest_spiral.report.model.base import Hash, OpenRecord, Rate, Record
from pytest_spiral.report.model.gate import Policy, Verdict
from pytest_spiral.tables import Count


class LimitChange(Record):
    """A change of the limit on requests in flight at one endpoint."""

    at: str
    """Time, ISO 8601 in UTC."""
    most: Annotated[int, Field(ge=1)]
    """Requests in flight allowed from then on."""
    reason: Literal["start", "429"]


class RequestLimit(Record):
    """How many requests in flight one endpoint was found to bear."""

    endpoint: str
    lowest: Annotated[int, Field(ge=1)]
    last: Annotated[int, Field(ge=1)]
    history: tuple[LimitChange, ...]


class ModelConfig(OpenRecord):
    """How one model was asked in one role."""

    role: Role
    spec: str
    """The model as named on the command line."""
    kind: Literal["dry", "local", "remote", "replay"]
    model_id: str
    """The model as named in requests."""
    floor: bool = False
    """Whether it does nothing and is no candidate."""
    endpoint_name: str = ""
    """What stands for its endpoint where runs are compared: the declared name, the provider or `custom`."""
    params: Mapping[str, Mapping[str, JsonValue]] = {}
    """Request parameters by suite, as configured."""
    negotiated: Mapping[str, Mapping[str, JsonValue]] = {}
    """Request parameters by suite as they were sent, where the endpoint wanted others."""


class RunConfig(OpenRecord):
    """The resolved settings of a run, one key per option; further options follow as plain JSON values."""

    model: tuple[str, ...] = ()
    """Evaluated models as named on the command line; empty for imported results."""
    models: tuple[ModelConfig, ...] = ()
    gate_recipe: str | None = None
    """Name of the recipe whose gates were used beside those of `gate`, null for none."""
    gate_policy: Policy = "bound"
    baseline: str | None = None
    """The run that gates and items are compared with, as named on the command line."""
    report_dir: str = "reports"
    num_turns: int | None = None
    """Replies of the evaluated model per conversation."""
    shard: str | None = None
    """`K/N` for part of a run, null for a whole one."""
    spiral_upstream: str | None = None
    """Directory of a clone of the public repository, null where its content was not used."""
    tempaffect_scenarios: str | None = None
    """File of custom scenarios, null for the bundled ones."""


class Preflight(Record):
    """What was learned about one model before the first item."""

    role: Role
    model: str
    """The model as named on the command line."""
    changes: tuple[str, ...] = ()
    """What is sent otherwise than configured, because the endpoint wants it."""
    notes: tuple[str, ...] = ()
    """What else is to be known about its replies."""
    completion_tokens: Count = 0
    """Tokens of the longest reply."""
    reasoning_tokens: Count = 0
    """Most tokens of reasoning in a reply, as far as the endpoint counts them."""


class EarlierVerdict(Record):
    """How other gates had decided the same run."""

    verdict: Verdict
    gates: tuple[str, ...]
    policy: Policy


class Run(Record):
    """What was run, when and how."""

    id: str
    started_at: str
    """Time, ISO 8601 in UTC; empty for imported results."""
    finished_at: str
    """Time, ISO 8601 in UTC; empty for imported results."""
    complete: bool
    """Whether the run came to its end; false after an interruption."""
    argv: tuple[str, ...]
    """The command line, keys redacted."""
    config: RunConfig
    versions: Mapping[str, str]
    seed: int
    limits: tuple[RequestLimit, ...] = ()
    served_models: Mapping[str, tuple[str, ...]] = {}
    """Names under which endpoints served each evaluated model."""
    enforcement_verified: Mapping[str, bool] = {}
    """Whether the endpoint of an evaluated model was seen to enforce JSON schemas, where that was tried."""
    preflight: tuple[Preflight, ...] = ()
    """What was learned about each model that is reached over the network."""
    decided_before: tuple[EarlierVerdict, ...] = ()
    """What other gates said of this run before; those of the report took their place."""
    notes: tuple[str, ...] = ()
    """What is to be known of the run as a whole."""


class TempAffectIntegrity(Record):
    """What identifies the scenarios and their scoring."""

    suite_hash: Hash
    scorer_fingerprint: Hash
    """Hash of the scorer's results on fixed outputs."""
    preflight_faults: tuple[str, ...]
    components: Mapping[str, Hash]
    system_prompt_hash: Hash | None = None
    """Of the user's system prompt, null for none."""


class SpiralIntegrity(Record):
    """What identifies the conversations and their judging."""

    protocol: str
    protocol_hash: Hash
    prompts_hash: Hash
    persona_hash: Hash
    rubric_hash: Hash | None
    """Null where it is not recorded."""
    system_prompt_hash: Hash | None
    twins_hash: Hash | None = None
    instruments_hash: Hash | None = None
    files: Mapping[str, Hash] = {}
    """SHA-256 by name of the files of a clone of the public repository that the run used."""


class Integrity(Record):
    """Hashes of each suite; null where it did not run."""

    tempaffect: TempAffectIntegrity | None = None
    spiral: SpiralIntegrity | None = None


class RoleUsage(Record):
    """Requests and tokens of one role."""

    requests: Count
    prompt_tokens: Count
    cached_tokens: Count
    """Prompt tokens that the endpoint read from its cache."""
    completion_tokens: Count
    reasoning_tokens: Count = 0
    """Completion tokens that the endpoint counted as reasoning."""
    with_reasoning: Count = 0
    """Replies that came with reasoning, which is neither judged nor scored."""
    cost_usd: float | None
    """Null where a price is unknown."""
    retries: Count
    failures: Count
    cached_share: Rate | None
    """Cached tokens per prompt token; null where none were counted."""


class Usage(Record):
    """Requests, tokens and cost over the whole life of a run, interruptions included."""

    by_role: Mapping[str, RoleUsage] = {}
    cost_usd: float | None = 0.0
    """Null where a price is unknown."""
    missing_prices: tuple[str, ...] = ()
    unchecked_prices: tuple[str, ...] = ()
    """Models whose price nobody has compared with the provider's price list."""
    max_cost_usd: float | None = None
    not_run_for_cost: Count = 0
    """Items and conversations left out to keep the cost limit."""
