"""Numbers corrected by labels: from a report and label files to the report's section, and gates on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.evaluate.gates import gate_row
from pytest_spiral.evaluate.inputs import GivenLabels
from pytest_spiral.evaluate.verdict import has_no_verdict, is_beyond_limit, is_incomplete, verdict_of
from pytest_spiral.gates import PART_FAILED, Gate, GateDecision, Measured, Policy, Scale, conclude, limit_missing
from pytest_spiral.gates.estimate import TWO_SIDED, End
from pytest_spiral.grouping import grouped
from pytest_spiral.labelling.drawing import replies_hash, replies_of
from pytest_spiral.labelling.files import TEMPAFFECT_QUESTIONS, LabelledItem, turn_id
from pytest_spiral.labelling.wording import questions_of
from pytest_spiral.report.model import Card, Report
from pytest_spiral.report.model.corrected import CorrectedFigure, Corrections, LabelSource, Refusal
from pytest_spiral.report.model.gate import DecisionCode, DecisionReason
from pytest_spiral.report.parts import Parts
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.agreement import strengths
from pytest_spiral.spiral.counting import judge_shares, prompt_key
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.stats import Clusters, LabelPlan, Rated, TooFewLabels, corrected_mean, plan_labels
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card_metrics import CardMetrics
from pytest_spiral.tempaffect.records import MODES, CardMode

PREFIX = "corrected."
_METRICS = {name: f"reply_checks.{name}" for name in TEMPAFFECT_QUESTIONS[:3]} | {
    "right_decision": "right_decision",
    "useful_bounded": "useful_bounded_response_rate",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """A card or a score with the labels of its replies."""

    suite: SuiteName
    model: str
    card: Card | None
    incomplete: bool
    labels: Mapping[str, LabelledItem]

    @property
    def mode(self) -> CardMode | None:
        return self.card.prompting_mode if self.card else None

    @property
    def name(self) -> str:
        """Model and mode."""
        return f"{self.model}, {MODES[self.mode]}" if self.mode else self.model

    def is_named_by(self, gate: Gate) -> bool:
        """Whether a gate is about this suite and mode."""
        return gate.suite == self.suite and (self.mode is None or gate.qualifier in (None, MODES[self.mode]))


@dataclass(frozen=True, slots=True)
class _Sample:
    """What is known of one question in one place: the items by unit, and how many are missing."""

    suite: SuiteName
    units: Mapping[str, Sequence[Rated]]
    missing: int

    @property
    def unsettled(self) -> int:
        """Drawn items without a label."""
        return sum(one.unsettled for unit in self.units.values() for one in unit)

    def clusters(self, end: End | None = None) -> Clusters[Sequence[Rated]]:
        """The items; with an end, everything that is missing or unsettled is placed there."""
        units = dict(self.units)
        if end:
            value = float(end == "high")
            units = {
                name: [replace(one, truth=value) if one.unsettled else one for one in unit]
                for name, unit in units.items()
            }
            units |= {f"missing {number}": [Rated(value, certain=True)] for number in range(self.missing)}
        return Clusters("prompt" if self.suite == "spiral" else "scenario", tuple(units), tuple(units.values()))


def corrected_scales(names: Iterable[str]) -> dict[str, Scale]:
    """The corrected metrics of these questions, with the least and the greatest value of each."""
    return {f"{PREFIX}{name}": (0.0, 1.0) for name in names}


def is_corrected(gate: Gate) -> bool:
    """Whether a gate is about a corrected metric."""
    return gate.metric.startswith(PREFIX)


def check_gate(gate: Gate, labels: Sequence[GivenLabels]) -> None:
    """Refuse a gate on a corrected metric that these labels cannot decide. Raises `ConfigError`."""
    where, question = f"--gate {gate.expr!r}", gate.metric.removeprefix(PREFIX)
    own = next((one for one in labels if one.suite == gate.suite), None)
    if own is None:
        raise ConfigError(
            f"{where}: needs labels of {gate.suite} replies; write their pages with `pytest-spiral label RUN -o DIR` "
            "and name the merged file with --labels FILE"
        )
    if (whose := own.file.header.whose) != "people":
        raise ConfigError(
            f"{where}: only labels of people may decide a gate, and those of {own.name} are {whose}: let people label "
            "the replies, or gate on the metric that is not corrected"
        )
    if question not in own.file.header.questions:
        asked = ", ".join(f"{gate.suite}.{PREFIX}{name}" for name in own.file.header.questions)
        raise ConfigError(f"{where}: nobody was asked for it in {own.name}; its labels correct {asked}")
    if gate.relative:
        raise ConfigError(f"{where}: a baseline has no labels; compare with a number")


def check_labels(report: Report, labels: Sequence[GivenLabels]) -> None:
    """Refuse labels that are not of the replies of this report. Raises `DataError`."""
    for given in labels:
        header = given.file.header
        if header.sampling is None:
            raise DataError(
                f"{given.name}: sampling: null: it is not known how its items were drawn, so they say nothing about "
                "the other replies; draw them with `pytest-spiral label RUN -o DIR`"
            )
        if header.report_hash != replies_hash(report, header.suite):
            raise DataError(
                f"{given.name}: labels replies of run {header.run!r} that are not those of {report.run.id!r}; name the "
                "run whose replies were drawn (a run that was resumed later has others)"
            )
        scores = report.spiral.scores
        asked = questions_of(header.suite, scores[0].protocol) if scores else header.questions
        if unknown := sorted({*header.questions}.difference(asked)):
            raise DataError(f"{given.name}: questions: {unknown[0]!r} is none of {', '.join(asked)}")
        known = replies_of(report)
        if odd := [row for row in given.file.items if (row.model, row.item) not in known]:
            raise DataError(
                f"{given.name}: item {odd[0].item!r} of {odd[0].model!r} is no reply of run {report.run.id!r}, and its "
                "label would be lost; put the line back as `pytest-spiral label merge` writes it"
            )


def with_labels(report: Report, labels: Sequence[GivenLabels], gates: Sequence[Gate], policy: Policy) -> Report:
    """A report with what labels correct, and with the gates on that beside its own. Raises `DataError`."""
    check_labels(report, labels)
    parts = Parts()
    figures: list[CorrectedFigure] = []
    rows = [row for row in report.gates if not row.metric.partition(".")[2].startswith(PREFIX)]
    for given in labels:
        for place in _places(report, given):
            for question in given.file.header.questions:
                part = f"corrected[{place.name}, {question}]"
                found = parts.attempt(part, _figure, report, place, question)
                figures += [found] if found else []
            for gate in gates:
                if place.is_named_by(gate):
                    decision = parts.attempt(f"gates[{gate.expr}, {place.name}]", _decide, gate, report, place, policy)
                    rows.append(gate_row(gate, place.model, place.mode, decision or PART_FAILED, policy))
    failed = (*(part for part in report.failed_parts if not part.part.startswith("corrected[")), *parts.failed)
    lost = is_incomplete(report.tempaffect.cards, report.spiral.scores) or bool(failed)
    return report.model_copy(
        update={
            "corrected": Corrections(sources=tuple(map(_source, labels)), figures=tuple(figures)),
            "gates": tuple(rows),
            "verdict": verdict_of([row.outcome for row in rows], lost),
            "failed_parts": failed,
        }
    )


def _source(given: GivenLabels) -> LabelSource:
    header = given.file.header
    return LabelSource(
        suite=header.suite,
        file=given.name,
        hash=given.hash,
        whose=header.whose,
        raters=tuple(rater.name for rater in header.raters),
        adjudicator=header.adjudicator.name if header.adjudicator else None,
        items=len(given.file.items),
        design=header.sampling.design if header.sampling else "",
    )


def _places(report: Report, given: GivenLabels) -> Iterator[_Place]:
    """The cards or scores of a report that the labels are about."""

    def labels_of(model: str) -> dict[str, LabelledItem]:
        return {item.item: item for item in given.file.items if item.model == model}

    if given.suite == "tempaffect":
        for card in report.tempaffect.cards:
            incomplete = is_beyond_limit(card.missing.n, card.missing.of)
            yield _Place("tempaffect", card.model, card, incomplete, labels_of(card.model))
    else:
        for score in report.spiral.scores:
            yield _Place("spiral", score.model, None, has_no_verdict(score), labels_of(score.model))


def _sample(report: Report, place: _Place, question: str) -> _Sample:
    if place.card is None:
        return _turns(report, place, question)
    return _replies(report, place, place.card, question)


def _rated(place: _Place, item: str, question: str, judged: float) -> Rated:
    row = place.labels.get(item)
    if row is None:
        return Rated(judged)
    truth = row.present(question)
    return Rated(judged, None if truth is None else float(truth), row.inclusion, unsettled=truth is None)


def _replies(report: Report, place: _Place, card: Card, question: str) -> _Sample:
    """The replies of a card. An output without a valid reply is bad without anybody's label."""
    mode, scenarios = MODES[card.prompting_mode], report.tempaffect.scenarios
    items = [one for one in report.tempaffect.items if (one.model, one.mode) == (card.model, mode)]
    metrics = CardMetrics(items, scenarios, never_asked={*card.missing.ids} - scenarios.keys())
    metric = _METRICS[question]
    column = metrics.column(metric)
    units: dict[str, list[Rated]] = {}
    for scenario, row in metrics.rows.items():
        for output in row:
            if (value := column(output)) is None:
                continue
            rated = Rated(0.0, certain=True)
            if output.score.valid:
                rated = _rated(place, f"{scenario}/{mode}/{output.epoch}", question, value)
            units.setdefault(scenario, []).append(rated)
    return _Sample("tempaffect", units, metrics.sample(metric).missing)


def _turns(report: Report, place: _Place, behaviour: str) -> _Sample:
    """The judged turns of a model, each with the mean of its judges. Turns that nobody could judge are missing."""
    own = [one for one in report.spiral.recorded() if one.model == place.model and not one.twin_of]
    shares = judge_shares(own)
    longest = max((len(one.replies) for one in own), default=0)
    units: dict[str, list[Rated]] = {}
    missing = 0
    for conversation in own:
        if conversation.status is not Status.MEASURED:
            missing += longest
            continue
        seen = _seen(conversation, behaviour, shares)
        missing += len(conversation.replies) - len(seen)
        unit = units.setdefault("/".join(prompt_key(conversation)), [])
        unit += [_rated(place, turn_id(conversation.id, turn), behaviour, value) for turn, value in seen.items()]
    return _Sample("spiral", units, missing)


def _seen(conversation: Conversation, behaviour: str, shares: Mapping[str, float]) -> dict[int, float]:
    """By judged turn how many of its judges found the behaviour there, by their shares."""
    asked = [one for one in conversation.judgements if one.status is Status.MEASURED and behaviour in one.behaviours]
    seen = [(one, strengths(one)) for one in asked]
    weights = grouped((t, (shares[one.judge], (t, behaviour) in found)) for one, found in seen for t in one.turns)
    return {
        turn: sum(share for share, there in row if there) / sum(share for share, _ in row)
        for turn, row in sorted(weights.items())
    }


def _figure(report: Report, place: _Place, question: str) -> CorrectedFigure | None:
    """The number that a question corrects; None where the report has no such number."""
    sample = _sample(report, place, question)
    if not sample.units:
        return None
    clusters = sample.clusters()
    found = corrected_mean(clusters)
    numbers: dict[str, float | None] = dict.fromkeys(("value", "low", "high", "power"))
    refused = None
    if isinstance(found, TooFewLabels):
        refused = Refusal(code=found.code, detail=f"{place.name}, {question}: {found.detail}", needed=found.needed)
    else:
        numbers |= {"value": found.value, "low": found.interval.low, "high": found.interval.high, "power": found.power}
    return CorrectedFigure(
        suite=place.suite,
        model=place.model,
        prompting_mode=place.mode,
        metric=question,
        raw=found.raw,
        **numbers,
        labels=found.labels,
        positives=found.positives,
        negatives=found.labels - found.positives,
        unsettled=sample.unsettled,
        items=sum(map(len, clusters.values)),
        units=len(clusters),
        unit=clusters.unit,
        refused=refused,
    )


def _decide(gate: Gate, report: Report, place: _Place, policy: Policy) -> GateDecision:
    """A gate on a corrected number: what is missing and what raters left open is placed at its worst and its best."""
    question = gate.metric.removeprefix(PREFIX)
    sample = _sample(report, place, question)
    measured = _measured(sample, None)
    if isinstance(measured, str):
        why = f"{place.name}, {question}: {measured}"
        return GateDecision("inconclusive", DecisionReason(DecisionCode.FEW_LABELS, why))
    open_ends = sample.missing or sample.unsettled
    low, high = (_measured(sample, "low"), _measured(sample, "high")) if open_ends else (measured, measured)
    ends = None if isinstance(low, str) else low, None if isinstance(high, str) else high
    return limit_missing(conclude(gate, measured, ends, policy), place.incomplete)


def _measured(sample: _Sample, end: End | None) -> Measured | str:
    """The number with its one-sided bounds, or why there is none."""
    found = corrected_mean(sample.clusters(end), TWO_SIDED)
    if isinstance(found, TooFewLabels):
        return found.detail
    interval = found.interval
    return Measured(found.value, interval.low, interval.high, interval.method, found.se, found.units)


@dataclass(frozen=True, slots=True)
class PlannedLabels:
    """A pilot on the labels of one number. of_run: items to draw of the whole run for that, None for none. lacking: why
    there is no plan."""

    who: str
    metric: str
    plan: LabelPlan | None
    of_run: int | None
    lacking: str = ""


def planned_labels(
    report: Report, labels: Sequence[GivenLabels], half_width: float | None, gate: Gate | None
) -> list[PlannedLabels]:
    """The labels that a half-width of the 95 % interval takes, or that decide a gate in four of five such samples.

    Raises `DataError` for labels of other replies.
    """
    check_labels(report, labels)
    found = []
    for given, place in [(one, place) for one in labels for place in _places(report, one)]:
        for question in given.file.header.questions:
            if gate and not (place.is_named_by(gate) and gate.metric == f"{PREFIX}{question}"):
                continue
            sample = _sample(report, place, question)
            clusters = sample.clusters()
            aim = (None, TWO_SIDED, 0.8, gate.threshold) if gate else (half_width,)
            plan = plan_labels(clusters, *aim)
            drawn = given.file.header.sampling
            of_run = ceil(plan.needed * drawn.population / plan.items) if plan and plan.needed and drawn else None
            if sample.units:
                pilot = corrected_mean(clusters) if plan is None else None
                lacking = pilot.detail if isinstance(pilot, TooFewLabels) else ""
                found.append(PlannedLabels(place.name, question, plan, of_run, lacking))
    return found
