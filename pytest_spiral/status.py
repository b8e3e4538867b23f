"""What became of a measurement: one of four states, and the reason where it is not `measured`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """State of one item, conversation or judgement. A score exists only in the first two."""

    MEASURED = "measured"
    MODEL_FAILED = "model_failed"
    INSTRUMENT_FAILED = "instrument_failed"
    NOT_RUN = "not_run"


class ReasonCode(StrEnum):
    """Why a measurement has its state. Stable: other programs may rely on the values.

    Attributes:
        meaning: One sentence for the reference documentation.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> ReasonCode:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    # A call to a model failed for good.
    UNREACHABLE = "unreachable", "The endpoint refused the connection or could not be found."
    TIMEOUT = "timeout", "The call did not finish within its deadline."
    RATE_LIMITED = "rate_limited", "The endpoint still answered 429 after all retries."
    QUOTA = "quota", "The account has no credit left; retrying cannot help."
    AUTH = "auth", "The endpoint refused the API key."
    BAD_REQUEST = "bad_request", "The endpoint refused the request itself."
    SERVER_ERROR = "server_error", "The endpoint still answered 5xx after all retries."
    BAD_RESPONSE = "bad_response", "The endpoint answered with something other than a chat completion."
    CLOSED = "closed", "The run was stopped while the call was in flight."
    TOKEN_LIMIT = "token_limit", "The reply was cut off at a token limit that the user did not set."
    BUDGET = "budget", "The call might have cost more than --max-cost leaves; nothing was sent."
    STORE_FAILED = "store_failed", "The reply could not be kept in the run's store."

    # How the endpoint ended a reply.
    TRUNCATED = (
        "truncated",
        "The reply was cut off: at a token limit that the user set, while it repeated itself, or inside a document.",
    )
    CONTENT_FILTER = "content_filter", "The endpoint's content filter ended the reply, or refused the prompt."
    REFUSAL = "refusal", "The endpoint marked the reply as a refusal."
    TOOL_CALL = "tool_call", "The model called a tool instead of answering."
    UNFINISHED = "unfinished", "The endpoint does not say that the reply is complete: finish_reason is null or unknown."

    # A document that does not meet its contract (TempAffect answers and judge replies).
    EMPTY_OUTPUT = "empty_output", "The output is empty or white space."
    EMPTY_REPLY = "empty_reply", "The reply is empty or white space."
    OUTPUT_TOO_LONG = "output_too_long", "The output is longer than the contract allows."
    REPLY_TOO_LONG = "reply_too_long", "The reply is longer than the contract allows."
    THINK_BLOCK = "think_block", "The content holds reasoning markup."
    CODE_FENCE = "code_fence", "The document is wrapped in a code fence."
    LEADING_TEXT = "leading_text", "Text stands before the document."
    TRAILING_TEXT = "trailing_text", "Text stands after the document."
    MULTIPLE_DOCUMENTS = "multiple_documents", "There is more than one document."
    NOT_JSON = "not_json", "The document is not JSON."
    SINGLE_QUOTES = "single_quotes", "Strings are in single quotes."
    COMMENT = "comment", "The document holds a comment."
    TRAILING_COMMA = "trailing_comma", "A comma stands before a closing bracket."
    DUPLICATE_KEY = "duplicate_key", "A key occurs twice."
    TOO_DEEP = "too_deep", "Brackets are nested deeper than the limit."
    NOT_A_NUMBER = "not_a_number", "A number is NaN or infinite."
    FLOAT_NUMBER = "float_number", "A number has a fraction or an exponent where an integer is expected."
    ROOT_NOT_OBJECT = "root_not_object", "The document is not an object."
    LONE_SURROGATE = "lone_surrogate", "A string holds half of a surrogate pair."
    MISSING_KEY = "missing_key", "A required key is missing."
    EXTRA_KEY = "extra_key", "A key is not part of the contract."
    UNKNOWN_KEY = "unknown_key", "A key names no known behaviour or metric."
    NULL_VALUE = "null_value", "A value is null."
    WRONG_TYPE = "wrong_type", "A value has the wrong type."
    WRONG_SHAPE = "wrong_shape", "A list entry does not have the expected members."
    ENUM_SPELLING = "enum_spelling", "A label is spelled differently from the contract."
    BAD_ENUM = "bad_enum", "A label is not among the allowed ones."
    OUT_OF_RANGE = "out_of_range", "A number lies outside its range."
    TOO_MANY_FINDINGS = "too_many_findings", "A judge reported more findings than one chunk can hold."
    COUNT_WITHOUT_QUOTES = "count_without_quotes", "A judge gave a number of findings instead of their quotes."
    EMPTY_QUOTE = "empty_quote", "A finding quotes nothing."
    QUOTE_TOO_LONG = "quote_too_long", "A quote is longer than the judge may give."
    NO_READABLE_REPLY = "no_readable_reply", "A judge was asked as often as it may be, and no reply could be read."

    # A conversation that did not come to its end.
    SIMULATOR_COLLAPSED = "simulator_collapsed", "The simulated user stopped playing its role."
    NO_USER_MESSAGE = "no_user_message", "The simulated user produced no usable message."
    CUT_SHORT = "cut_short", "A recorded conversation ends before its last turn."
    NOT_STARTED = "not_started", "Not selected, or the run ended before it had a result."
    NOT_JUDGED = "not_judged", "There is no judgement of the chunk."
    UNQUOTED_POINTS = "unquoted_points", "An imported judgement claims points that no quote backs."
    IMPORTED_ERROR = "imported_error", "An imported file records an error in its own words."


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a measurement has its state.

    Attributes:
        code: What happened, for programs.
        detail: The same for people, free text; may be empty.
    """

    code: ReasonCode
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.code.value}: {self.detail}" if self.detail else self.code.value

    @classmethod
    def parse(cls, text: str) -> Reason:
        """Read what `str` wrote; text that does not start with a code becomes the detail of an imported error.

        >>> Reason.parse("timeout: no answer within 60 s").code.value
        'timeout'
        >>> Reason.parse("Error code: 500").code.value
        'imported_error'
        """
        code, _, detail = text.partition(": ")
        try:
            return cls(ReasonCode(code), detail)
        except ValueError:
            return cls(ReasonCode.IMPORTED_ERROR, text)
