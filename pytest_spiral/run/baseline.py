"""The gates of a run, and the baseline: a finished run that relative gates compare it with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_spiral.compare.recording import (
    SPIRAL_HASHES,
    UNWRAPPED,
    Identity,
    Recording,
    check_comparable,
    counterpart,
    instrument_parameters,
    load_run,
)
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.evaluate.corrected import check_gate, check_labels, corrected_scales, is_corrected
from pytest_spiral.evaluate.inputs import GivenLabels
from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import Gate, check_metric, parse_gate
from pytest_spiral.gates.recipes import gate_recipes, proposed_gates
from pytest_spiral.labelling.files import TEMPAFFECT_QUESTIONS, read_labels
from pytest_spiral.report.lines import turns_text
from pytest_spiral.report.read import load_report
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.over_correction import twin_turns
from pytest_spiral.spiral.per_10k import PER_10K
from pytest_spiral.tempaffect.card_metrics import metric_scales, needs_decisions


@dataclass(frozen=True)
class Gates:
    """The gates to decide; baseline: None where none is named. labels: the label files that correct numbers."""

    gates: tuple[Gate, ...]
    baseline: Recording | None
    labels: tuple[GivenLabels, ...] = ()


def load_gates(plan: RunPlan, content: Content) -> Gates:
    """The gates of a run. Raises `UserError` for a gate or baseline that cannot be read or can never be used."""
    gates = tuple(dict.fromkeys([*_recipe(plan, content), *map(parse_gate, plan.settings.gate)]))
    labels = given_labels(plan.settings.labels, content.folder)
    if labels and plan.run_dir:
        _check_replies(labels, plan, content)
    for gate in gates:
        spiral = gate.suite == "spiral"
        metrics = spiral_metric_scales(content.spiral.protocol) if spiral else metric_scales()
        metrics = metrics | corrected_scales(content.spiral.protocol.behaviours if spiral else TEMPAFFECT_QUESTIONS)
        modes = () if spiral else plan.settings.prompting
        check_metric(gate, plan.suites, modes, metrics, baseline=plan.settings.baseline is not None)
        if is_corrected(gate):
            check_gate(gate, labels)
        if problem := _problem(gate, content):
            raise ConfigError(f"--gate {gate.expr!r}: {problem}")
    if plan.settings.baseline is None:
        return Gates(gates, None, labels)
    baseline = load_run(content.folder / plan.settings.baseline)
    if baseline.report is not None and baseline.report.run.id == plan.run_id:
        raise ConfigError(
            f"--baseline {plan.settings.baseline}: this is the run itself, which differs from itself by nothing; name "
            "another run"
        )
    loaded = Gates(gates, baseline, labels)
    check_baseline(loaded, plan, content, None)
    return loaded


def _problem(gate: Gate, content: Content) -> str | None:
    """Why a gate on a metric that there is can never be decided, or not well."""
    if gate.suite == "tempaffect" and not _is_decided(gate.metric, content):
        return (
            "not measured: none of the scenarios that it is about has a decision key; add expected.decision to them or "
            "gate on tempaffect.score"
        )
    if gate.metric == "over_correction" and not _twins_of(content):
        return "the run holds no benign twins; use --benign-twins=short"
    if gate.metric == "worst_conversations" and gate.relative:
        return "a count; compare the share, spiral.worst, with a baseline"
    per_10k = {f"{PER_10K}.score"}
    if gate.suite == "spiral" and content.spiral.protocol.normalisation == "per_10k_chars":
        per_10k |= {"score", "skill"}
    if gate.suite == "spiral" and not gate.at_least and not gate.relative and gate.metric in per_10k:
        return (
            "the upper bound of a score per 10,000 characters is too low where few prompts carry the risk "
            "(docs/validation/interval-coverage.md); gate on spiral.risk, or ask for a least score"
        )
    return None


def given_labels(names: Sequence[str], folder: Path) -> tuple[GivenLabels, ...]:
    """Label files by their names. Raises `DataError` for one that cannot be read, or for two of a suite."""
    found: dict[str, GivenLabels] = {}
    for name in names:
        file = read_labels(folder / name)
        given = GivenLabels(name, hashlib.sha256((folder / name).read_bytes()).hexdigest(), file)
        if other := found.get(given.suite):
            raise DataError(f"{name}: labels of {given.suite} replies, like {other.name}; name one file of a suite")
        found[given.suite] = given
    return tuple(found.values())


def _check_replies(labels: Sequence[GivenLabels], plan: RunPlan, content: Content) -> None:
    """Refuse labels of other replies than those of the run, before anything is sent. Raises `UserError`."""
    if content.recording is not None:
        # Of a result file in the public format there is no report before the end.
        report = content.recording.report
    elif (path := Path(plan.run_dir) / "report.json").is_file():
        report = load_report(path)
    else:
        raise ConfigError(
            f"--labels: run {plan.run_id} has no report, so nobody has labelled its replies; finish it first"
        )
    if report is not None:
        check_labels(report, labels)


def _recipe(plan: RunPlan, content: Content) -> list[Gate]:
    """The gates of the recipe that is asked for, on the suites that run.

    Raises `ConfigError` for one that the run could not decide as a whole.
    """
    name = plan.settings.gate_recipe
    if name is None:
        return []
    recipes = gate_recipes()
    if name not in recipes:
        raise ConfigError(f"--gate-recipe {name}: there is no such recipe; choose one of {', '.join(recipes)}")
    gates = [gate for gate in map(parse_gate, recipes[name]) if gate.suite in plan.suites]
    measurable = {"spiral": _is_measurable, "tempaffect": _is_decided}
    if "spiral" in plan.suites:
        _check_conversations(plan, content, name)
    if lacking := [gate.expr for gate in gates if not measurable[gate.suite](gate.metric, content)]:
        raise ConfigError(
            f"--gate-recipe {name}: this run cannot measure what {' and '.join(lacking)} is about, and without it the "
            "recipe would promise too much; run the bundled prompts under the default protocol, or use --gate"
        )
    return gates


def _check_conversations(plan: RunPlan, content: Content, name: str) -> None:
    """Refuse a recipe for conversations where there are none, or longer ones, in which early harm is diluted."""
    most = Settings.num_turns
    if plan.settings.prefixes:
        raise ConfigError(
            f"--gate-recipe {name}: it is about conversations, and --suite spiral-prefix holds none; gate what "
            f"prefixes measure, for example --gate='{proposed_gates().prefixes}'"
        )
    recorded = content.recording.all_conversations if content.recording else None
    turns = plan.settings.num_turns if recorded is None else max((len(one.replies) for one in recorded), default=0)
    if turns > most:
        raise ConfigError(
            f"--gate-recipe {name}: its thresholds are for {most} turns, and {turns} dilute what went wrong early"
        )


def _is_measurable(metric: str, content: Content) -> bool:
    """Whether the run measures a Spiral-Bench metric, or could with another --benign-twins."""
    protocol = content.spiral.protocol
    if metric == "protection":
        return bool(protocol.holds)
    if metric == "over_correction" and (content.spiral.foreign or content.recording):
        return bool(_twins_of(content))
    return metric in spiral_metric_scales(protocol)


def _is_decided(metric: str, content: Content) -> bool:
    """Whether a TempAffect metric is measured: some need scenarios with a decision key, perhaps of one family."""
    family = metric.split(".")[1] if metric.startswith("families.") else ""
    asked = (scenario for scenario in content.suite.scenarios if family in ("", scenario.family))
    return not needs_decisions(metric) or any(scenario.expected.decision for scenario in asked)


def check_baseline(gates: Gates, plan: RunPlan, content: Content, fingerprint: str | None) -> None:
    """Raise `DataError` for a baseline made under other conditions, or without a model to compare with.

    fingerprint: of the scorer; None while it is unknown.
    """
    baseline = gates.baseline
    if baseline is None:
        return
    planned: dict[str, Identity] = {
        "tempaffect": {
            "suite_hash": content.suite.suite_hash,
            "scorer_fingerprint": fingerprint,
            "system_prompt": content.system_hash or UNWRAPPED,
        },
        "spiral": _planned_spiral(plan, content),
    }
    for suite in sorted({gate.suite for gate in gates.gates if gate.relative}):
        if suite not in baseline.identity:
            raise DataError(f"{baseline.name}: no measurements of {suite}")
        check_comparable(suite, baseline.identity[suite], planned[suite], (baseline.name, "this run"))
        if any(gate.metric == "over_correction" and gate.relative for gate in gates.gates):
            theirs, mine = twin_turns(baseline.all_conversations), _twins_of(content)
            if theirs != mine:
                raise DataError(
                    f"{baseline.name}: over-correction was measured in {turns_text(theirs)}, here in {turns_text(mine)}"
                )
        for model in plan.of_suite("spiral" if suite == "spiral" else "tempaffect"):
            counterpart(model, baseline, suite)


def _twins_of(content: Content) -> set[int]:
    """Numbers of turns of the benign twins of the run; none where it has none."""
    if content.recording is not None:
        return twin_turns(content.recording.all_conversations)
    return {content.spiral.twin_turns} if content.spiral.twins else set()


def _planned_spiral(plan: RunPlan, content: Content) -> Identity:
    """The identity that the conversations of the run will have."""
    spiral: dict[str, str | None]
    if content.recording is not None:
        spiral = dict(content.recording.identity.get("spiral", {}))
    else:
        hashes = content.spiral.hashes
        spiral = {
            **{name: hashes[name] for name in SPIRAL_HASHES},
            "system_prompt": content.system_hash or UNWRAPPED,
            "user_model": plan.user.model_id if plan.user else None,
            "num_turns": str(plan.settings.num_turns),
            "instrument_parameters": instrument_parameters(
                (m.role, m.params.get("spiral", {})) for m in plan.everybody
            ),
        }
    if plan.judges and content.recording is not None:
        # Those of the recording are of its user and of its own judges.
        spiral["instrument_parameters"] = None
    if plan.judges:
        spiral["judges"] = ", ".join(sorted(judge.reported_name for judge in plan.judges))
    if plan.settings.prefixes:
        spiral.pop("user_model", None)
    spiral["protocol_hash"] = content.spiral.protocol.hash
    return spiral
