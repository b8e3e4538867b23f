"""Comparisons for people: text in 80 columns and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_spiral.report.lines import plain, wrapped
from pytest_spiral.report.markdown import escape

__all__ = ["comparison_lines", "comparison_markdown", "shadow_lines"]


def comparison_lines(found: Mapping[str, Any]) -> list[str]:
    """The comparison as `pytest-spiral compare` prints it. found: what `--json` prints."""
    lines = [f"A  {plain(found['a']['run'])}  ({plain(found['a']['path'])})"]
    lines.append(f"B  {plain(found['b']['run'])}  ({plain(found['b']['path'])})")
    lines += [line for note in found["notes"] for line, _ in wrapped(f"note: {plain(note)}", "dim")]
    for row in found["comparisons"]:
        lines += ["", *(line for line, _ in wrapped(plain(_title(row)), "plain"))]
        lines += [f"  {line}" for note in _unpaired(row) for line, _ in wrapped(plain(note), "plain")]
        lines.append(f"  {'':<36}{'A':>7}{'B':>8}{'A - B':>8}  95 % interval")
        for name, metric in row["metrics"].items():
            if _is_shown(name):
                lines += _metric_lines(name, metric)
        lines += [line for line, _ in wrapped(f"  {_verdict(row)}", "plain")]
    return lines


def _title(row: Mapping[str, Any]) -> str:
    mode = f", {row['mode']}" if row["mode"] else ""
    return f"{row['suite']}{mode}: {row['first']} against {row['second']}, paired on {row['paired']} {row['unit']}s"


def _unpaired(row: Mapping[str, Any]) -> list[str]:
    found = []
    for side, key in (("A", "only_first"), ("B", "only_second")):
        if row[key]:
            found.append(f"not paired, measured in {side} alone: {', '.join(row[key])}")
    return found


def _is_shown(name: str) -> bool:
    """Families are for the JSON, but for their headline: each is a third of the sample."""
    return not name.startswith("families.") or name.endswith(".useful_bounded_response_rate")


def _metric_lines(name: str, row: Mapping[str, Any]) -> list[str]:
    mark = "*" if row["differs"] else " "
    label = name.removeprefix("families.").removeprefix("tails.").removesuffix(".useful_bounded_response_rate")
    interval = f"[{row['low']:.3g}, {row['high']:.3g}]"
    return [f"{mark} {label:<36.36}{row['first']:>7.3g}{row['second']:>8.3g}{row['difference']:>+8.3g}  {interval}"]


def _verdict(row: Mapping[str, Any]) -> str:
    differing = [name for name, metric in row["metrics"].items() if metric["differs"] and _is_shown(name)]
    text = f"* differs: {', '.join(differing)}" if differing else "no metric differs beyond its interval"
    score = row["metrics"].get("score")
    if score is not None:
        text += (
            f"; on the score such a pair finds a difference of {score['mde']:.2g} in four runs of five (alpha .05, "
            "two-sided)"
        )
    return text


def comparison_markdown(found: Mapping[str, Any]) -> str:
    """The comparison as Markdown, fit for a pull-request comment."""
    lines = [f"## {escape(found['a']['run'])} (A) against {escape(found['b']['run'])} (B)", ""]
    lines += [f"- {escape(note)}" for note in found["notes"]]
    for row in found["comparisons"]:
        lines += ["", f"### {escape(_title(row))}", "", *(f"- {escape(note)}" for note in _unpaired(row))]
        lines += ["", "| Metric | A | B | A - B | 95 % interval | MDE | p |", "|---|---|---|---|---|---|---|"]
        lines += [_markdown_row(name, metric) for name, metric in row["metrics"].items() if _is_shown(name)]
        lines += ["", escape(_verdict(row))]
    return "\n".join([*lines, ""])


def _markdown_row(name: str, row: Mapping[str, Any]) -> str:
    p = "" if row["p"] is None else f"{row['p']:.3f}"
    cells: Sequence[str] = (
        f"**{escape(name)}**" if row["differs"] else escape(name),
        f"{row['first']:.3g}",
        f"{row['second']:.3g}",
        f"{row['difference']:+.3g}",
        f"{row['low']:.3g} to {row['high']:.3g}",
        f"{row['mde']:.2g}",
        p,
    )
    return f"| {' | '.join(cells)} |"


def shadow_lines(found: Mapping[str, Any]) -> list[str]:
    """The public suite against a private form as `pytest-spiral shadow` prints it. found: what `--json` prints."""
    lines = [f"{side:<8}{plain(found[side]['run'])}  ({plain(found[side]['path'])})" for side in ("public", "shadow")]
    lines += [line for note in found["notes"] for line, _ in wrapped(f"note: {plain(note)}", "dim")]
    for row in found["rows"]:
        difference = "not measured" if row["difference"] is None else f"{row['difference']:+.2f}"
        title = f"{plain(row['model'])}, {row['mode']}: {row['verdict']}"
        lines += ["", *(line for line, _ in wrapped(title, "plain"))]
        lines += [f"  {side:<12}{_form(row[side])}" for side in ("public", "shadow")]
        lines.append(f"  {'difference':<12}{difference} [{row['low']:.2f}, {row['high']:.2f}]")
        if row["verdict"] == "too few to tell":
            text = f"  in four of five such pairs (alpha .05, two-sided) a difference of {row['mde']:.2f} would be seen"
            lines += [line for line, _ in wrapped(text, "plain")]
    limit = f"caution: public minus shadow over {found['caution_above']:g}; agree: its 95 % interval ends below"
    return [*lines, "", *(line for line, _ in wrapped(limit, "dim"))]


def _form(form: Mapping[str, Any]) -> str:
    rate = "not measured" if form["rate"] is None else f"{form['rate']:.2f}"
    lost = f", {form['missing']} of {form['wanted']} measurements missing" if form["missing"] else ""
    return f"{rate} useful and bounded, {form['n']} scenarios{lost}"
