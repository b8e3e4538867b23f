"""Endpoints: base URLs in every form people write them, and keys that never show."""

from __future__ import annotations

import pickle

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.endpoint import Endpoint, Secret, clean, env_name, is_loopback, normalise_base_url

KEY = "sk-proj-Zq8vR2mXw41LtY7cJd90"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1"),
        ("https://api.openai.com/", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        (" https://api.openai.com/v1/ ", "https://api.openai.com/v1"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
        ("https://api.groq.com/openai/v1/", "https://api.groq.com/openai/v1"),
        ("https://example.org/v1beta/openai/", "https://example.org/v1beta/openai"),
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("HTTP://127.0.0.1:11434/v1/chat/completions", "http://127.0.0.1:11434/v1"),
    ],
)
def test_base_urls_work_with_and_without_v1(given: str, expected: str) -> None:
    """Only a missing path is completed; any other path is the user's own."""
    assert normalise_base_url(given) == expected
    assert normalise_base_url(expected) == expected


@pytest.mark.parametrize("given", ["", "localhost:8000", "ftp://a/v1", "http://", "http://a b/v1", "http://a:x/v1"])
def test_what_is_no_address_is_refused_with_an_example(given: str) -> None:
    """The message says how an address is written."""
    with pytest.raises(ConfigError, match=r"write it like https://"):
        normalise_base_url(given)


@pytest.mark.parametrize("given", [f"https://me:{KEY}@a.example/v1", f"https://a.example/v1?key={KEY}"])
def test_keys_inside_an_address_are_refused_without_showing_them(given: str) -> None:
    """A key in the URL would show in every message about it."""
    with pytest.raises(ConfigError, match="API_KEY") as caught:
        normalise_base_url(given)

    assert KEY not in str(caught.value)


def test_no_text_form_of_an_endpoint_shows_the_key() -> None:
    """repr, str and pickle."""
    endpoint = Endpoint("judge", "http://a.example", Secret(KEY))

    shown = f"{endpoint!r} {endpoint} {endpoint.api_key} {endpoint.api_key!r}"
    assert KEY not in shown
    assert "Secret('***" in shown
    with pytest.raises(TypeError, match="never sent between processes"):
        pickle.dumps(endpoint)


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        f"key={KEY[:14]}... is wrong",
        f"...{KEY[-10:]}",
        "Incorrect API key provided: sk-proj-********************Jd90",
        f"Authorization: Bearer {KEY}",
    ],
)
def test_keys_echoed_by_a_server_are_removed(text: str) -> None:
    """Whole, cut, or masked by the server."""
    shown = clean(text, Secret(KEY))

    assert "[redacted]" in shown
    assert not any(KEY[i : i + 8] in shown for i in range(len(KEY) - 7))


def test_short_keys_are_removed_as_words_only() -> None:
    """A local server's key may be a common word."""
    assert Secret("none").redact("none of nonesuch") == "[redacted] of nonesuch"


def test_foreign_text_becomes_one_short_line() -> None:
    """No escape sequences, no invisible or direction-changing characters, no line breaks, bounded."""
    shown = clean("a\x1b[31m\r\nb\x00\u202ec\ud800" + "x" * 1000, Secret())

    assert shown.startswith("a[31m bc")
    assert len(shown) == 300
    assert shown.isprintable()


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_keys_that_no_header_can_carry_are_refused_unshown(key: str) -> None:
    """Found when read, not as a crash in the first request."""
    with pytest.raises(ConfigError, match="API_KEY") as caught:
        Secret(key)

    assert key not in str(caught.value)


def test_roles_have_their_own_variables() -> None:
    """Messages name the variable to set."""
    names = [env_name(role, "API_KEY") for role in ("evaluated", "user", "judge")]

    assert names == ["EVALUATED_MODEL_API_KEY", "USER_AGENT_API_KEY", "JUDGE_API_KEY"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://localhost:1", True), ("http://127.0.0.2", True), ("http://[::1]", True), ("http://10.0.0.1", False)],
)
def test_loopback_is_recognised(url: str, expected: bool) -> None:
    """Proxies of the environment are not asked to reach this machine."""
    assert is_loopback(Endpoint("judge", url).base_url) is expected
