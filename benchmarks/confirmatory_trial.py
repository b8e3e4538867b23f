"""The registered analysis of the confirmatory trial: prefixes in three conditions, an A/A pair and a second judge.

    python -m benchmarks.confirmatory_trial RUNS > tables.md

RUNS holds the run directories (or their `report.json`) `plain`, `warm`, `affirm`, `plain-again`, and, of a third of the
prefixes judged by the second judge, `second-plain`, `second-warm` and `second-affirm`. What is computed, and what would
confirm or fail a hypothesis, stands in docs/validation/trial-registration.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from scipy.stats import chi2

from pytest_spiral.compare.recording import load_run
from pytest_spiral.gates import Measured
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import load_report
from pytest_spiral.spiral.agreement import strengths
from pytest_spiral.spiral.prefix_score import prefix_differences
from pytest_spiral.spiral.protocol import Protocol, load_protocol
from pytest_spiral.spiral.records import ChunkJudgement, Conversation
from pytest_spiral.spiral.turn_values import CLEAR
from pytest_spiral.stats import Clusters, weighted_kappa
from pytest_spiral.status import Status

CONDITIONS = ("plain", "warm", "affirm")
METRICS = ("prefix.balance", "prefix.protection", "prefix.fitting", "prefix.risk")
# Two-sided, so that each end is a one-sided bound of 95 %.
CONFIDENCE = 0.9
# Two-sided level of 5 % and power of 80 %.
DETECTABLE = 1.959964 + 0.841621
FEWEST_POSITIVES = 5
Talks = Sequence[Conversation]
Row = Sequence[object]


def read(folder: Path, name: str) -> Talks:
    """The conversations of a run."""
    return load_run(folder / name).all_conversations


def difference(better: Talks, worse: Talks, protocol: Protocol, metric: str = "prefix.balance") -> Measured:
    """Better minus worse on the same prefixes."""
    return prefix_differences(better, worse, protocol, CONFIDENCE, ("ignored", "ignored"))[metric]


def detectable(found: Measured, openings: int) -> tuple[float, float]:
    """Minimum detectable difference in points, and its upper 90 % limit for normal openings of the smaller half."""
    assert found.se is not None
    value, df = DETECTABLE * found.se, openings - 1
    return value, value * (df / float(chi2.ppf(0.1, df))) ** 0.5


def agreement(
    pairs: Sequence[tuple[Talks, Talks]], protocol: Protocol, lowest: int
) -> Iterator[tuple[str, int, int, float]]:
    """Of behaviours with weight: positives of both judges, and kappa of presence at a strength."""
    both = [
        (one.prompt_id, one.judgements[0], again[one.id].judgements[0])
        for first, second in pairs
        for again in [{each.id: each for each in second if each.status is Status.MEASURED}]
        for one in first
        if one.id in again and one.status is Status.MEASURED
    ]
    for name in (name for name, metric in protocol.metrics.items() if metric.weight):
        rows = [(prompt, (_present(one, name, lowest), _present(two, name, lowest))) for prompt, one, two in both]
        first, second = (sum(row[side] for _, row in rows) for side in (0, 1))
        if min(first, second) >= FEWEST_POSITIVES:
            kappa = weighted_kappa(Clusters.group("prompt", rows), "none")
            assert kappa is not None
            yield name, first, second, kappa


def _present(judged: ChunkJudgement, behaviour: str, lowest: int) -> int:
    return int(strengths(judged).get((0, behaviour), 0) >= lowest)


def table(head: Row, rows: Sequence[Row]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def numbers(runs: Mapping[str, Report]) -> Iterator[Row]:
    """The headline of every condition, and its breakdown by history, depth and manner."""
    for name, report in runs.items():
        assert report.spiral is not None
        score = report.spiral.scores[0].prefix
        assert score is not None
        for row in score.rows:
            values = (row.balance, row.protection, row.fitting, row.risk)
            cells = [
                "" if one.value is None else f"{one.value:.1f} [{one.ci_low:.1f}, {one.ci_high:.1f}]" for one in values
            ]
            yield name, row.by, row.name, row.prefixes, *cells


def main(folder: Path) -> None:
    """Print all tables."""
    protocol = load_protocol("prefix")
    runs = {name: read(folder, name) for name in (*CONDITIONS, "plain-again")}
    rows = []
    for better, worse in (*pairwise(CONDITIONS), ("plain", "plain-again")):
        for metric in METRICS:
            found = difference(runs[better], runs[worse], protocol, metric)
            halves = [difference(runs[better], runs[worse], protocol, half).n for half in METRICS[1:3]]
            value, upper = detectable(found, min(found.n, *halves))
            cells = f"{found.value:+.1f}", f"[{found.low:+.1f}, {found.high:+.1f}]", found.n
            rows.append((f"{better} - {worse}", metric, *cells, f"{value:.1f}", f"{upper:.1f}"))
    print(table(("pair", "metric", "difference", "90 % interval", "openings", "detectable", "its upper 90 %"), rows))
    print()
    print(
        table(
            ("condition", "by", "group", "prefixes", "balance", "protection", "fitting", "risk"),
            [*numbers({name: load_report(folder / name / "report.json") for name in runs})],
        )
    )
    second = [name for name in CONDITIONS if (folder / f"second-{name}").exists()]
    for lowest in (1, CLEAR):
        kappas = [*agreement([(runs[name], read(folder, f"second-{name}")) for name in second], protocol, lowest)]
        if kappas:
            print(f"\nTwo judges, presence at strength {lowest} or more:\n")
            mean = ("macro mean", "", "", f"{fmean(kappa for *_, kappa in kappas):.2f}")
            print(
                table(
                    ("behaviour", "first", "second", "kappa"),
                    [*((*row, f"{kappa:.2f}") for *row, kappa in kappas), mean],
                )
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
