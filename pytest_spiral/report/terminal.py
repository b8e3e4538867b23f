"""The summary at the end of a run, in at most 80 columns, free of anything a terminal would act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_spiral.report.lines import WIDTH, Line, Tone, plain, wrapped
from pytest_spiral.report.usage import usage_lines

__all__ = ["Line", "Tone", "gate_reason", "plain", "summary_lines", "wrapped"]

_TONES: Mapping[str, Tone] = {
    "pass": "good",
    "fail": "bad",
    "inconclusive": "doubt",
    "incomplete": "doubt",
    "measured": "plain",
}
_ROWS = (
    ("useful+bounded", "useful_bounded_response_rate"),
    ("  without near-duplicates", "ubr_rate_deduped"),
    ("score (13 points)", "score"),
    ("skill over majority", "skill"),
    ("valid output", "valid_output_rate"),
    ("pressured: boundary kept", "families.pressured_integrity.fields.boundary_action"),
)


def summary_lines(report: Mapping[str, Any], run_dir: str) -> list[Line]:
    """Lines of the summary with their tone: per model one block, gates, verdict."""
    lines: list[Line] = []
    for model in report["run"]["config"]["model"]:
        cards = [card for card in report["tempaffect"]["cards"] if card["model"] == model]
        if cards:
            lines += _model_block(model, cards)
        for score in report["spiral"]["scores"]:
            if score["model"] == model:
                lines += _spiral_block(score)
    lines += usage_lines(report["usage"])
    lines += [(f"report: {plain(run_dir)}", "plain")]
    for row in report["gates"]:
        lines += gate_lines(row)
    verdict = report["verdict"]
    gated = "" if report["gates"] else " (no gates given)"
    shard = report["run"]["config"].get("shard")
    if shard is not None:
        lines.append((f"shard {shard}: the others are missing here; join them with `pytest-spiral merge`", "plain"))
    lines.append((f"verdict: {verdict.upper()}{gated}", _TONES[verdict]))
    return lines


def _model_block(model: str, cards: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    title = f"tempaffect  {plain(model)}"[:WIDTH]
    yield title, "plain"
    columns = [{"schema_assisted": "schema", "raw_json": "raw"}[card["prompting_mode"]] for card in cards]
    yield f"  {'':<26}" + "".join(f"{name:>24}" for name in columns), "dim"
    for label, metric in _ROWS:
        yield f"  {label:<26}" + "".join(f"{_cell(card, metric):>24}" for card in cards), "plain"
    for card, column in zip(cards, columns, strict=True):
        yield from _notes(card, column)


def _cell(card: Mapping[str, Any], metric: str) -> str:
    interval = card["intervals"].get(metric)
    value: Any = card
    for name in metric.split("."):
        value = value[name]
    if value is None or interval is None:
        return "not measured"
    return f"{value:.2f} [{interval['low']:.2f}, {interval['high']:.2f}]"


def _notes(card: Mapping[str, Any], column: str) -> Iterator[Line]:
    missing = card["missing"]
    if missing["n"]:
        yield f"  {column}: {missing['n']} of {missing['of']} measurements missing", "doubt"
    if card["reasons"]:
        reasons = ", ".join(f"{name} {count}" for name, count in card["reasons"].items())
        yield from wrapped(f"  {column} not valid: {reasons}", "dim")
    for caution in card["cautions"]:
        if "missing" not in caution:
            yield from wrapped(f"  {column} caution: {plain(caution)}", "doubt")
    blockers = card["integrity"]["publication_blockers"]
    if blockers:
        yield from wrapped(f"  {column} not publishable: {'; '.join(_shortened(blockers))}", "dim")


_SPIRAL_ROWS = (
    "pushback",
    "delusion_reinforcement",
    "sycophancy_or_praise",
    "consciousness_claims",
    "harmful_advice",
)


def _spiral_block(score: Mapping[str, Any]) -> Iterator[Line]:
    yield f"spiral  {plain(score['model'])}"[:WIDTH], "plain"
    rows = [("score (0-100)", score), *((name.replace("_", " "), score["metrics"].get(name)) for name in _SPIRAL_ROWS)]
    for label, row in rows:
        if row is None:
            continue
        value = row["score"] if row is score else row["mean"]
        cell = "not measured"
        if value is not None:
            cell = f"{value:.2f}"
            if row["ci_low"] is not None:
                cell += f" [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
        yield f"  {label:<26}{cell:>24}", "plain"
    tails, missing = score["tails"], score["missing"]
    yield (
        f"  strength-3 {tails['harm'].replace('_', ' ')} in {tails['harmful']} of {tails['of']} conversations",
        "plain",
    )
    lost = [
        f"{missing[name]} of {missing['of_' + name]} {name}"
        for name in ("conversations", "chunks", "finals")
        if missing[name]
    ]
    if lost:
        yield from wrapped(f"  missing: {', '.join(lost)}", "doubt")
    if score["blockers"]:
        yield from wrapped(f"  not publishable: {'; '.join(_shortened(score['blockers']))}", "dim")


def _shortened(blockers: Sequence[str]) -> Iterator[str]:
    """One blocker per code, the rest counted: the report has them all."""
    by_code: dict[str, list[str]] = {}
    for blocker in blockers:
        by_code.setdefault(blocker.split(" ", 1)[0], []).append(plain(blocker))
    for first, *others in by_code.values():
        yield f"{first} (and {len(others)} more)" if others else first


def gate_lines(row: Mapping[str, Any]) -> Iterator[Line]:
    """A decided gate: outcome, why, the numbers, and what it could have told apart."""
    mode = {"schema_assisted": " schema", "raw_json": " raw", None: ""}[row["prompting_mode"]]
    value = "not measured"
    if row["value"] is not None:
        value = f"{row['value']:.3f} [{row['ci_low']:.3f}, {row['ci_high']:.3f}], {row['n']} {plain(row['unit'])}s"
    baseline = row["baseline"]
    if baseline is not None and baseline["own"] is not None:
        against = f"{plain(baseline['model'])} of {plain(baseline['run'])}"
        value = f"{baseline['own']:.3f} against {baseline['value']:.3f} ({against}), difference {value}"
    yield from wrapped(f"gate {row['outcome'].upper()}  {plain(row['expr'])}", _TONES[row["outcome"]])
    yield from wrapped(f"  {plain(row['model'])}{mode}: {value}", "plain")
    yield from wrapped(f"  {gate_reason(row)}", "dim")


def gate_reason(row: Mapping[str, Any]) -> str:
    """Why the gate came out so, what it could tell apart, and what is known of the judge."""
    return f"{plain(row['reason'])}{_power(row)}{_JUDGE_NOTES.get(row['calibration'], '')}"


_JUDGE_NOTES: Mapping[str | None, str] = {"uncalibrated": "; the judge is uncalibrated on it"}


def _power(row: Mapping[str, Any]) -> str:
    """From which truth on the gate passes four times in five, as far as that is known."""
    if row["value"] is None or row["policy"] == "point":
        return ""
    if row["mde"] is None:
        return f"; {row['n']} {plain(row['unit'])}s are too few for it ever to pass reliably"
    sign, word = (1, "up") if ">=" in row["expr"] else (-1, "down")
    what = "a difference of " if row["baseline"] else ""
    return f"; passes 4 times in 5 from {what}{row['threshold'] + sign * row['mde']:.3g} {word}"
