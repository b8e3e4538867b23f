"""The output contract: which JSON a model must answer with, and the strict reading of what it did answer.

Strict on purpose: the prompt forbids fences and prose, so neither is forgiven. What a lenient reader could have
recovered is reported beside the score, never in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pytest_spiral.chat import Schema
from pytest_spiral.resources import data_root, read_json
from pytest_spiral.strict_json import JsonFault, StrictJson
from pytest_spiral.tempaffect.params import load_params

__all__ = ["Answer", "Invalid", "output_schema", "parse_output", "recoverable"]

FINISH_REASONS: Mapping[str, str] = {
    "length": "truncated",
    "content_filter": "content_filter",
    "refusal": "refusal",
    "tool_calls": "tool_call",
}
MAX_DIGITS = 20
_JSON_SPACE = " \t\n\r"
_THINK = re.compile(r"</?think(?:ing)?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """A valid answer: seven labels and the reply."""

    detected_emotion: str
    intensity: int
    user_need: str
    support_stage: str
    response_strategy: str
    boundary_action: str
    should_escalate: bool
    reply: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why an output is no valid answer. `code` is stable, `detail` is for people."""

    code: str
    detail: str


class _RejectedError(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.invalid = Invalid(code, detail)


@cache
def output_schema() -> Schema:
    """JSON Schema of the answer, in the subset that every provider's enforcement covers."""
    return Schema(read_json(data_root() / "tempaffect" / "output_schema.json"))


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(dict(output_schema()))


def parse_output(text: str, finish: str = "stop") -> Answer | Invalid:
    """Read a model's output strictly: one JSON object, surrounding JSON white space allowed, nothing else.

    finish: how the endpoint says generation ended (see `ChatReply.finish`); a cut or refused output is invalid
    whatever its text holds. Never raises.
    """
    if finish in FINISH_REASONS:
        return Invalid(FINISH_REASONS[finish], f"the endpoint ended the output with {finish!r}")
    body = text.strip(_JSON_SPACE)
    if not body:
        return Invalid("empty_output", "nothing but white space")
    limit = load_params().contract.max_output_chars
    if len(body) > limit:
        return Invalid("output_too_long", f"{len(body):,} characters, the limit is {limit:,}")
    try:
        return _validated(_decode(body))
    except _RejectedError as rejected:
        return rejected.invalid


def recoverable(text: str) -> bool:
    """Whether stripping one code fence, or prose before and after, leaves a valid answer. Diagnostic only."""
    return any(isinstance(parse_output(candidate), Answer) for candidate in _lenient_readings(text))


def _lenient_readings(text: str) -> Iterator[str]:
    fenced = re.search(r"```[a-zA-Z]*\s*\n?(.*?)```", text, re.DOTALL)
    if fenced:
        yield fenced.group(1)
    first, last = text.find("{"), text.rfind("}")
    if 0 <= first < last:
        yield text[first : last + 1]


def _decode(body: str) -> Any:
    if _THINK.search(body):
        raise _RejectedError("think_block", "reasoning markup in the content")
    if body.startswith("```"):
        raise _RejectedError("code_fence", "wrapped in a code fence")
    rules = StrictJson(load_params().contract.max_nesting, MAX_DIGITS, fractions=False)
    try:
        value, end = rules.raw_decode(body)
    except json.JSONDecodeError as error:
        raise _RejectedError(*_why_not_json(body, error)) from None
    except JsonFault as fault:
        raise _RejectedError(*_why_not_strict(fault)) from None
    rest = body[end:].strip(_JSON_SPACE)
    if rest:
        if rest[0] in "{[":
            raise _RejectedError("multiple_documents", "more than one JSON document")
        raise _RejectedError("trailing_text", f"text after the JSON object: {rest[:40]!r}")
    return value


def _why_not_strict(fault: JsonFault) -> tuple[str, str]:
    if fault.kind == "duplicate_key":
        return "duplicate_key", f"key {fault.found[:40]!r} occurs twice"
    if fault.kind == "digits":
        return "wrong_type", f"a number of more than {MAX_DIGITS} digits"
    codes = {"too_deep": "too_deep", "constant": "not_a_number", "fraction": "float_number"}
    return codes[fault.kind], str(fault)


def _why_not_json(body: str, error: json.JSONDecodeError) -> tuple[str, str]:
    where = f"{error.msg} at character {error.pos}"
    at = body[error.pos : error.pos + 2]
    before = body[: error.pos].rstrip(_JSON_SPACE)
    if body[0] not in '{["' and "{" in body:
        return "leading_text", f"text before the JSON object: {body[:40]!r}"
    if body[0] not in '{["':
        return "not_json", where
    if at.startswith("'"):
        return "single_quotes", where
    if at in ("//", "/*") or at.startswith("#"):
        return "comment", where
    if at[:1] in ("}", "]") and before.endswith(","):
        return "trailing_comma", where
    # CPython 3.13+ reports a trailing comma at the comma itself.
    if at.startswith(",") and body[error.pos + 1 :].lstrip(_JSON_SPACE)[:1] in ("}", "]"):
        return "trailing_comma", where
    if error.pos >= len(body) or error.msg.startswith("Unterminated string"):
        return "truncated", where
    return "not_json", where


def _validated(value: Any) -> Answer:
    if not isinstance(value, dict):
        raise _RejectedError("root_not_object", f"the root is a {type(value).__name__}")
    for key, item in value.items():
        for text in (key, item):
            if isinstance(text, str) and _has_lone_surrogate(text):
                raise _RejectedError(
                    "lone_surrogate", f"unpaired surrogate in {key.encode('ascii', 'replace').decode()!r}"
                )
    problems = [_reason(error) for error in _validator().iter_errors(value)]
    if problems:
        raise _RejectedError(*min(problems, key=lambda problem: (_PRECEDENCE.index(problem[0]), problem[1])))
    answer = Answer(**value)
    if not answer.reply.strip():
        raise _RejectedError("empty_reply", "the reply is empty")
    limit = load_params().contract.max_reply_chars
    if len(answer.reply) > limit:
        raise _RejectedError(
            "reply_too_long", f"the reply has {len(answer.reply):,} characters, the limit is {limit:,}"
        )
    return answer


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


_PRECEDENCE = ("missing_key", "extra_key", "null_value", "wrong_type", "enum_spelling", "bad_enum", "out_of_range")


def _reason(error: Any) -> tuple[str, str]:
    field = ".".join(str(part) for part in error.absolute_path) or "the object"
    if error.validator == "required":
        missing = sorted(set(error.validator_value) - set(error.instance))
        return "missing_key", f"missing {', '.join(missing)}"
    if error.validator == "additionalProperties":
        extra = sorted(set(error.instance) - set(error.schema["properties"]))
        return "extra_key", f"unknown {', '.join(key[:40] for key in extra)[:120]}"
    if error.validator == "type":
        if error.instance is None:
            return "null_value", f"{field} is null"
        return "wrong_type", f"{field} must be of type {error.validator_value}"
    if isinstance(error.instance, str):
        spelled = re.sub(r"[\s-]+", "_", error.instance.strip()).lower()
        if spelled in error.validator_value:
            return "enum_spelling", f"{field} is spelled {error.instance[:40]!r}, expected {spelled!r}"
        return "bad_enum", f"{field} has the unknown value {error.instance[:40]!r}"
    if isinstance(error.instance, int) and not isinstance(error.instance, bool):
        return "out_of_range", f"{field} is {error.instance}, allowed are {error.validator_value}"
    return "wrong_type", f"{field} has the wrong type"
