"""What can be recomputed of the published results of Spiral-Bench v1.2, as the tables of its page in docs/validation.

    python -m benchmarks.v1_2_published [FOLDER]

FOLDER, by default SPIRAL_UPSTREAM_DIR, holds `leaderboard_v1.2.csv` and the one public result file of v1.2. Prints
Markdown. Nothing is read from the package's data but the protocols.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_spiral.spiral import Conversation, load_protocol, load_upstream, score_conversations
from pytest_spiral.spiral.aggregate import point_score
from pytest_spiral.spiral.agreement import agreement, judged_by
from pytest_spiral.spiral.chunks import chunk_transcript
from pytest_spiral.spiral.counted import WeightedMetric
from pytest_spiral.spiral.counting import weighted_metrics
from pytest_spiral.spiral.sample import JudgedSample
from pytest_spiral.status import Status

PROTOCOL = "upstream-v1.2"
ROWS = "leaderboard_v1.2.csv"
RESULTS = "gemini-3-pro-preview-v1.2.json"


@dataclass(frozen=True)
class Row:
    """One published row: its score and the score that its means give, and the range that their rounding leaves open."""

    model: str
    published: float
    recomputed: float
    low: float
    high: float


def published_rows(path: Path) -> list[Row]:
    """The rows of the leaderboard, recomputed from their own means.

    The means are rounded to three decimals and divide by all prompts, while the score uses means over the prompts in
    which a behaviour has a value; the two differ only for behaviours which some prompt has none of.
    """
    metrics = weighted_metrics(load_protocol(PROTOCOL))
    keys = {name: metric.stored_as or name for name, metric in load_protocol(PROTOCOL).metrics.items()}
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            means = {metric.name: float(line[keys[metric.name]]) for metric in metrics}
            ends = sorted(_composite(metrics, means, shift) for shift in (-0.0005, 0.0005))
            rows.append(Row(line["model_name"], float(line["score_0_100"]), _composite(metrics, means), *ends))
    return rows


def _composite(metrics: Sequence[WeightedMetric], means: Mapping[str, float], shift: float = 0.0) -> float:
    """The score that these means give. shift: added to protective means and taken from the others."""
    shifted = [means[m.name] + (shift if m.sign == "protective" else -shift) for m in metrics]
    score = JudgedSample(load_protocol(PROTOCOL), tuple(metrics), ()).composite(shifted)
    assert score is not None
    return score


def tables(folder: Path) -> Iterator[str]:
    """The tables, line by line."""
    rows = published_rows(folder / ROWS)
    yield f"### {len(rows)} published rows, recomputed from their own means"
    yield ""
    yield "| model | published | recomputed | difference | the rounding of the means leaves |"
    yield "|---|---|---|---|---|"
    for row in rows:
        difference = f"{row.published - row.recomputed:+.3f}"
        left = f"{row.low:.2f} to {row.high:.2f}"
        yield f"| {row.model} | {row.published:.1f} | {row.recomputed:.3f} | {difference} | {left} |"
    apart = [row for row in rows if abs(row.published - row.recomputed) > 0.05]
    open_ones = [row.model for row in apart if row.low - 0.05 <= row.published <= row.high + 0.05]
    yield ""
    yield f"Further apart than .05: {', '.join(row.model for row in apart) or 'none'}."
    yield f"Of these within what rounding leaves open: {', '.join(open_ones) or 'none'}."
    conversations = load_upstream(folder / RESULTS)
    yield from _file(conversations)


def _file(conversations: Sequence[Conversation]) -> Iterator[str]:
    protocol = load_protocol(PROTOCOL)
    score = score_conversations(conversations, protocol)
    judges = sorted({judgement.judge for item in conversations for judgement in item.judgements})
    turns = Counter(len(item.replies) for item in conversations)
    judged = Counter(len(chunk_transcript(item.transcript, protocol)) for item in conversations)
    yield ""
    yield "### The one public result file"
    yield ""
    yield "| what | |"
    yield "|---|---|"
    yield f"| conversations | {len(conversations)} |"
    yield f"| assistant turns per conversation | {_counted(turns)} |"
    yield f"| of these judged | {_counted(judged)} |"
    yield f"| score, as published | {score.score} |"
    interval = f"[{score.ci_low:.1f}, {score.ci_high:.1f}]"
    yield f"| unrounded, with our 95 % interval over prompts | {score.unrounded:.3f} {interval} |"
    yield ""
    yield "| judge | score alone | findings | quotes not located | chunks unreadable | sums of 1 | final scores |"
    yield "|---|---|---|---|---|---|---|"
    for judge in judges:
        own = [j for item in conversations for j in item.judgements if j.judge == judge]
        findings = [finding for j in own for finding in j.findings]
        lost = sum(finding.evidence == "unlocated" for finding in findings)
        values = [value for j in own for value in (j.stated or {}).values() if value]
        ones = sum(value == 1 for value in values)
        finals = sum(f.status is Status.MEASURED for item in conversations for f in item.finals if f.judge == judge)
        alone = point_score(judged_by(conversations, judge.__eq__), protocol)
        unreadable = sum(j.status is not Status.MEASURED for j in own)
        share = lost / max(1, len(findings))
        cells = [judge, f"{alone:.3f}", len(findings), f"{lost} ({share:.1%})", f"{unreadable} of {len(own)}"]
        cells += [f"{ones} of {len(values)}", f"{finals} of {len(conversations)}"]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield "| behaviour | alpha of presence | alpha of strength | judged present, by judge |"
    yield "|---|---|---|---|"
    for name, row in agreement(conversations, judges, protocol.behaviours, "v1.2").items():
        shares = " / ".join("-" if share is None else f"{share:.2f}" for share in row.prevalence.values())
        presence, strength = (_alpha(value) for value in (row.presence, row.strength))
        yield f"| {name} | {presence} | {strength} | {shares} |"


def _alpha(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _counted(values: Counter[int]) -> str:
    return ", ".join(f"{value} ({number} times)" for value, number in sorted(values.items()))


def main() -> None:
    """Print the tables."""
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SPIRAL_UPSTREAM_DIR", "")
    if not folder:
        sys.exit("name the folder with the public files, or set SPIRAL_UPSTREAM_DIR")
    print("\n".join(tables(Path(folder))))


if __name__ == "__main__":
    main()
