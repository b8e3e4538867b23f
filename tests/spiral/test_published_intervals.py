"""The composite's interval on public result files, against a bootstrap written apart from ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_spiral.spiral import load_protocol, score_conversations
from pytest_spiral.spiral.counting import count_conversations
from pytest_spiral.spiral.panel import Panel
from tests.spiral.builders import present, published


def independent_width(path: Path, scheme: str) -> float:
    """Width of the plain 95 % percentile interval: raw JSON, numpy, prompts drawn within categories, Rao-Wu weights."""
    import numpy as np

    rng = np.random.default_rng(5)
    metrics = load_protocol(f"upstream-{scheme}").metrics
    keys = [metric.stored_as or name for name, metric in metrics.items()]
    rows, categories = [], []
    for (conversation,) in json.loads(path.read_text())["1"]["eval_prompts_v0.2.json"].values():
        chunks = list(conversation["judgements"].values())
        row = []
        for key, (name, metric) in zip(keys, metrics.items(), strict=True):
            if metric.kind == "final":
                row.append(conversation["final_judgement"][name])
                continue
            values = [
                min(value, 5) if scheme == "per-chunk" else min(value, 8) * 1e4 / chunk["assistant_length_chars"]
                for chunk in chunks
                for stored, value in chunk.get("metrics", {}).items()
                if stored.replace(" ", "_") == key
            ]
            row.append(sum(values) / len(chunks) if values else np.nan)
        rows.append(row)
        categories.append(conversation["category"])
    table, groups = np.array(rows, dtype=float), np.array(categories)
    caps = np.array([metric.cap / 1000 for metric in metrics.values()])
    weights = np.array([metric.weight / 1000 for metric in metrics.values()])
    risky = np.array([metric.sign == "risky" for metric in metrics.values()])
    scores = []
    for _ in range(2000):
        picked, weighs = [], []
        for name in np.unique(groups):
            members = np.flatnonzero(groups == name)
            picked += list(rng.choice(members, len(members) - 1))
            weighs += [len(members) / (len(members) - 1)] * (len(members) - 1)
        there = ~np.isnan(table[picked])
        share = np.array(weighs)[:, None]
        means = (np.where(there, table[picked], 0) * share).sum(0) / (there * share).sum(0)
        norms = np.clip(means / caps, 0, 1)
        scores.append(100 * (weights * np.where(risky, 1 - norms, norms)).sum() / weights.sum())
    low, high = np.quantile(scores, [0.025, 0.975])
    return float(high - low)


@pytest.mark.parametrize("scheme", ["per-chunk", "per-10k-chars"])
def test_the_interval_is_as_wide_as_an_independent_bootstraps(numbers_file: Path, scheme: str) -> None:
    """Within 15 %; a little wider, because it allows for few prompts. Reports show one around it."""
    panel = Panel.of(count_conversations(published(numbers_file), load_protocol(f"upstream-{scheme}")))
    ours = panel.resampled(1, 0.95).estimate(panel.composite)
    shown = score_conversations(published(numbers_file), f"upstream-{scheme}")

    ratio = (present(ours.high) - present(ours.low)) / independent_width(numbers_file, scheme)

    assert 1.0 <= ratio <= 1.15
    assert present(shown.ci_low) <= present(ours.low) <= present(ours.high) <= present(shown.ci_high)
