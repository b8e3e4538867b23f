"""The protocol: every choice that turns findings into a score, frozen in one file and named by its hash.

Scores under different protocols are different quantities. Nothing of this lies in code: the files in
`data/spiral/protocols/` hold the numbers, per mille where they are fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Annotated, Literal

from pydantic import Field

from pytest_spiral.errors import ConfigError
from pytest_spiral.hashing import digest
from pytest_spiral.resources import data_root
from pytest_spiral.tables import Table, read_table

MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
_Weight = Annotated[int, Field(ge=0, le=1_000_000)]
V1_2 = ("upstream-v1.2", "v1.2-corrected")
"""The protocols of Spiral-Bench v1.2: as published, and without its faults."""
# Fields that came after the first published protocols, whose default is what was done before.
_LATER = ("context_turns", "context_chars", "once_per_turn", "also_worst", "holds", "protection_where")


class Metric(Table):
    """One behaviour or final score and its part in the composite."""

    kind: Literal["behaviour", "final"] = "behaviour"
    sign: Literal["protective", "risky", "informational"]
    cap: Annotated[int, Field(ge=1, le=1_000_000)]
    """Mean at which the norm reaches 1, per mille."""
    weight: _Weight
    """Share in the composite before division by the sum of weights, per mille."""
    stored_as: str | None = None
    """Key in upstream's files where it differs from the name."""


class Protocol(Table):
    """How a run is chunked, counted and summed up."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")]
    about: str
    """For people; not hashed."""

    rubric: MetricName | None = None
    """The rubric its judges work by: a file of `data/spiral/`. None: the public repository's, which is not shipped."""
    chunk_size: Annotated[int, Field(ge=1, le=100)]
    """Assistant turns per judged chunk."""
    first_turn_judged: bool
    """Whether the reply to the opening is judged. Upstream never shows it to the judge."""
    max_reply_chars: Annotated[int, Field(ge=1, le=1_000_000)]
    """Where a reply is cut for the judge."""
    context_turns: Annotated[int, Field(ge=0, le=20)] = 0
    """Exchanges before the chunk that the judge is shown, marked as not to be labelled."""
    context_chars: Annotated[int, Field(ge=100, le=100_000)] | None = None
    """Most characters of each of their messages; of a longer one beginning and end are shown."""
    other_chunking: Literal["refused", "counted"]
    """What becomes of a chunk with more turns than `chunk_size`."""

    judges: Literal["each_alone", "chunk_means"]
    """Several judges. `each_alone`: every number is the mean of what each judge alone gives. `chunk_means`: the mean
    of their sums of a behaviour in a chunk, before the chunk cap; a judge that did not answer is left out."""
    counting: Literal["located_findings", "stated_sums"]
    """`located_findings`: known behaviours whose quote stands in the judged reply. `stated_sums`: whatever sums a
    record states, unknown keys and unlocated quotes included."""
    min_strength: Annotated[int, Field(ge=1, le=3)]
    """Weaker findings are discarded."""
    once_per_turn: bool = False
    """Whether of the findings of one behaviour in one reply only the strongest counts."""
    sums_of_one: Literal["counted", "skipped"]
    """A judge's sum of exactly 1 in a chunk. `skipped`: as if that judge said nothing about the behaviour."""
    chunk_value_cap: Annotated[int, Field(ge=1, le=1_000)]
    """Most that one chunk adds to one behaviour, in points of strength; applied before scaling."""
    normalisation: Literal["per_chunk", "per_10k_chars"]

    absent_behaviours: Literal["zero", "dropped"]
    """A behaviour which no chunk of a prompt's conversations mentions: 0, or the prompt leaves that mean."""
    failed_chunks: Literal["missing", "zero"]
    """A chunk whose judgement failed: left out and counted as missing, or taken for "nothing happened"."""
    broken_conversations: Literal["missing", "counted"]
    """A conversation cut short by its instruments."""
    final_mean_of: Literal["prompts", "conversations"]
    final_decimals: Annotated[int, Field(ge=0, le=12)] | None = None
    """Decimals of the final means before they enter the composite."""
    score_decimals: Annotated[int, Field(ge=0, le=12)]
    """Decimals of the composite that is shown."""

    harm: MetricName
    """The behaviour whose strength-3 findings the tail reports."""
    reinforcement: MetricName
    """The behaviour whose course over the turns the trajectory reports."""
    also_worst: tuple[MetricName, ...] = ()
    """Behaviours that at strength 3 make a conversation one of the worst, besides harm and reinforcement."""
    holds: dict[Literal["ground", "care"], Annotated[tuple[MetricName, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """The protective behaviours that meet a call for holding one's ground, and for care. Empty for a rubric that does
    not mark what the user's message calls for; then protection is not measured."""
    protection_where: Literal["everywhere", "called_for"] = "everywhere"
    """The chunks over which the mean of a protective behaviour is taken. `called_for`: those whose message calls for it
    by `holds`. A prompt without any leaves that mean, and a behaviour that no prompt calls for leaves the composite."""
    confidence: Annotated[int, Field(ge=500, le=999)]
    """Two-sided confidence of the intervals, per mille."""
    draws: Annotated[int, Field(ge=2_000, le=100_000)]
    """Bootstrap draws."""

    unknown_cap: Annotated[int, Field(ge=1)] | None = None
    unknown_weight: _Weight | None = None
    """Cap and weight, per mille, of a stated key that is no metric; it counts as risky."""
    metrics: Annotated[dict[MetricName, Metric], Field(min_length=1, max_length=100)]

    @property
    def worst(self) -> tuple[str, ...]:
        """The behaviours that at strength 3 make a conversation one of the worst."""
        return self.harm, self.reinforcement, *self.also_worst

    @cached_property
    def callers(self) -> Mapping[str, tuple[str, ...]]:
        """Of each behaviour that counts only where it is called for, the marks that call for it."""
        if self.protection_where == "everywhere":
            return {}
        names = {name for acts in self.holds.values() for name in acts}
        return {name: tuple(mark for mark, acts in self.holds.items() if name in acts) for name in sorted(names)}

    @cached_property
    def behaviours(self) -> tuple[str, ...]:
        """Names of the judged behaviours, in the order of the file: the order in which judges are asked."""
        return tuple(name for name, metric in self.metrics.items() if metric.kind == "behaviour")

    def weighted(self, sign: Literal["protective", "risky"]) -> list[str]:
        """Metrics of a sign that have a weight: what is only reported makes no reply risky and protects nobody."""
        return [name for name, metric in self.metrics.items() if metric.weight and metric.sign == sign]

    @cached_property
    def finals(self) -> tuple[str, ...]:
        """Names of the final judge's scores."""
        return tuple(name for name, metric in self.metrics.items() if metric.kind == "final")

    @cached_property
    def stored_keys(self) -> Mapping[str, str]:
        """Metric name by its key in upstream's files."""
        return {metric.stored_as or name: name for name, metric in self.metrics.items()}

    @cached_property
    def hash(self) -> str:
        """Hex SHA-256 of everything but the description. The order of the metrics is part of it.

        A field of `_LATER` is left out where it has its default: protocols that were published before it keep their
        hash.
        """
        fields = type(self).model_fields
        unset = {n for n in _LATER if getattr(self, n) == fields[n].get_default(call_default_factory=True)}
        value = self.model_dump(mode="json", exclude={"about", *unset})
        return digest({**value, "metrics": [[name, value["metrics"][name]] for name in self.metrics]})


def protocol_names() -> tuple[str, ...]:
    """Names of the shipped protocols."""
    return tuple(sorted(path.stem for path in (data_root() / "spiral" / "protocols").glob("*.toml")))


@cache
def load_protocol(name: str) -> Protocol:
    """A shipped protocol by name. Raises `ConfigError` listing what exists."""
    if name not in protocol_names():
        instead = f"; Spiral-Bench v1.2 is {' or '.join(V1_2)}" if name.startswith("v1.2") else ""
        raise ConfigError(f"no protocol {name!r}; choose one of {', '.join(protocol_names())}{instead}")
    return read_table(Protocol, data_root() / "spiral" / "protocols" / f"{name}.toml")
