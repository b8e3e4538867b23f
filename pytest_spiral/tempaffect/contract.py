"""The output contract: which JSON a model must answer with, and the strict reading of what it did answer.

Strict on purpose: the prompt forbids fences and prose, so neither is forgiven. What a lenient reader could have
recovered is reported beside the score, never in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pytest_spiral.resources import data_root, read_json
from pytest_spiral.status import Reason, ReasonCode
from pytest_spiral.strict_json import JsonFault, StrictJson
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import LABEL_FIELDS, Answer

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

FINISH_REASONS: Mapping[str, ReasonCode] = {
    "length": ReasonCode.TRUNCATED,
    "content_filter": ReasonCode.CONTENT_FILTER,
    "refusal": ReasonCode.REFUSAL,
    "tool_calls": ReasonCode.TOOL_CALL,
}
"""Values of `ChatReply.finish` that make an output invalid."""
# More than any label needs, and far below the number of digits at which Python refuses to convert.
_MAX_DIGITS = 20
_QUOTED_CHARS = 40
_FIELDS = {*LABEL_FIELDS, "reply"}
_JSON_SPACE = " \t\n\r"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_THINK = re.compile(r"</?think(?:ing)?\b", re.IGNORECASE)
# Of several violations of the schema the one with the first of these is the reason.
_PRECEDENCE = (
    ReasonCode.MISSING_KEY,
    ReasonCode.EXTRA_KEY,
    ReasonCode.NULL_VALUE,
    ReasonCode.WRONG_TYPE,
    ReasonCode.ENUM_SPELLING,
    ReasonCode.BAD_ENUM,
    ReasonCode.OUT_OF_RANGE,
)


class _Rejected(Exception):
    def __init__(self, code: ReasonCode, detail: str) -> None:
        super().__init__(code, detail)
        self.reason = Reason(code, detail)


@cache
def output_schema() -> Mapping[str, object]:
    """JSON Schema of the answer, in the subset that every provider's enforcement covers."""
    schema: Mapping[str, object] = read_json(data_root() / "tempaffect" / "output_schema.json")
    return schema


@cache
def answer_fields() -> Mapping[str, tuple[type, Sequence[str | int | bool] | None]]:
    """The type of each field, and the values it may have; None for any. The schema holds no other rules."""
    types = {"string": str, "integer": int, "boolean": bool}
    rules = output_schema()["properties"]
    assert isinstance(rules, dict)
    assert all(rule.keys() <= {"type", "enum"} for rule in rules.values())
    return {name: (types[rule["type"]], rule.get("enum")) for name, rule in rules.items()}


@cache
def _validator() -> Draft202012Validator:
    # Loaded when first needed: processes that score nothing start faster without it.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(dict(output_schema()))


def parse_output(text: str, finish: str = "stop") -> Answer | Reason:
    """Read a model's output strictly: one JSON object, surrounding JSON white space allowed, nothing else.

    Never raises; where there is no valid answer, the result is the reason.

    Args:
        text: The output as received.
        finish: How generation ended, as in `ChatReply.finish`. A cut or refused output is invalid whatever it holds.
    """
    try:
        if finish in FINISH_REASONS:
            raise _Rejected(FINISH_REASONS[finish], f"the endpoint ended the output with {finish!r}")
        return _validated(_decode(text.strip(_JSON_SPACE)))
    except _Rejected as rejected:
        return rejected.reason


def recoverable(text: str) -> bool:
    """Whether stripping one code fence, or prose before and after, leaves a valid answer. Diagnostic only."""
    return any(isinstance(parse_output(candidate), Answer) for candidate in _lenient_readings(text))


def _lenient_readings(text: str) -> Iterator[str]:
    if fenced := re.search(r"```[a-zA-Z]*+\s*+(.*?)```", text, re.DOTALL):
        yield fenced.group(1)
    first, last = text.find("{"), text.rfind("}")
    if 0 <= first < last:
        yield text[first : last + 1]


def _decode(body: str) -> object:
    """The JSON value of an output without surrounding white space."""
    limits = load_params().contract
    if not body:
        raise _Rejected(ReasonCode.EMPTY_OUTPUT, "nothing but white space")
    if len(body) > limits.max_output_chars:
        detail = f"{len(body):,} characters, the limit is {limits.max_output_chars:,}"
        raise _Rejected(ReasonCode.OUTPUT_TOO_LONG, detail)
    if _THINK.search(body):
        raise _Rejected(ReasonCode.THINK_BLOCK, "reasoning markup in the content")
    if body.startswith("```"):
        raise _Rejected(ReasonCode.CODE_FENCE, "wrapped in a code fence")
    value: object
    try:
        value, end = StrictJson(limits.max_nesting, _MAX_DIGITS, fractions=False).raw_decode(body)
    except json.JSONDecodeError as error:
        raise _not_json(body, error) from None
    except JsonFault as fault:
        raise _not_strict(fault) from None
    rest = body[end:].strip(_JSON_SPACE)
    if rest and rest[0] in "{[":
        raise _Rejected(ReasonCode.MULTIPLE_DOCUMENTS, "more than one JSON document")
    if rest:
        raise _Rejected(ReasonCode.TRAILING_TEXT, f"text after the JSON object: {rest[:_QUOTED_CHARS]!r}")
    return value


def _not_strict(fault: JsonFault) -> _Rejected:
    """JSON that Python's reader would accept and the contract does not."""
    if fault.kind == "duplicate_key":
        return _Rejected(ReasonCode.DUPLICATE_KEY, f"key {fault.found[:_QUOTED_CHARS]!r} occurs twice")
    if fault.kind == "digits":
        return _Rejected(ReasonCode.WRONG_TYPE, f"a number of more than {_MAX_DIGITS} digits")
    codes = {"too_deep": ReasonCode.TOO_DEEP, "constant": ReasonCode.NOT_A_NUMBER, "fraction": ReasonCode.FLOAT_NUMBER}
    return _Rejected(codes[fault.kind], str(fault))


def _not_json(body: str, error: json.JSONDecodeError) -> _Rejected:
    """Text that is not JSON: the habit of models that explains it best."""
    where = f"{error.msg} at character {error.pos}"
    here, before = body[error.pos :], body[: error.pos].rstrip(_JSON_SPACE)
    if body[0] not in '{["' and "{" in body:
        return _Rejected(ReasonCode.LEADING_TEXT, f"text before the JSON object: {body[:_QUOTED_CHARS]!r}")
    if body[0] not in '{["':
        return _Rejected(ReasonCode.NOT_JSON, where)
    if here.startswith("'"):
        return _Rejected(ReasonCode.SINGLE_QUOTES, where)
    if here.startswith(("//", "/*", "#")):
        return _Rejected(ReasonCode.COMMENT, where)
    # CPython 3.13 and later report a trailing comma at the comma itself, earlier versions after it.
    at_comma = here.startswith(",") and here[1:].lstrip(_JSON_SPACE).startswith(("}", "]"))
    if at_comma or (here.startswith(("}", "]")) and before.endswith(",")):
        return _Rejected(ReasonCode.TRAILING_COMMA, where)
    if not here or error.msg.startswith("Unterminated string"):
        return _Rejected(ReasonCode.TRUNCATED, where)
    return _Rejected(ReasonCode.NOT_JSON, where)


def _validated(value: object) -> Answer:
    """The answer in a JSON value, if the value keeps the schema and the limits."""
    if not isinstance(value, dict):
        raise _Rejected(ReasonCode.ROOT_NOT_OBJECT, f"the root is a {type(value).__name__}")
    for key, item in value.items():
        if _LONE_SURROGATE.search(key) or (isinstance(item, str) and _LONE_SURROGATE.search(item)):
            name = key.encode("ascii", "replace").decode()
            raise _Rejected(ReasonCode.LONE_SURROGATE, f"unpaired surrogate in {name!r}")
    faults = [] if _keeps_schema(value) else [_schema_fault(value, e) for e in _validator().iter_errors(value)]
    if faults:
        first = min(faults, key=lambda fault: (_PRECEDENCE.index(fault.code), fault.detail))
        raise _Rejected(first.code, first.detail)
    answer = Answer(**value)
    if not answer.reply.strip():
        raise _Rejected(ReasonCode.EMPTY_REPLY, "the reply is empty")
    limit = load_params().contract.max_reply_chars
    if len(answer.reply) > limit:
        detail = f"the reply has {len(answer.reply):,} characters, the limit is {limit:,}"
        raise _Rejected(ReasonCode.REPLY_TOO_LONG, detail)
    return answer


def _keeps_schema(document: Mapping[str, object]) -> bool:
    """Whether a document plainly keeps the schema. Of others the validator, many times slower, says what is wrong."""
    fields = answer_fields()
    return document.keys() == fields.keys() and all(
        type(document[name]) is kind and (values is None or document[name] in values)
        for name, (kind, values) in fields.items()
    )


def _schema_fault(document: Mapping[str, object], error: ValidationError) -> Reason:
    """The reason behind one violation of the schema."""
    field = ".".join(map(str, error.absolute_path))
    value: object = error.instance
    rule: object = error.validator_value
    if error.validator == "required":
        return Reason(ReasonCode.MISSING_KEY, f"missing {', '.join(sorted(_FIELDS - document.keys()))}")
    if error.validator == "additionalProperties":
        extra = ", ".join(key[:_QUOTED_CHARS] for key in sorted(document.keys() - _FIELDS))
        return Reason(ReasonCode.EXTRA_KEY, f"unknown {extra[:120]}")
    if value is None:
        return Reason(ReasonCode.NULL_VALUE, f"{field} is null")
    if error.validator == "type":
        return Reason(ReasonCode.WRONG_TYPE, f"{field}: expected {rule}, got {type(value).__name__}")
    if not isinstance(value, str):
        return Reason(ReasonCode.OUT_OF_RANGE, f"{field} is {value}, allowed are {rule}")
    shown = repr(value[:_QUOTED_CHARS])
    spelled = re.sub(r"[\s-]+", "_", value.strip()).lower()
    if isinstance(rule, list) and spelled in rule:
        return Reason(ReasonCode.ENUM_SPELLING, f"{field} is spelled {shown}, expected {spelled!r}")
    return Reason(ReasonCode.BAD_ENUM, f"{field} has the unknown value {shown}")
