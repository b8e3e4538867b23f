"""`summary.md`: the run in one screen, fit for a pull-request comment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_spiral.report.terminal import gate_reason, plain
from pytest_spiral.report.worst import worst_findings

__all__ = ["summary_markdown"]

_PAGE = "report.html"
_QUOTE_CHARS = 300
_MOST_CHARS = 60_000  # GitHub takes 65,536 in a comment
_METRICS = (
    ("Useful and bounded", "useful_bounded_response_rate"),
    ("Useful and bounded, near-duplicates out", "ubr_rate_deduped"),
    ("Score", "score"),
    ("Skill over the majority baseline", "skill"),
    ("Valid output", "valid_output_rate"),
)


def escape(text: str) -> str:
    """Foreign text as inert Markdown: no markup, no HTML, no mentions."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~@:&])", r"\\\1", plain(text)).replace("\\<", "&lt;").replace("\\&", "&amp;")


def summary_markdown(report: Mapping[str, Any]) -> str:
    """The summary as Markdown."""
    run = report["run"]
    about = ["" if report["gates"] else "no gates given", "" if run["complete"] else "interrupted"]
    note = ", ".join(text for text in about if text)
    lines = [f"## pytest-spiral: {report['verdict'].upper()}{f' ({note})' if note else ''}", ""]
    lines += [f"Run `{run['id']}`: [report]({_PAGE}), [conversations]({_PAGE}#talks), [items]({_PAGE}#items)", ""]
    if report["gates"]:
        lines += ["| Gate | Model | Mode | Value | 95 % bounds | Outcome | Why |", "|---|---|---|---|---|---|---|"]
        for row in report["gates"]:
            value = "not measured" if row["value"] is None else f"{row['value']:.3f}"
            bounds = "" if row["value"] is None else f"{row['ci_low']:.3f} to {row['ci_high']:.3f}"
            lines.append(
                f"| `{row['expr'].replace('|', '')}` | {escape(row['model'])} | {row['prompting_mode'] or ''} "
                f"| {value} | {bounds} | {row['outcome']} | {escape(gate_reason(row))} |"
            )
        lines.append("")
    lines += _worst(report)
    cards = report["tempaffect"]["cards"]
    if cards:
        lines += ["### TempAffect 1", "", "| Model | Mode | " + " | ".join(name for name, _ in _METRICS) + " |"]
        lines.append("|---|---" + "|---" * len(_METRICS) + "|")
        for card in cards:
            cells = " | ".join(_cell(card, metric) for _, metric in _METRICS)
            lines.append(f"| {escape(card['model'])} | {card['prompting_mode']} | {cells} |")
        lines.append("")
        for card in cards:
            name = f"{escape(card['model'])}, {card['prompting_mode']}"
            lines += [f"- {name}: {escape(caution)}" for caution in card["cautions"]]
            blockers = card["integrity"]["publication_blockers"]
            lines += [f"- {name}: {text}" for text in _advice(card["variance"]["score"])]
            if blockers:
                lines.append(f"- {name}: not publishable: {escape('; '.join(blockers))}")
        lines.append("")
    if report["spiral"]["scores"]:
        lines += [
            "### Spiral-Bench",
            "",
            "| Model | Protocol | Score | Strength-3 harm | Not measured |",
            "|---|---|---|---|---|",
        ]
        for score in report["spiral"]["scores"]:
            value = "not measured"
            if score["score"] is not None and score["ci_low"] is not None:
                value = f"{score['score']:.1f} ({score['ci_low']:.1f} to {score['ci_high']:.1f})"
            tails, missing = score["tails"], score["missing"]
            lines.append(
                f"| {escape(score['model'])} | {score['protocol']} | {value} | {tails['harmful']} of {tails['of']} "
                f"| {missing['conversations']} of {missing['of_conversations']} |"
            )
        lines.append("")
        for score in report["spiral"]["scores"]:
            lines += [f"- {escape(score['model'])}: {text}" for text in _advice(score["variance"])]
            if score["blockers"]:
                lines.append(f"- {escape(score['model'])}: not publishable: {escape('; '.join(score['blockers']))}")
        lines.append("")
    return _fitting(lines)


def _worst(report: Mapping[str, Any]) -> list[str]:
    """The worst findings with their words, each linked to its place."""
    found = worst_findings(report)
    lines = ["### Worst findings", ""] if found else []
    for worst in found:
        lines += [f"- [{escape(worst.what)}]({_PAGE}#{worst.link}): {escape(worst.model)}, {escape(worst.where)}"]
        quote = worst.quote[:_QUOTE_CHARS] + ("\u2026" if len(worst.quote) > _QUOTE_CHARS else "")
        lines += ["", f"  > {escape(quote)}", ""]
    return lines


def _fitting(lines: list[str]) -> str:
    """As many lines as a comment may hold."""
    kept: list[str] = []
    room = _MOST_CHARS
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return "\n".join([*kept, "", f"The rest stands in [the report]({_PAGE}).", ""])
        kept.append(line)
    return "\n".join(kept)


def _advice(variance: Mapping[str, Any] | None) -> list[str]:
    return [escape(f"next budget: {variance['advice']}")] if variance else []


def _cell(card: Mapping[str, Any], metric: str) -> str:
    interval = card["intervals"].get(metric)
    if card[metric] is None or interval is None:
        return "not measured"
    return f"{card[metric]:.2f} ({interval['low']:.2f} to {interval['high']:.2f})"
