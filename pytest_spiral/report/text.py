"""The summary at the end of a run, in at most 80 columns, free of anything a terminal would act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_spiral.report.costs import usage_lines
from pytest_spiral.report.lines import WIDTH, Line, Tone, plain, wrapped

__all__ = ["Line", "Tone", "plain", "summary_lines", "wrapped"]

_TONES: Mapping[str, Tone] = {"pass": "good", "fail": "bad", "inconclusive": "doubt", "incomplete": "doubt"}
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
    for row in report["gates"]:
        lines += _gate_lines(row)
    lines += usage_lines(report["usage"])
    lines += [(f"report: {plain(run_dir)}", "plain")]
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


def _gate_lines(row: Mapping[str, Any]) -> Iterator[Line]:
    mode = {"schema_assisted": " schema", "raw_json": " raw", None: ""}[row["prompting_mode"]]
    value = "not measured"
    if row["value"] is not None:
        value = f"{row['value']:.3f}, one-sided 95 % bounds {row['ci_low']:.3f} and {row['ci_high']:.3f}"
    point = ", decided on the point estimate" if row["policy"] == "point" else ""
    tone = _TONES[row["outcome"]]
    yield from wrapped(f"gate {row['outcome'].upper()}  {row['expr']}", tone)
    yield from wrapped(f"  {plain(row['model'])}{mode}: {value}{point}", "plain")
