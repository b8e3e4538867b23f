"""Where a role's model is reached: base URL and key, deadlines and retry limits.

An API key leaves this module only as an HTTP header: no repr, message, log line or pickle shows one. Of a base URL they
show scheme, host and the shape of its path, because some services put a key into it.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from pydantic import SecretStr

from pytest_spiral.chat import Role
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.providers import GENERIC, Provider

OPENAI_URL = "https://api.openai.com/v1"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
ENV_PREFIXES: Mapping[Role, str] = {
    "evaluated": "EVALUATED_MODEL",
    "user": "USER_AGENT",
    "judge": "JUDGE",
    "reply_judge": "REPLY_JUDGE",
}
OPTION_OF: Mapping[Role, str] = {
    "evaluated": "--model",
    "user": "--user-model",
    "judge": "--judge-model",
    "reply_judge": "--reply-judge",
}
# Seconds for one HTTP request, and for all of one call, where nobody says otherwise.
ATTEMPT_SECONDS, CALL_SECONDS = 180.0, 600.0
_REDACTED = "[redacted]"
# Vendors mask most of a key when they echo it ("sk-ab***yz"), but the rest is still part of a key.
_KEY_SHAPED = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key)[-_][A-Za-z0-9_*\-.]{6,}|\bBearer\s+[^\s\"',;]{6,}|(?<=://)[^\s/@]+(?=@)", re.IGNORECASE
)
# Parts of a path that are shown. Any other may be a token, or somebody's name for a deployment.
_PATH_WORD = re.compile(
    r"v\d{1,2}(?:(?:alpha|beta)\d?)?|api|ai|openai|compatible-mode|inference|deployments|models|chat|completions|proxy"
)
_MAX_MESSAGE = 300
# Characters: long enough not to occur in prose by accident, short enough to recognise a key that the server cut off.
_FRAGMENT = 8
# Characters of a part of a path. Shorter ones are words like `llm`, which messages may hold anyway.
_HIDDEN_PART = 6


def env_name(role: Role, what: str) -> str:
    """Name of a role's environment variable: `env_name("judge", "API_KEY")` is "JUDGE_API_KEY"."""
    return f"{ENV_PREFIXES[role]}_{what}"


class Secret(SecretStr):
    """A key that shows itself only to `reveal()`."""

    def __init__(self, value: str = "") -> None:
        value = value.strip()
        if any(not 0x21 <= ord(c) <= 0x7E for c in value):
            raise ConfigError(
                "an API key holds a space, line break or non-ASCII character; "
                "set the *_API_KEY variable to the key alone"
            )
        super().__init__(value)

    def reveal(self) -> str:
        """The key itself. Never keep it in a local variable: tracebacks can show those."""
        return self.get_secret_value()

    def redact(self, text: str) -> str:
        """`text` without the key, fragments of it, and anything else shaped like a key."""
        if 0 < len(self) < _FRAGMENT:
            text = re.sub(rf"(?<!\w){re.escape(self.reveal())}(?!\w)", _REDACTED, text)
        text = _blot(text, quote(self.reveal(), safe=""))
        return _KEY_SHAPED.sub(_REDACTED, _blot(text, self.reveal()))

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("keys are read from the environment in each process, never sent between processes")


def _blot(text: str, key: str) -> str:
    """Replace every part of `text` that consists of fragments of `key`."""
    fragments = {key[start : start + _FRAGMENT] for start in range(len(key) - _FRAGMENT + 1)}
    out, end = "", 0
    for at in range(len(text) if fragments else 0):
        if text[at : at + _FRAGMENT] in fragments:
            out += text[end:at] + _REDACTED * (at > end or not end)
            end = at + _FRAGMENT
    return out + text[end:]


def clean(text: str, secret: Secret, *, limit: int = _MAX_MESSAGE) -> str:
    """One line fit for a terminal: no control or invisible characters, no keys, at most `limit` characters."""
    # Cut first, because the text may be a whole error page.
    text = text[: 20 * limit]
    text = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    text = secret.redact(" ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def normalise_base_url(url: str, name: str = "base URL", provider: Provider = GENERIC) -> str:
    """The base URL requests are appended to.

    Args:
        url: As the user has written it.
        name: The variable it is from, for the message of the `ConfigError` about what is no address.
        provider: Whose paths to leave out or to add.

    >>> normalise_base_url("http://127.0.0.1:8000")
    'http://127.0.0.1:8000/v1'
    >>> normalise_base_url("https://example.org/api/v1/")
    'https://example.org/api/v1'
    >>> normalise_base_url("https://example.org/v1/chat/completions")
    'https://example.org/v1'
    """
    text = url.strip()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme.lower() not in ("http", "https") or not host or any(c.isspace() for c in text):
        # Not echoed: what is no address may be a key.
        raise ConfigError(f"{name}: the base URL is not an http(s) address; write it like https://api.example.com/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{name}: the base URL of {host} holds a user name, query or fragment; "
            "give scheme, host and path only, the key in the *_API_KEY variable, and other parameters as `query` in "
            "spiral.toml"
        )
    path = re.sub(r"/(?:chat/completions|models)$", "", parts.path.rstrip("/")).rstrip("/")
    if "{model}" in provider.chat_path:
        path = re.sub(r"/deployments/[^/]+$", "", path)
    where = f"[{host}]" if ":" in host else host
    return f"{parts.scheme.lower()}://{where}{f':{port}' if port is not None else ''}{path or provider.path}"


def shown_url(url: str) -> str:
    """Scheme, host and port of an address, and the shape of its path: all of it that may be shown or stored.

    >>> shown_url("https://me:secret@example.org:8443/t0k3n-of-mine/v1?key=secret")
    'https://example.org:8443/*/v1'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "*"
    scheme = f"{parts.scheme}://" if parts.scheme else ""
    path = "".join(f"/{part if _PATH_WORD.fullmatch(part) else '*'}" for part in parts.path.split("/")[1:])
    return f"{scheme}{parts.netloc.rpartition('@')[2]}{path}"


def host_of(url: str) -> str:
    """The host that an address names, "" for none."""
    return urlsplit(url).hostname or ""


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    name = host_of(url)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often one call is tried while the endpoint answers others, and how long to wait in between.

    Attributes:
        max_attempts: Most failed HTTP requests, rate-limited ones not counted.
        max_rate_limited: Most requests answered 429. Limits are per minute, so these need more attempts.
        max_bad_responses: Most requests answered with something that is not a completion.
        first_wait: Seconds. A wait is drawn evenly from the upper half of this, doubled with every failure.
        max_wait: Seconds that a drawn wait takes at most.
    """

    max_attempts: int = 6
    max_rate_limited: int = 20
    max_bad_responses: int = 3
    first_wait: float = 0.5
    max_wait: float = 30.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One role's endpoint.

    Attributes:
        provider: Whose conventions the requests follow.
        headers: Sent with each request beside the key: a text and a secret that follows it.
        query: Parameters of each request's address, likewise.
        key_name: Where the user sets the key.
        url_name: Where the user sets the base URL.
        timeout: Seconds that the requests of one call may take together; waits between them are not counted.
        patience: Seconds without any answer after which calls give up; also the most that one call waits in all.
        attempt_timeout: Seconds for one HTTP request.
        max_body: Most bytes of an answer that are read. A reply of 100,000 tokens takes about a tenth of it.
    """

    role: Role
    base_url: str = field(repr=False)
    api_key: Secret = field(default_factory=Secret)
    provider: Provider = field(default=GENERIC, kw_only=True, repr=False)
    headers: Mapping[str, tuple[str, Secret]] = field(default_factory=dict, kw_only=True, repr=False)
    query: Mapping[str, tuple[str, Secret]] = field(default_factory=dict, kw_only=True, repr=False)
    key_name: str = field(default="", kw_only=True)
    url_name: str = field(default="", kw_only=True)
    timeout: float = CALL_SECONDS
    patience: float = 600.0
    attempt_timeout: float = ATTEMPT_SECONDS
    retry: RetryPolicy = RetryPolicy()
    max_body: int = 4 * 2**20

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", normalise_base_url(self.base_url, provider=self.provider))
        object.__setattr__(self, "key_name", self.key_name or env_name(self.role, "API_KEY"))
        object.__setattr__(self, "url_name", self.url_name or env_name(self.role, "BASE_URL"))

    @property
    def host(self) -> str:
        """Host and port as shown in messages."""
        return urlsplit(self.base_url).netloc

    def clean(self, text: str, *, limit: int = _MAX_MESSAGE) -> str:
        """One short line of foreign text without control characters, keys, and what is not shown of the address."""
        text = text[: 20 * limit]
        for part in urlsplit(self.base_url).path.split("/"):
            if len(part) >= _HIDDEN_PART and not _PATH_WORD.fullmatch(part):
                text = Secret(part).redact(text)
        for _, secret in (*self.headers.values(), *self.query.values()):
            text = secret.redact(text)
        return clean(text, self.api_key, limit=limit)
