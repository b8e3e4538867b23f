"""The scheme of the source document beside a run's own protocol: the same judgements per 10,000 characters. Pure.

Its score depends on length: with the same findings in replies k times as long, the mean of every behaviour is 1 / k of
what it was, and final scores stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from pytest_spiral.report.model.spiral import SchemeScore
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.counted import strongest_of
from pytest_spiral.spiral.counting import MissingAs, count_conversations
from pytest_spiral.spiral.panel import Panel
from pytest_spiral.spiral.protocol import MetricName, Protocol, load_protocol
from pytest_spiral.spiral.records import ChunkJudgement, Conversation
from pytest_spiral.tables import Table, Text, read_table

PER_10K = "per_10k"
"""Key of the scheme in `by_protocol`; its gate is on `per_10k.score`."""


class Scheme(Table):
    """How judgements under one protocol are counted under another. made_of: of each behaviour those of the former."""

    name: Text
    of: Text
    protocol: Text
    made_of: dict[MetricName, tuple[MetricName, ...]]

    @property
    def target(self) -> Protocol:
        """The protocol of the scheme."""
        return load_protocol(self.protocol)

    def mapped(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """The conversations with judgements of the behaviours of the scheme's protocol."""
        names = {part: name for name, parts in self.made_of.items() for part in parts}
        return [
            replace(
                item,
                judgements=tuple(_mapped(one, names, self.target.behaviours) for one in item.judgements),
                abandoned=(),  # They enter no mean.
            )
            for item in conversations
        ]


@cache
def scheme_beside(protocol: str) -> Scheme | None:
    """The scheme to compute beside a protocol; None where there is none."""
    scheme = read_table(Scheme, data_root() / "spiral" / "per_10k.toml")
    return scheme if scheme.of == protocol else None


def scheme_score(
    conversations: Sequence[Conversation],
    scheme: Scheme,
    seed: int | str,
    confidence: float | None = None,
    missing_as: MissingAs = "ignored",
) -> SchemeScore:
    """The score under a scheme. The arguments are those of `aggregate.score_conversations`."""
    protocol = scheme.target
    panel = Panel.of(count_conversations(scheme.mapped(conversations), protocol, missing_as))
    confidence = protocol.confidence / 1000 if confidence is None else confidence
    resampled = panel.resampled(seed, confidence)
    estimate = resampled.bounded(panel.composite, confidence)
    return SchemeScore(
        name=scheme.name,
        protocol=protocol.name,
        protocol_hash=protocol.hash,
        score=estimate.value,
        ci_low=estimate.low,
        ci_high=estimate.high,
        se=estimate.se,
        at_half_length=_at_length(panel, 0.5),
        at_double_length=_at_length(panel, 2.0),
    )


def _at_length(panel: Panel, factor: float) -> float | None:
    """The score with the same findings in replies of other lengths. The caps of chunks come before the scaling."""
    scaled = [
        [
            mean if mean is None or metric.kind == "final" else mean / factor
            for metric, mean in zip(panel.metrics, sample.means(), strict=False)
        ]
        for sample in panel.samples
    ]
    return panel.composite(scaled)


def _mapped(judgement: ChunkJudgement, names: Mapping[str, str], behaviours: tuple[str, ...]) -> ChunkJudgement:
    renamed = (replace(f, behaviour=names[f.behaviour]) for f in judgement.findings if f.behaviour in names)
    findings = strongest_of(renamed, lambda finding: (finding.turn, finding.behaviour, finding.quote))
    asked = behaviours if judgement.behaviours else ()
    return replace(judgement, behaviours=asked, findings=tuple(findings), called_for={})
