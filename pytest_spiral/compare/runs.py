"""Two recorded runs compared, model by model: loading, pairing, estimates and intervals. No network, no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from pytest_spiral.compare.changes import changed_conversations, changed_items
from pytest_spiral.compare.recording import Recording, both_wrapped, check_comparable, counterpart, differing, load_run
from pytest_spiral.errors import DataError
from pytest_spiral.gates import Measured, measure_difference
from pytest_spiral.gates.estimate import TWO_SIDED, Z_ONE_SIDED
from pytest_spiral.report.model.comparison import LoneScore, MetricDifference, ModelComparison, RunComparison, RunName
from pytest_spiral.spiral.aggregate import paired_differences, score_conversations
from pytest_spiral.spiral.anchors import UNCHECKED, judge_again, movements, not_the_same
from pytest_spiral.spiral.per_10k import PER_10K, scheme_beside
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.stats import mcnemar, minimum_detectable_difference, pair, sign_flip
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card_metrics import CardMetrics, bootstrap_draws, metric_names
from pytest_spiral.tempaffect.records import Item, Mode
from pytest_spiral.tempaffect.scenario import Scenario

_SUITES = ("tempaffect", "spiral")
Runs = tuple[Recording, Recording]
"""Baseline and candidate."""


def compare_paths(baseline: Path, candidate: Path, protocol: str | None = None) -> RunComparison:
    """Compare two run directories, reports or result files in upstream's format.

    Args:
        baseline: The run to compare with.
        candidate: The run to judge; differences are candidate minus baseline.
        protocol: Name of the protocol under which both are scored again; by default the one of the reports.

    Returns:
        Differences, and for Spiral-Bench runs under different circumstances what each scored, with the reason.

    Raises:
        DataError: For a file that cannot be read, and naming everything in which TempAffect runs differ.
        ConfigError: For an unknown protocol.
    """
    return compare_runs((load_run(baseline), load_run(candidate)), protocol)


def compare_runs(runs: Runs, protocol: str | None = None) -> RunComparison:
    """Compare two loaded runs as `compare_paths` does."""
    if not any(suite in runs[0].identity and suite in runs[1].identity for suite in _SUITES):
        raise DataError(f"{runs[0].name} and {runs[1].name} have no suite in common")
    notes: list[str] = []
    comparisons: list[ModelComparison] = []
    alone: tuple[LoneScore, ...] = ()
    used: Protocol | None = None
    for suite in _SUITES:
        present = [run for run in runs if suite in run.identity]
        if len(present) == 1:
            notes.append(f"{suite} is in {present[0].name} only")
        if len(present) < 2:
            continue
        # Both are scored again under a protocol that is given.
        ignored = {"protocol_hash"} if protocol is not None else set()
        known = [{k: v for k, v in run.identity[suite].items() if k not in ignored} for run in runs]
        prompts = [run.identity[suite].get("system_prompt") for run in runs]
        if both_wrapped(*prompts) and prompts[0] != prompts[1]:
            notes.append(f"{suite}: the system prompts differ; what is compared is the model with its prompt")
        scores = [(run, score) for run in runs if run.report for score in run.report.spiral.scores]
        for run, score in scores if suite == "spiral" else ():
            # A composite that the run's own report withholds must not come back as a number without a word.
            notes += [f"{run.name}, {score.model}: {why}" for why in score.judges.health.no_verdict]
        if suite == "spiral" and (different := [*differing(suite, known[0], known[1]), *_moved(runs)]):
            notes.append(f"not compared, for they differ in {', '.join(different)}")
            alone = tuple(_alone(runs, protocol))
            continue
        unknown = check_comparable(suite, known[0], known[1], (runs[0].name, runs[1].name))
        if unchecked := [name for name in unknown if name != "spiral.protocol_hash"]:
            notes.append(f"not recorded on both sides, so not checked: {', '.join(unchecked)}")
        models = _paired_models(runs, suite, notes)
        if suite == "tempaffect":
            comparisons += _tempaffect(runs, models, notes)
        else:
            used = _protocol(protocol, runs)
            try:
                comparisons += _spiral(runs, models, used, notes)
            except DataError as error:
                # Of other prompts, or about other behaviours.
                notes.append(str(error))
                used, alone = None, tuple(_alone(runs, protocol))
    return RunComparison(
        baseline=RunName(path=runs[0].name, run=runs[0].id),
        candidate=RunName(path=runs[1].name, run=runs[1].id),
        protocol=used.name if used else None,
        notes=tuple(dict.fromkeys(notes)),
        comparisons=tuple(comparisons),
        side_by_side=alone,
    )


def _moved(runs: Runs) -> list[str]:
    """The judges who are not the same, and what to do."""
    moved = not_the_same(runs[0].anchors, runs[1].anchors)
    return [f"their judges ({moved}); {judge_again(runs[0].name)}"] if moved else []


def _spiral(
    runs: Runs, models: Sequence[tuple[str, str]], protocol: Protocol, notes: list[str]
) -> list[ModelComparison]:
    rows = []
    for names in models:
        sides = runs[0].by_model[names[0]], runs[1].by_model[names[1]]
        for run, name, side in zip(runs, names, sides, strict=True):
            # A model that is silent where it is hard must not look better without a word.
            if broken := sum(one.status is Status.MODEL_FAILED for one in side):
                what = f"{broken} conversation{'s' * (broken != 1)} that the model broke off"
                how = (
                    "not in the means" if protocol.broken_conversations == "missing" else "counted by the turns before"
                )
                notes.append(f"{run.name}, {name}: {what}, {how}")
        row = compare_conversations(names, sides, protocol, runs[1].seed)
        changes = changed_conversations(runs[0].id, names, sides, protocol)
        rows.append(row.model_copy(update={"changes": changes}))
    turns = next(filter(None, (run.identity["spiral"]["num_turns"] for run in runs)), "an unknown number of")
    notes.append(f"conversations of {turns} turn{'s' * (str(turns) != '1')} on both sides")
    notes.append("; ".join(each.said for each in movements(runs[0].anchors, runs[1].anchors)) or UNCHECKED)
    if scheme := scheme_beside(protocol.name):
        notes.append(f"{PER_10K}.score is the {scheme.name}")
    # Of the injections; in the public format, the run's id.
    seeds = [str(run.report.run.seed) if run.report else run.id for run in runs]
    if seeds[0] != seeds[1] and (runs[0].report is None) == (runs[1].report is None):
        notes.append(f"the simulated user got other injections: the seeds are {seeds[0]} and {seeds[1]}")
    return rows


def _alone(runs: Runs, protocol: str | None) -> Iterator[LoneScore]:
    """The score of every model of both runs under the protocol, or under the one that made it or fits it."""
    sides: Sequence[Literal["baseline", "candidate"]] = ("baseline", "candidate")
    for side, run in zip(sides, runs, strict=True):
        used = _protocol(protocol, (run,))
        for model in run.of_suite("spiral"):
            score = score_conversations(run.by_model[model], used, seed=run.seed)
            bounds = {"score": score.score, "low": score.ci_low, "high": score.ci_high}
            yield LoneScore(side=side, model=model, protocol=used.name, turns=score.turns, **bounds)


def _protocol(name: str | None, runs: Sequence[Recording]) -> Protocol:
    """The protocol of this name, or by default the one that made the reports, or that fits the first."""
    report = next((run for run in runs if run.identity["spiral"].get("protocol_hash")), runs[0])
    return report.protocol([name] if name else ())


def _tempaffect(runs: Runs, models: Sequence[tuple[str, str]], notes: list[str]) -> Iterator[ModelComparison]:
    for names in models:
        for mode in ("schema", "raw"):
            items = tuple(run.items.get((name, mode), ()) for run, name in zip(runs, names, strict=True))
            if all(items):
                scenarios = {**runs[0].tempaffect.scenarios, **runs[1].tempaffect.scenarios}
                sides = items[0], items[1]
                yield _compare_items(runs, names, mode, sides, scenarios)
            elif any(items):
                notes.append(f"tempaffect: {mode} mode of {names[0]} is in one run only")


def _paired_models(runs: Runs, suite: str, notes: list[str]) -> list[tuple[str, str]]:
    """Models of the same name; a single model of one run with its counterpart in the other."""
    baseline, candidate = (run.of_suite(suite) for run in runs)
    if len(baseline) == 1:
        return [(baseline[0], counterpart(baseline[0], runs[1], suite))]
    if len(candidate) == 1:
        return [(counterpart(candidate[0], runs[0], suite), candidate[0])]
    if unpaired := sorted({*baseline} ^ {*candidate}):
        notes.append(f"{suite}: in one run only: {', '.join(unpaired)}")
    return [(model, model) for model in baseline if model in candidate]


def _compare_items(
    runs: Runs,
    models: tuple[str, str],
    mode: Mode,
    items: tuple[Sequence[Item], Sequence[Item]],
    scenarios: Mapping[str, Scenario],
) -> ModelComparison:
    """Compare two TempAffect cards, paired by scenario with all epochs inside. scenarios: by id.

    Beside the interval stands McNemar's exact test for rates of single measurements, the sign-flip permutation test for
    means. Detectors are properties of whole suites and are left out.
    """
    cards = [CardMetrics(one, scenarios) for one in items]
    seed = runs[1].seed
    metrics = {}
    for metric in metric_names():
        if metric.startswith("detectors.") or metric == "skill":
            continue
        baseline, candidate = (card.sample(metric) for card in cards)
        measured = measure_difference(candidate, baseline, None, partial(bootstrap_draws, seed=seed))
        if measured is None or measured.n < 2:
            continue
        pairs = pair(baseline.units, candidate.units).pairs
        if baseline.binary and candidate.binary:
            p, test = mcnemar(pairs.map(lambda both: (bool(both[0]), bool(both[1])))), "exact McNemar"
        else:
            p = sign_flip(pairs.map(lambda both: both[1] - both[0]), f"{seed}-sign-flip")
            test = "sign-flip permutation"
        metrics[metric] = _row(measured, p, test)
    pairing = pair(*(card.sample("score").units for card in cards))
    return ModelComparison(
        suite="tempaffect",
        baseline=models[0],
        candidate=models[1],
        mode=mode,
        unit="scenario",
        paired=len(pairing.pairs),
        only_baseline=pairing.only_first,
        only_candidate=pairing.only_second,
        metrics=metrics,
        changes=changed_items(runs[0].id, models, mode, items, scenarios),
    )


def compare_conversations(
    models: tuple[str, str],
    conversations: tuple[Sequence[Conversation], Sequence[Conversation]],
    protocol: Protocol,
    seed: int,
) -> ModelComparison:
    """Compare two Spiral-Bench scores under one protocol, every bootstrap draw with the same prompts in both.

    Raises:
        DataError: Where a common prompt id stands for different openings, or no measured prompt is common.
    """
    baseline, candidate = conversations
    mine, theirs = ({one.prompt_id: (*one.prompts[:1], *one.history) for one in run} for run in conversations)
    # A record without openings cannot be checked.
    if different := [n for n in sorted(mine) if any(mine[n]) and any(theirs.get(n, ())) and mine[n] != theirs[n]]:
        names = ", ".join(different[:5])
        raise DataError(f"the runs cannot be compared: different openings under the same prompt id: {names}")
    result = paired_differences(candidate, baseline, protocol, seed=seed, confidence=TWO_SIDED)
    if not result.prompts:
        raise DataError(f"{models[0]} and {models[1]} have no measured prompt in common")
    return ModelComparison(
        suite="spiral",
        baseline=models[0],
        candidate=models[1],
        mode=None,
        unit="prompt",
        paired=len(result.prompts),
        only_baseline=result.only_second,
        only_candidate=result.only_first,
        metrics={name: _row(row) for name, row in result.differences.items()},
    )


def _row(measured: Measured, p: float | None = None, test: str | None = None) -> MetricDifference:
    # Where no two units differ the standard error is 0, but the interval still has a width.
    se = measured.se or (measured.high - measured.low) / (2 * Z_ONE_SIDED)
    return MetricDifference(
        **{name: getattr(measured, name) for name in ("baseline", "candidate", "low", "high", "method")},
        difference=measured.value,
        differs=not measured.low <= 0 <= measured.high,
        mde=minimum_detectable_difference(se),
        p=p,
        test=test,
    )
