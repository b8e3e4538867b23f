"""Reading a report: of this schema version, or of version 1 as pytest-spiral 0.1 wrote it."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.report.model import SCHEMA_VERSION, Report
from pytest_spiral.report.model.gate import DecisionCode
from pytest_spiral.resources import read_json, read_text
from pytest_spiral.status import Reason, ReasonCode
from pytest_spiral.text import whole_characters

_SPEAKER = re.compile(r"^(?:evaluated|user) model, ")
_OWN_WORDS = (
    (re.compile(r"no usable message \("), ReasonCode.NO_USER_MESSAGE),
    (re.compile(r"collapsed|^message \d+: "), ReasonCode.SIMULATOR_COLLAPSED),
    (re.compile(r"not (judged|completed)$|^not_run$"), ReasonCode.NOT_STARTED),
    (re.compile(r"^points without quotes"), ReasonCode.UNQUOTED_POINTS),
)
_DECISIONS = {
    "pass": DecisionCode.BOUND_MET,
    "fail": DecisionCode.BOUND_MISSED,
    "inconclusive": DecisionCode.THRESHOLD_BETWEEN,
    "incomplete": DecisionCode.TOO_MUCH_MISSING,
}


def load_report(path: Path) -> Report:
    """The report in a file of this schema version or an earlier one.

    Raises:
        DataError: The file is not a report, or breaks its schema; the message names the file and the key.
    """
    report = find_report(path)
    if report is None:
        raise DataError(f"{path}: not a report of pytest-spiral")
    return report


def find_report(path: Path) -> Report | None:
    """The same; None for a JSON file that does not claim to be a report of this package."""
    raw = read_json(path)
    if not isinstance(raw, dict) or "schema_version" not in raw:
        return None
    version = raw["schema_version"]
    if not isinstance(version, int) or version < 1:
        raise DataError(f"{path}: not a report of pytest-spiral")
    if version > SCHEMA_VERSION:
        raise DataError(
            f"{path}: report schema {version}, this version reads up to {SCHEMA_VERSION}; update pytest-spiral"
        )
    try:
        if version == 1:
            return _from_version_1(raw)
        return Report.model_validate_json(read_text(path), strict=True)
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error, 'report')}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a report of schema version 1: {error!r}") from None


def _from_version_1(document: dict[str, Any]) -> Report:
    """A version 1 document as a `Report`. Changes the document.

    Raises:
        pydantic.ValidationError: A value breaks the report model.
        KeyError, TypeError: The document is not a version 1 report.
    """
    document["schema_version"] = SCHEMA_VERSION
    if document["verdict"] == "pass" and not document["gates"]:
        document["verdict"] = "measured"
    for card in document["tempaffect"]["cards"]:
        card["reasons"] = _counted(card["reasons"])
    for item in document["tempaffect"]["items"]:
        code, detail = item["reason"], item.pop("detail")
        item["reason"] = code and Reason.parse(f"{code}: {detail}" if detail else code)
    for gate in document["gates"]:
        gate["at_least"] = ">=" in gate["expr"]
        gate["reason"] = {"code": _DECISIONS[gate["outcome"]], "detail": gate["reason"]}
    for score in document["spiral"]["scores"]:
        health = score["simulator_health"]
        health.pop("premises", None)
        score["simulator_health"] = {"broken": 0, "no_message": 0, **health}
        score["simulator_health"]["reasons"] = [_collapse(text) for text in health["reasons"]]
        by_kind: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for text, times in score["missing"]["reasons"].items():
            kind, _, reason = text.partition(": ")
            by_kind[kind][reason] = times
        score["missing"]["reasons"] = {kind: _counted(reasons) for kind, reasons in by_kind.items()}
    origins: list[object] = []
    for conversation in document["spiral"]["conversations"]:
        if conversation["origin"] not in origins:
            origins.append(conversation["origin"])
        conversation["origin"] = origins.index(conversation["origin"])
        retested = [retest["judgement"] for retest in conversation["retests"]]
        for row in (conversation, *conversation["judgements"], *conversation["finals"], *retested):
            row["reason"] = parsed_reason(row["reason"])
        conversation["given_up"] = [_collapse(text) for text in conversation["given_up"]]
        conversation["simulator"].pop("premises", None)
        conversation["behaviours"] = []
        # Those of the judgements once more.
        del conversation["findings"]
    document["spiral"]["origins"] = origins
    spiral = document["integrity"].get("spiral")
    if spiral is not None:
        spiral["twins_hash"] = spiral.get("twins_hash") or None
    # Version 1 held halves of surrogate pairs as escapes.
    text = whole_characters(json.dumps(document, ensure_ascii=False, default=asdict))
    return Report.model_validate_json(text)


def parsed_reason(text: str) -> Reason | None:
    """The reason that version 1 wrote as a text, "code: detail" where it knew a code; None for an empty text."""
    if not text:
        return None
    for pattern, code in _OWN_WORDS:
        if pattern.search(text):
            return Reason(code, text)
    reason = Reason.parse(_SPEAKER.sub("", text, count=1))
    return Reason(ReasonCode.IMPORTED_ERROR, text) if reason.code is ReasonCode.IMPORTED_ERROR else reason


def _collapse(text: str) -> Reason:
    reason = parsed_reason(text)
    if reason is None or reason.code is ReasonCode.IMPORTED_ERROR:
        return Reason(ReasonCode.SIMULATOR_COLLAPSED, text)
    return reason


def _counted(reasons: dict[str, int]) -> Counter[str]:
    """Occurrences by code; what has no code of its own is counted together."""
    counts: Counter[str] = Counter()
    for text, times in reasons.items():
        reason = parsed_reason(text)
        counts[reason.code if reason else ReasonCode.IMPORTED_ERROR] += times
    return counts
