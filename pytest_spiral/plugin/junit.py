"""What JUnit XML says beyond passed and failed: properties of the run and of each item, as strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_spiral.report.lines import plain

__all__ = ["add_suite_properties", "item_properties"]


def item_properties(suite: str, result: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Properties of a test case: state, and score or number of findings where there is one."""
    found: list[tuple[str, object]] = [("spiral.status", str(result["status"]))]
    if suite == "spiral":
        findings = [finding for judgement in result["judgements"] for finding in judgement["findings"]]
        return [*found, ("spiral.findings", str(len(findings)))]
    if result["score"] is not None:
        found += [
            ("spiral.score", f"{result['score']:.4f}"),
            ("spiral.useful_bounded", str(result["useful_bounded"]).lower()),
        ]
    if result["reason"]:
        found.append(("spiral.reason", str(result["reason"]["code"])))
    return found


def add_suite_properties(config: pytest.Config, report: Mapping[str, Any]) -> None:
    """Properties of the whole: run, verdict, scores with intervals, gates. Nothing where no XML is written."""
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    for name, value in _suite_properties(report):
        xml.add_global_property(plain(name), plain(value))


def _suite_properties(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [("spiral.run", report["run"]["id"]), ("spiral.verdict", report["verdict"])]
    for card in report["tempaffect"]["cards"]:
        for metric, interval in card["intervals"].items():
            if "." not in metric and card[metric] is not None:
                name = f"tempaffect.{metric}[{card['model']}-{card['prompting_mode']}]"
                found.append((name, _value(card[metric], interval["low"], interval["high"])))
    for score in report["spiral"]["scores"]:
        if score["score"] is not None:
            value = _value(score["unrounded"], score["ci_low"], score["ci_high"])
            found.append((f"spiral.score[{score['model']}]", value))
    for row in report["gates"]:
        mode = f"-{row['prompting_mode']}" if row["prompting_mode"] else ""
        found.append((f"gate[{row['model']}{mode}] {row['expr']}", f"{row['outcome']}: {row['reason']}"))
    return found


def _value(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.4f}" if low is None or high is None else f"{value:.4f} [{low:.4f}, {high:.4f}]"
