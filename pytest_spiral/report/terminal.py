"""What a terminal shows, in at most 80 columns: the plan of a run, its summary, a calibration of judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_spiral.grouping import grouped
from pytest_spiral.report.comparison import change_lines
from pytest_spiral.report.decision import DecidedGate, decision_of
from pytest_spiral.report.lines import (
    CARD_METRICS,
    WIDTH,
    Line,
    Tone,
    against,
    anchoring_text,
    balance_text,
    between,
    cut,
    number_text,
    plain,
    prefix_numbers,
    scheme_text,
    scorer_range_text,
    skill_text,
    turns_text,
    weights_text,
    worst_text,
    wrapped,
)
from pytest_spiral.report.model import Card, Drift, FailedPart, Report, Score, Usage, Verdict
from pytest_spiral.report.next_step import judge_again, run_directory
from pytest_spiral.report.raters import corrected_lines, judge_lines
from pytest_spiral.spiral.calibration import standing
from pytest_spiral.tempaffect.records import MODES

if TYPE_CHECKING:
    from pytest_spiral.report.model.floor import Floor
    from pytest_spiral.run.estimate import CostEstimate
    from pytest_spiral.spiral.calibration import CalibrationResult

_TONES: Mapping[Verdict, Tone] = {
    "pass": "good",
    "fail": "bad",
    "inconclusive": "doubt",
    "incomplete": "doubt",
    "measured": "plain",
}
_MOST_BLOCKERS = 4
_MOST_FAILED = 6


def summary_lines(report: Report, run_dir: str) -> list[Line]:
    """The numbers of a report, each line with its tone. run_dir: where the report was written."""
    lines: list[Line] = []
    for model in report.models:
        lines += _card_lines(model, [card for card in report.tempaffect.cards if card.model == model])
        for score in report.spiral.scores:
            lines += _score_lines(score, report.spiral.floor) if score.model == model else []
    if report.corrected is not None:
        lines += corrected_lines(report.corrected)
    if report.reply_judges is not None:
        lines += judge_lines(report.reply_judges, run_dir)
    if (stability := report.spiral.weights) is not None:
        lines += wrapped(weights_text(stability), "dim")
    for note in report.run.notes:
        lines += wrapped(f"caution: {note}", "doubt")
    lines += _usage_lines(report.usage)
    lines.append((f"report: {plain(run_dir)}", "plain"))
    if any(score.missing.chunks or score.missing.finals for score in report.spiral.scores):
        step = judge_again(report)
        lines += wrapped(f"missing judgements: resume with the same --run-id, or {step.why}", "plain")
        lines.append((f"  {step.command}", "plain"))
    return lines


def decision_lines(report: Report) -> list[Line]:
    """The block that ends a run: verdict, gates, worst items, changes, what is missing and why, the next command."""
    decision = decision_of(report)
    note = "" if report.gates else " (no gates)"
    lines: list[Line] = [(f"verdict: {report.verdict.upper()}{note}", _TONES[report.verdict])]
    lines += wrapped(decision.words, _TONES[report.verdict])
    lines += wrapped(decision.tests, "dim") if decision.tests else []
    if recipe := report.run.config.gate_recipe:
        lines.append((f"gates of the recipe {plain(recipe)}", "plain"))
    for gate in decision.gates:
        lines += gate_lines(gate)
    lines += [("worst items", "plain")] if decision.worst else []
    for worst in decision.worst:
        lines += wrapped(f"  {worst.model}, {worst.where}: {cut(worst.what, 150)}", "bad")
        lines += wrapped(f"    user: {worst.message}", "dim") if worst.message else []
        lines += wrapped(f"    model: {worst.quote}", "plain")
    if any(worst.is_cut for worst in decision.worst):
        lines += wrapped(f"  in full: report.html in {run_directory(report)}", "dim")
    for changes in report.changes:
        lines += change_lines(changes)
    for cause in decision.causes:
        first = f" (first: {cause.first})" if cause.first else ""
        lines += wrapped(f"missing: {cause.count} {cause.what}: {cut(cause.text, 200)}{first}", "bad")
    if decision.more:
        lines.append((f"missing: {decision.more} for other reasons, see the report", "bad"))
    lines += failed_lines(report.failed_parts)
    if decision.next is not None:
        # The command is to be pasted, so it is not wrapped.
        lines += [*wrapped(f"next: {decision.next.why}", "plain"), (f"  {decision.next.command}", "plain")]
    return lines


def failed_lines(failed: Sequence[FailedPart]) -> Iterator[Line]:
    """The parts of a report that could not be made."""
    for part in failed[:_MOST_FAILED]:
        yield from wrapped(f"FAILED {part.part}: {part.code.value}: {part.detail}", "bad")
    if len(failed) > _MOST_FAILED:
        yield f"  {len(failed) - _MOST_FAILED} more failed parts: see failed_parts in report.json", "bad"


def _heading(suite: str, model: str, wrapped: bool) -> str:
    note = " (wrapped)" if wrapped else ""
    return f"{suite}  {plain(model)}"[: WIDTH - len(note)] + note


def _row(label: str, *cells: str) -> Line:
    return f"  {label:<26}" + "".join(f"{cell:>24}" for cell in cells), "plain"


def _card_lines(model: str, cards: Sequence[Card]) -> Iterator[Line]:
    if not cards:
        return
    yield _heading("tempaffect", model, cards[0].wrapped), "plain"
    yield _row("", *(MODES[card.prompting_mode] for card in cards))[0], "dim"
    for label, metric in CARD_METRICS:
        yield _row(label, *(between(*card.bounded(metric)) for card in cards))
    for card in cards:
        mode = MODES[card.prompting_mode]
        if found := card.useful_bounded_range:
            yield from wrapped(f"  {mode}: {scorer_range_text(found)}", "dim")
        for caution in card.cautions:
            yield from wrapped(f"  {mode} caution: {caution}", "doubt")
        if reasons := ", ".join(f"{code} {count}" for code, count in card.reasons.items()):
            yield from wrapped(f"  {mode} without a valid reply: {reasons}", "dim")
        if card.integrity.publication_blockers:
            yield from wrapped(f"  {mode} not publishable: {_shortened(card.integrity.publication_blockers)}", "dim")


def _score_lines(score: Score, floor: Floor | None) -> Iterator[Line]:
    yield _heading("spiral", score.model, score.wrapped), "plain"
    if score.judges.health.no_verdict:
        why = f"the judges leave no verdict ({'; '.join(score.judges.health.faults)})"
        yield from wrapped(f"  {why}; what follows is what they said", "doubt")
    yield from _prefix_lines(score, floor)
    yield from _headline_lines(score)
    yield _row("score (0-100)", between(score.score, score.ci_low, score.ci_high))
    yield from wrapped(f"  {skill_text(score.skill, floor)}", "plain" if score.skill else "dim")
    for scheme in score.by_protocol.values():
        yield from wrapped(f"  {scheme_text(scheme)}", "dim")
    scored = [(name, row) for name, row in score.metrics.items() if row.kind == "behaviour" and row.weight]
    shown = ((between(row.mean, row.ci_low, row.ci_high), name.replace("_", " ")) for name, row in scored)
    # Most rubrics look for many that one model shows none of.
    for number, names in grouped(shown).items():
        yield from wrapped(f"  {number}: {', '.join(names)}", "plain") if names[1:] else [_row(names[0], number)]
    tails, missing = score.tails, score.missing
    of = f"{tails.of} conversations of {turns_text(score.turns)}"
    by_any = ", by any judge" if len(score.judges.per_judge) > 1 else ""
    yield f"  strength-3 {tails.harm.replace('_', ' ')} in {tails.harmful} of {of}{by_any}", "plain"
    counts = (
        (missing.conversations, missing.of_conversations, "conversations"),
        (missing.chunks, missing.of_chunks, "chunk judgements"),
        (missing.finals, missing.of_finals, "final judgements"),
    )
    if lost := [f"{n} of {of} {what}" for n, of, what in counts if n]:
        yield from wrapped(f"  missing: {', '.join(lost)}", "doubt")
    if score.blockers:
        yield from wrapped(f"  not publishable: {_shortened(score.blockers)}", "dim")


def _prefix_lines(score: Score, floor: Floor | None) -> Iterator[Line]:
    """What leads the score of replies to prefixes, with what constant answers get beside it."""
    if score.prefix is None:
        return
    yield from (_row(label, number_text(number)) for label, number in prefix_numbers(score.prefix))
    for text in (balance_text(floor), anchoring_text(score.prefix)):
        yield from wrapped(f"  {text}", "dim")


def _headline_lines(score: Score) -> Iterator[Line]:
    """What leads the score: no act pays for another one in it."""
    if (lead := score.headline) is None:
        return
    for name, number in (("risk", lead.risk), ("protection", lead.protection), ("nagging", lead.nagging)):
        if number.value is not None or name == "risk":
            yield _row(f"{name} (0-100)", number_text(number))
    if score.prefix is None:
        over = score.over_correction
        yield _row("over-correction (0-1)", number_text(over.number) if over else "not measured")
    most = "" if lead.worst.ci_high is None else f", at most {100 * lead.worst.ci_high:.1f} % of all"
    by_any = " by any judge" if len(score.judges.per_judge) > 1 else ""
    yield from wrapped(f"  worst (strength-3 harm or reinforcement) in {worst_text(lead)}{by_any}{most}", "plain")


def _shortened(blockers: Sequence[str]) -> str:
    """The first few blockers: the report lists all."""
    more = [f"{len(blockers) - _MOST_BLOCKERS} more"] if len(blockers) > _MOST_BLOCKERS else []
    return "; ".join([*blockers[:_MOST_BLOCKERS], *more])


def gate_lines(gate: DecidedGate) -> Iterator[Line]:
    """A gate: outcome, numbers, reason, and where it is open what would decide it."""
    row = gate.row
    of = "" if row.value is None else f", {row.n} {row.unit}{'s' * (row.n != 1)}"
    value, baseline = between(row.value, row.ci_low, row.ci_high, 3) + of, row.baseline
    if baseline is not None and baseline.own is not None and baseline.value is not None:
        whose = f"{baseline.value:.3f} ({baseline.model} of {baseline.run})"
        value = f"{baseline.own:.3f}, baseline {whose}, difference {value}"
    mode = f" {MODES[row.prompting_mode]}" if row.prompting_mode else ""
    yield from wrapped(f"gate {row.outcome.upper()}  {row.expr}", _TONES[row.outcome])
    yield from wrapped(f"  {row.model}{mode}: {value}", "plain")
    yield from wrapped(f"  {gate.why}", "dim")
    yield from wrapped(f"  {gate.decides}", "doubt")


def _usage_lines(usage: Usage) -> Iterator[Line]:
    """What a run used, by role; nothing where no tokens were counted."""
    counted = any(row.prompt_tokens or row.completion_tokens for row in usage.by_role.values())
    if not counted and not usage.missing_prices and not usage.not_run_for_cost:
        return
    yield f"{'usage':<14}{'requests':>9}{'prompt':>13}{'cached':>8}{'completion':>13}{'USD':>12}", "dim"
    for role, row in usage.by_role.items():
        cached = "" if row.cached_share is None else f"{row.cached_share:.0%}"
        counts = f"{row.requests:>9,}{row.prompt_tokens:>13,}{cached:>8}{row.completion_tokens:>13,}"
        yield f"  {role:<12}{counts}{_usd(row.cost_usd, 12)}", "plain"
        if row.with_reasoning:
            tokens = f" ({row.reasoning_tokens:,} tokens)" if row.reasoning_tokens else ""
            yield f"  {row.with_reasoning:,} replies came with reasoning{tokens}, which is not judged", "dim"
    limit = usage.max_cost_usd
    if usage.cost_usd is not None and (limit is not None or len(usage.by_role) > 1):
        of = "" if limit is None else f" (limit {limit:g})"
        yield f"  cost {usage.cost_usd:.4f} USD{of}", "plain"
    if usage.not_run_for_cost:
        text = f"  {usage.not_run_for_cost} not run because of --max-cost; resume with --run-id and a higher limit"
        yield from wrapped(text, "doubt")
    yield from _price_notes(usage.missing_prices, usage.unchecked_prices)


def plan_lines(estimates: Sequence[CostEstimate]) -> Iterator[Line]:
    """The plan of a run: calls, tokens and cost by role and model."""
    if not estimates:
        yield "plan: no calls", "plain"
        return
    yield f"{'plan':<28}{'calls':>8}{'prompt':>12}{'completion':>12}{'USD':>10}{'at most':>10}", "dim"
    for row in estimates:
        tokens = f"{row.calls:>8,}{row.prompt_tokens:>12,}{row.completion_tokens:>12,}"
        name = f"{row.role} {plain(row.model)}"
        name = name if len(name) < 28 else f"{name[:26]}~"
        yield f"{name:<28}{tokens}{_usd(row.cost_usd)}{_usd(row.most_usd)}", "plain"
    calls = sum(row.calls for row in estimates)
    prompt = sum(row.prompt_tokens for row in estimates)
    completion = sum(row.completion_tokens for row in estimates)
    costs = ([row.cost_usd for row in estimates], [row.most_usd for row in estimates])
    totals = (_usd(None if None in column else sum(filter(None, column))) for column in costs)
    yield f"{'total':<28}{calls:>8,}{prompt:>12,}{completion:>12,}{''.join(totals)}", "plain"
    yield from wrapped(
        "USD: with replies of typical length. At most: with every reply as long as its token limit allows. Retries "
        "and prompt caching are not included. Nothing was sent.",
        "dim",
    )
    for row in (row for row in estimates if row.reasoning_tokens):
        how = "as preflight counted" if row.is_counted else "assumed (reasoning_tokens in spiral.toml)"
        yield from wrapped(
            f"  {row.role} {plain(row.model)}: {row.reasoning_tokens:,} tokens of reasoning in a reply, {how}", "dim"
        )
    listed = {row.model: row.price for row in estimates if row.cost_usd and row.price and row.price.unchecked}
    yield from _price_notes(
        sorted({row.model for row in estimates if row.cost_usd is None}),
        [f"{name} ({price.as_of or price.source})" for name, price in sorted(listed.items())],
    )


def _price_notes(missing: Sequence[str], unchecked: Sequence[str]) -> Iterator[Line]:
    if missing:
        yield from wrapped(f"  no price known for {', '.join(missing)}: add it to spiral.toml", "doubt")
    if unchecked:
        yield from wrapped(f"  unverified list price for {', '.join(unchecked)}: set the price in spiral.toml", "doubt")


def _usd(cost: float | None, width: int = 10) -> str:
    return f"{'no price':>{width}}" if cost is None else f"{cost:>{width},.4f}" if cost < 10 else f"{cost:>{width},.2f}"


def calibration_lines(run: CalibrationResult, drift: Drift | None) -> Iterator[str]:
    """Sensitivity, specificity and kappa by behaviour, the labels behind them, and the drift since the last time."""
    yield f"judge {run.record.judges[0]} on {run.turns} labelled turns ({run.record.labels})"
    yield against(run.whose)
    yield f"labelled by: {', '.join(f'{name} ({kind})' for name, kind in run.raters.items())}"
    if run.unread:
        yield f"{run.unread} turns without a readable judgement, counted as wrong"
    yield ""
    yield f"{'behaviour':<34}{'with':>6}{'without':>9}{'  sensitivity':<22}{'  specificity':<22}{'  kappa':<22}  result"
    for name, row in run.record.behaviours.items():
        if not row.n:
            yield f"{name:<34}  not labelled"
            continue
        rates = (row.sensitivity, row.specificity, row.kappa)
        cells = "".join(f"  {between(rate.value, rate.low, rate.high) if rate else '-':<20}" for rate in rates)
        verdict = standing(run.record, name)[0].replace("_", " ")
        yield f"{name:<34}{row.positives:>6}{row.negatives:>9}{cells}  {verdict}"
    for lacking, names in grouped((reason, name) for name, reason in run.uncalibrated.items()).items():
        yield f"uncalibrated, {lacking}: {', '.join(names)}"
    if run.kinds:
        alarms = ", ".join(f"{kind} {count.false_alarms} of {count.turns}" for kind, count in run.kinds.items())
        yield from ("", f"turns with a finding that the labels do not have: {alarms}")
    if len(run.raters) > 1:
        yield f"the raters differ on {len(run.disagreements)} turns; --json lists them"
    if drift is None:
        yield "drift: no earlier calibration of this judge on these labels"
    elif not drift.comparable:
        yield "drift: the last calibration used other labels or another rubric"
    else:
        behaviours = ", ".join(drift.drifted) or "no behaviour beyond its interval"
        yield f"drift: {drift.changed or 0:.1%} of the labels changed since the last calibration; {behaviours}"
    yield "publication: blocked" if run.below or run.uncalibrated else "publication: not blocked by calibration"
