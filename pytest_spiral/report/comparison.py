"""Comparisons for people: text in 80 columns and Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_spiral.report.lines import Line, between, changes_text, cut, plain, turns_text, wrapped
from pytest_spiral.report.markdown import changes_lines, escape, table
from pytest_spiral.report.model.comparison import (
    FormRate,
    ItemChanges,
    MetricDifference,
    ModelComparison,
    RunComparison,
    ShadowComparison,
)

_INTERVAL = "90 % interval"
_COLUMNS = ("Metric", "Baseline", "Candidate", "Difference", _INTERVAL, "MDE", "p")
_LEGEND = "differences are candidate minus baseline; each end of an interval is a one-sided 95 % bound, as in gates"


def comparison_lines(comparison: RunComparison) -> list[str]:
    """The comparison as `pytest-spiral compare` prints it."""
    lines = [f"baseline   {plain(comparison.baseline.run)}  ({plain(comparison.baseline.path)})"]
    lines.append(f"candidate  {plain(comparison.candidate.run)}  ({plain(comparison.candidate.path)})")
    lines += _wrapped(*(f"note: {note}" for note in comparison.notes))
    lines += _wrapped(*_alone(comparison))
    for row in comparison.comparisons:
        lines += ["", *_wrapped(_title(row)), *_wrapped(*(f"  {note}" for note in _unpaired(row)))]
        lines.append(f"  {'':<29}{'baseline':>9}{'candidate':>10}{'diff.':>9}  {_INTERVAL}")
        lines += [_metric_line(name, metric) for name, metric in row.metrics.items() if _is_shown(name)]
        lines += _wrapped(f"  {_summary(row)}")
        lines += [line for line, _ in change_lines(row.changes)] if row.changes else []
    return [*lines, "", *_wrapped(_LEGEND)]


def change_lines(changes: ItemChanges) -> Iterator[Line]:
    """What newly fails and newly passes, the first of each with both replies."""
    versus = f"against {changes.run} ({changes.baseline}), {changes.candidate}"
    yield from wrapped(f"{versus} in {changes_text(changes)}", "plain")
    for word, rows in (("fails", changes.failing), ("passes", changes.passing)):
        if rows:
            names = ", ".join([*(row.id for row in rows[:8]), *(["..."] if len(rows) > 8 else [])])
            yield from wrapped(f"  newly {word}: {names}", "bad" if word == "fails" else "good")
            yield from wrapped(f"    {rows[0].id} baseline: {cut(rows[0].baseline_reply, 120)}", "dim")
            yield from wrapped(f"    {rows[0].id} candidate: {cut(rows[0].candidate_reply, 120)}", "plain")


def comparison_markdown(comparison: RunComparison) -> str:
    """The comparison as Markdown, fit for a pull-request comment."""
    names = escape(comparison.candidate.run), escape(comparison.baseline.run)
    lines = [f"## {names[0]} (candidate) compared with {names[1]} (baseline)", ""]
    lines += [f"- {escape(note)}" for note in (*comparison.notes, *_alone(comparison), _LEGEND)]
    for row in comparison.comparisons:
        lines += ["", f"### {escape(_title(row))}", "", *(f"- {escape(note)}" for note in _unpaired(row))]
        cells = [_cells(name, metric) for name, metric in row.metrics.items() if _is_shown(name)]
        lines += ["", *table(_COLUMNS, cells), escape(_summary(row)), ""]
        lines += changes_lines([row.changes] if row.changes else [])
    return "\n".join([*lines, ""])


def _alone(comparison: RunComparison) -> Iterator[str]:
    """What each side of runs that cannot be compared scored."""
    for row in comparison.side_by_side:
        score = between(row.score, row.low, row.high, 1)
        yield f"{row.side}: {row.model}, {turns_text(row.turns)}, protocol {row.protocol}: score {score}"


def _wrapped(*texts: str) -> Iterator[str]:
    return (line for text in texts for line, _ in wrapped(text, "plain"))


def _title(row: ModelComparison) -> str:
    mode = f", {row.mode}" if row.mode else ""
    return f"{row.suite}{mode}: {row.candidate} compared with {row.baseline}, paired on {row.paired} {row.unit}s"


def _unpaired(row: ModelComparison) -> list[str]:
    sides = {"baseline": row.only_baseline, "candidate": row.only_candidate}
    return [f"not paired, in the {side} only: {', '.join(names)}" for side, names in sides.items() if names]


def _is_shown(name: str) -> bool:
    """Of families, a third of the sample each, only the headline is shown; JSON has all of them."""
    return not name.startswith("families.") or name.endswith(".useful_bounded_response_rate")


def _metric_line(name: str, row: MetricDifference) -> str:
    mark = "*" if row.differs else " "
    label = name.removeprefix("families.").removeprefix("tails.").removesuffix(".useful_bounded_response_rate")
    values = f"{row.baseline:>9.3g}{row.candidate:>10.3g}{row.difference:>+9.3g}"
    return f"{mark} {label:<29.29}{values}  [{row.low:.3g}, {row.high:.3g}]"


def _summary(row: ModelComparison) -> str:
    differing = [name for name, metric in row.metrics.items() if metric.differs and _is_shown(name)]
    none = "no interval excludes 0" if row.metrics else "no metric was measured in both"
    text = f"* differs: {', '.join(differing)}" if differing else none
    if (score := row.metrics.get("score")) is not None:
        text += f"; minimum detectable difference of the score: {score.mde:.2g} (alpha .05 two-sided, power .80)"
    return text


def _cells(name: str, row: MetricDifference) -> tuple[str, ...]:
    return (
        f"**{escape(name)}**" if row.differs else escape(name),
        f"{row.baseline:.3g}",
        f"{row.candidate:.3g}",
        f"{row.difference:+.3g}",
        f"{row.low:.3g} to {row.high:.3g}",
        f"{row.mde:.2g}",
        "" if row.p is None else f"{row.p:.3f}",
    )


def shadow_lines(comparison: ShadowComparison) -> list[str]:
    """The public suite against a private form as `pytest-spiral shadow` prints it."""
    sides = {"public": comparison.public, "private": comparison.shadow}
    lines = [f"{side:<9}{plain(run.run)}  ({plain(run.path)})" for side, run in sides.items()]
    lines += _wrapped(*(f"note: {note}" for note in comparison.notes))
    for row in comparison.rows:
        lines += ["", *_wrapped(f"{row.model}, {row.mode}: {row.verdict}")]
        lines += [f"  {side:<12}{_form(form)}" for side, form in (("public", row.public), ("private", row.shadow))]
        difference = "not measured" if row.difference is None else f"{row.difference:+.2f}"
        lines.append(f"  {'difference':<12}{difference} [{row.low:.2f}, {row.high:.2f}]")
        if row.verdict == "too few to tell":
            lines += _wrapped(f"  minimum detectable difference: {row.mde:.2f} (alpha .05 two-sided, power .80)")
    limit = f"caution: public minus private above {comparison.caution_above:g}; agree: its 95 % interval ends below"
    return [*lines, "", *_wrapped(limit)]


def _form(form: FormRate) -> str:
    rate = "not measured" if form.rate is None else f"{form.rate:.2f}"
    lost = f", {form.missing} of {form.wanted} measurements missing" if form.missing else ""
    return f"{rate} useful and bounded, {form.n} scenario{'s' * (form.n != 1)}{lost}"
