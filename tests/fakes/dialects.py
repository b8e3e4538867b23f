"""How six providers differ from each other, for the fake server: routes, keys, refusals, completions and errors.

Written from the providers' documentation and public error reports; none of it was recorded from a real service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Refusal = tuple[int, Any]
"""Status and body of an error answer."""
Headers = Mapping[str, str]
"""Names have no case."""


class Dialect:
    """An OpenAI-compatible service that refuses what it does not know.

    serves: the models there are. errors: error answers by what they mean, as (status, body, headers).
    """

    prefix = "/v1"
    chat = "/chat/completions"
    serves: tuple[str, ...] = ("some/model",)

    def key_of(self, headers: Headers) -> str | None:
        """The key of a request, None where it brings none in the form that is read."""
        return found[1] if (found := re.fullmatch(r"Bearer (.+)", headers.get("authorization", ""))) else None

    def wrong_key(self, key: str | None) -> Refusal:
        """The answer to a wrong key, or to none."""
        raise NotImplementedError

    def list(self, key_is_right: bool) -> Refusal:
        """The answer to a request for the models."""
        if not key_is_right:
            return self.wrong_key("wrong")
        return 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.serves]}

    def refuses(self, body: Mapping[str, Any], path: str, query: Mapping[str, str]) -> Refusal | None:
        """The answer to a request that is wrong in itself."""
        return None if body.get("model") in self.serves else self.unknown(str(body.get("model")))

    def unknown(self, model: str) -> Refusal:
        """The answer to a model's name that means nothing."""
        raise NotImplementedError

    def heard(self, body: dict[str, Any]) -> dict[str, Any]:
        """The request without what the service ignores."""
        return body

    def completion(self, plain: dict[str, Any]) -> dict[str, Any]:
        """A completion with what the service adds."""
        return plain

    @property
    def errors(self) -> Mapping[str, tuple[int, Any, Headers]]:
        raise NotImplementedError


def _error(message: str, kind: str | None, code: object = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class OpenAI(Dialect):
    """Reasoning models refuse `max_tokens` and a temperature."""

    serves = ("some/model", "gpt-4.1-mini", "o4-mini")

    def wrong_key(self, key: str | None) -> Refusal:
        if key is None:
            return 401, _error("You didn't provide an API key.", "invalid_request_error")
        return 401, _error(f"Incorrect API key provided: {key}.", "invalid_request_error", "invalid_api_key")

    def unknown(self, model: str) -> Refusal:
        message = f"The model `{model}` does not exist or you do not have access to it."
        return 404, _error(message, "invalid_request_error", "model_not_found")

    def refuses(self, body: Mapping[str, Any], path: str, query: Mapping[str, str]) -> Refusal | None:
        if str(body.get("model")).startswith("o4"):
            if "max_tokens" in body:
                message = "Unsupported parameter: 'max_tokens' is not supported with this model."
                message += " Use 'max_completion_tokens' instead."
                return 400, _error(message, "invalid_request_error", "unsupported_parameter", "max_tokens")
            if body.get("temperature", 1) != 1:
                message = "Unsupported value: 'temperature' does not support 0.0 with this model."
                return 400, _error(message, "invalid_request_error", "unsupported_value", "temperature")
        return super().refuses(body, path, query)

    @property
    def errors(self) -> Mapping[str, tuple[int, Any, Headers]]:
        quota = "You exceeded your current quota, please check your plan and billing details."
        limit = "Rate limit reached for some/model on requests per min (RPM): Limit 3, Used 3, Requested 1."
        return {
            "quota": (429, _error(quota, "insufficient_quota", "insufficient_quota"), {}),
            "rate_limited": (429, _error(limit, "requests", "rate_limit_exceeded"), {"Retry-After": "0.01"}),
            "server_error": (503, _error("The engine is currently overloaded.", "server_error"), {}),
        }


class AzureClassic(Dialect):
    """The deployment is in the path, the version in the query, the key in a header of its own."""

    prefix = "/openai"
    chat = "/deployments/{deployment}/chat/completions"
    serves = ("some/model", "my-deployment")

    def key_of(self, headers: Headers) -> str | None:
        return headers.get("api-key")

    def wrong_key(self, key: str | None) -> Refusal:
        message = (
            "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key"
        )
        return 401, {"error": {"code": "401", "message": f"{message} for an active subscription."}}

    def list(self, key_is_right: bool) -> Refusal:
        # The models that could be deployed, not the deployments.
        data = [{"id": "gpt-4o-2024-08-06", "object": "model"}]
        return (200, {"object": "list", "data": data}) if key_is_right else self.wrong_key(None)

    def refuses(self, body: Mapping[str, Any], path: str, query: Mapping[str, str]) -> Refusal | None:
        if not re.fullmatch(r"20\d\d-\d\d-\d\d(-preview)?", query.get("api-version", "")):
            return 404, {"error": {"code": "404", "message": "Resource not found"}}
        deployment = path.removeprefix("/openai/deployments/").removesuffix("/chat/completions")
        return None if deployment in self.serves else self.unknown(deployment)

    def unknown(self, model: str) -> Refusal:
        message = "The API deployment for this resource does not exist. If you created the deployment within the last 5"
        return 404, {"error": {"code": "DeploymentNotFound", "message": f"{message} minutes, please wait a moment."}}

    def completion(self, plain: dict[str, Any]) -> dict[str, Any]:
        safe = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}
        choices = [{**choice, "content_filter_results": safe} for choice in plain["choices"]]
        prompts = [{"prompt_index": 0, "content_filter_results": safe}]
        return {**plain, "model": "gpt-4o-2024-08-06", "choices": choices, "prompt_filter_results": prompts}

    @property
    def errors(self) -> Mapping[str, tuple[int, Any, Headers]]:
        cause = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"violence": {"filtered": True}}}
        message = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
        refused = {"message": message, "type": None, "param": "prompt", "code": "content_filter", "status": 400}
        limit = "Requests to the ChatCompletions_Create Operation have exceeded call rate limit. Please retry later."
        return {
            "content_filter": (400, {"error": {**refused, "innererror": cause}}, {}),
            "rate_limited": (429, {"error": {"code": "429", "message": limit}}, {"Retry-After": "0.01"}),
        }


class Anthropic(Dialect):
    """The OpenAI-compatible route ignores schemas, seeds and more; the list of models has another form of key."""

    serves = ("some/model", "claude-sonnet-4-5")
    _ignored = ("response_format", "seed", "reasoning_effort", "presence_penalty", "frequency_penalty", "logprobs")

    def wrong_key(self, key: str | None) -> Refusal:
        return 401, _error("invalid x-api-key", "authentication_error", "authentication_error")

    def list(self, key_is_right: bool) -> Refusal:
        error = {"type": "authentication_error", "message": "x-api-key header is required"}
        return 401, {"type": "error", "error": error}

    def unknown(self, model: str) -> Refusal:
        return 404, _error(f"model: {model}", "not_found_error", "not_found_error")

    def heard(self, body: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key not in self._ignored}

    @property
    def errors(self) -> Mapping[str, tuple[int, Any, Headers]]:
        credit = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade."
        limit = "This request would exceed your organization's rate limit of 50 requests per minute."
        return {
            "quota": (400, _error(credit, "invalid_request_error", "invalid_request_error"), {}),
            "rate_limited": (429, _error(limit, "rate_limit_error", "rate_limit_error"), {"Retry-After": "0.01"}),
            "server_error": (529, _error("Overloaded", "overloaded_error", "overloaded_error"), {}),
        }


class Gemini(Dialect):
    """Errors are lists, a wrong key is a 400, and every limit is an exceeded quota."""

    prefix = "/v1beta/openai"
    serves = ("some/model", "gemini-2.5-flash")

    @staticmethod
    def _failed(code: int, status: str, message: str, *details: dict[str, Any]) -> Any:
        return [{"error": {"code": code, "message": message, "status": status, "details": list(details)}}]

    def wrong_key(self, key: str | None) -> Refusal:
        cause = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        message = "API key not valid. Please pass a valid API key."
        return 400, self._failed(400, "INVALID_ARGUMENT", message, cause)

    def list(self, key_is_right: bool) -> Refusal:
        status, answer = super().list(key_is_right)
        if status == 200:
            answer = {**answer, "data": [{**row, "id": f"models/{row['id']}"} for row in answer["data"]]}
        return status, answer

    def unknown(self, model: str) -> Refusal:
        message = f"models/{model} is not found for API version v1main, or is not supported for generateContent."
        return 404, self._failed(404, "NOT_FOUND", message)

    def _limited(self, quota: str, limit: int) -> tuple[int, Any, Headers]:
        message = (
            "You exceeded your current quota, please check your plan and billing details. For more information on this "
            "error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for metric: "
            f"generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: {limit}, model: "
            "gemini-2.5-flash\nPlease retry in 0.02s."
        )
        failure = {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaId": quota, "quotaValue": str(limit)}],
        }
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.02s"}
        return 429, self._failed(429, "RESOURCE_EXHAUSTED", message, failure, retry), {}

    @property
    def errors(self) -> Mapping[str, tuple[int, Any, Headers]]:
        overloaded = self._failed(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")
        return {
            "rate_limited": self._limited("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", 10),
            "quota": self._limited("GenerateRequestsPerDayPerProjectPerModel-FreeTier", 250),
            "quota (no access)": self._limited("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", 0),
            "server_error": (503, overloaded, {}),
        }


class OpenRouter(Dialect):
    """Codes are numbers, what the provider behind it said is in the metadata, and the list of models is public."""

    prefix = "/api/v1"
    serves = ("some/model", "openai/gpt-4.1-mini")

    @staticmethod
    def _failed(code: int, message: str, **metadata: Any) -> dict[str, Any]:
        return {"error": {"code": code, "message": message, **({"metadata": metadata} if metadata else {})}}

    def wrong_key(self, key: str | None) -> Refusal:
        return 401, self._failed(401, "No auth credentials found" if key is None else "User not found.")

    def list(self, key_is_right: bool) -> Refusal:
        return super().list(key_is_right=True)

    def unknown(self, model: str) -> Refusal:
        return 400, self._failed(400, f"{model} is not a valid model ID")

    def completion(self, plain: dict[str, Any]) -> dict[str, Any]:
        choices = [{**choice, "native_finish_reason": choice["finish_reason"]} for choice in plain["choices"]]
        usage = {**(plain["usage"] or {}), "cost": 0.0001, "is_byok": False}
        return {**plain, "provider": "OpenAI", "choices": choices, "usage": usage}

    @property
    def errors(self) -> Mapping[str, tuple[int, Any, Headers]]:
        upstream = "some/model is temporarily rate-limited upstream: You exceeded your current quota"
        flagged = self._failed(
            403,
            "Your chosen model requires moderation and your input was flagged for: violence",
            reasons=["violence"],
            flagged_input="...",
            provider_name="OpenAI",
        )
        limited = self._failed(429, "Provider returned error", raw=upstream, provider_name="Google")
        no_endpoint = "No endpoints found that can handle the requested parameters."
        busy = self._failed(402, "Too many requests in flight", limit_source="openrouter_in_flight_budget")
        half = {"index": 0, "message": {"role": "assistant", "content": "half a rep"}, "finish_reason": "error"}
        broken = {"choices": [{**half, "error": {"code": 502, "message": "Upstream error"}}]}
        return {
            "content_filter": (403, flagged, {}),
            "quota": (402, self._failed(402, "Insufficient credits"), {}),
            "rate_limited": (429, limited, {"Retry-After": "0.01"}),
            "rate_limited (in flight)": (402, busy, {"Retry-After": "0.01"}),
            "bad_request": (404, self._failed(404, no_endpoint), {}),
            "server_error": (200, broken, {}),
            "server_error (provider)": (502, self._failed(502, "Provider returned error", raw="timeout"), {}),
        }


class VLLM(Dialect):
    """A server of one's own: codes are numbers, a wrong key gets a bare text."""

    serves = ("some/model", "Qwen/Qwen3-8B")

    def wrong_key(self, key: str | None) -> Refusal:
        return 401, {"error": "Unauthorized"}

    def unknown(self, model: str) -> Refusal:
        return 404, _error(f"The model `{model}` does not exist.", "NotFoundError", 404, "model")

    def completion(self, plain: dict[str, Any]) -> dict[str, Any]:
        choices = [{**choice, "stop_reason": None, "logprobs": None} for choice in plain["choices"]]
        return {**plain, "choices": choices, "prompt_logprobs": None, "kv_transfer_params": None}

    @property
    def errors(self) -> Mapping[str, tuple[int, Any, Headers]]:
        message = (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1904 in the "
            "messages, 3096 in the completion). Please reduce the length of the messages or completion."
        )
        flat = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
        return {
            "bad_request": (400, _error(message, "BadRequestError", 400), {}),
            "bad_request (older form)": (400, flat, {}),
        }


DIALECTS: Mapping[str, type[Dialect]] = {
    "openai": OpenAI,
    "azure-classic": AzureClassic,
    "anthropic": Anthropic,
    "gemini": Gemini,
    "openrouter": OpenRouter,
    "vllm": VLLM,
}
"""By the name of the provider's preset."""
