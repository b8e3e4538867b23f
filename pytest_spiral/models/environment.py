"""Endpoints and API keys from the environment and `.env`: which address and key variable each role uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pytest_spiral.chat import Role
from pytest_spiral.errors import ConfigError

OPENAI_URL = "https://api.openai.com/v1"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
ENV_PREFIXES: Mapping[Role, str] = {"evaluated": "EVALUATED_MODEL", "user": "USER_AGENT", "judge": "JUDGE"}


class EndpointSettings(BaseModel):
    """Where a role's requests go. The key is held apart, so that this may be printed."""

    model_config = ConfigDict(frozen=True)

    base_url: str
    key_variable: str | None
    """Name of the environment variable that holds the key, None where no key is sent."""


def load_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment, completed from a `.env` file in `folder`; what is set in the environment wins.

    Raises `ConfigError` where the file cannot be read.
    """
    path = folder / ".env"
    if not path.is_file():
        return dict(environ)
    from dotenv import dotenv_values

    try:
        found = dotenv_values(path)
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeError) else error
        raise ConfigError(f"{path}: cannot be read ({reason}); mend or remove it") from None
    return {**{name: value for name, value in found.items() if value is not None}, **environ}


def endpoint_settings(role: Role, environ: Mapping[str, str]) -> EndpointSettings:
    """Base URL and key variable of a role.

    Each of the role's two variables falls back to OPENAI_*, then to OPENROUTER_API_KEY with its own URL. A fallback key
    is sent neither to a server on this machine nor, if it is OpenRouter's, to anybody else.
    Raises `ConfigError` when an https endpoint has no key.
    """
    prefix = ENV_PREFIXES[role]
    url = environ.get(f"{prefix}_BASE_URL") or environ.get("OPENAI_BASE_URL") or ""
    names = [f"{prefix}_API_KEY"]
    if not _on_this_machine(url):
        names.append("OPENAI_API_KEY")
        if not url or "openrouter.ai" in url:
            names.append("OPENROUTER_API_KEY")
    variable = next((name for name in names if environ.get(name)), None)
    if not url:
        url = OPENROUTER_URL if variable == "OPENROUTER_API_KEY" else OPENAI_URL
    if variable is None and url.startswith("https:"):
        raise ConfigError(
            f"no API key for the {role} model at {url}: set {prefix}_API_KEY or OPENAI_API_KEY in the environment "
            f"or in .env, or {prefix}_BASE_URL for a server of your own"
        )
    return EndpointSettings(base_url=url, key_variable=variable)


def _on_this_machine(url: str) -> bool:
    return re.match(r"https?://(localhost|127\.\d+\.\d+\.\d+|\[::1\])([:/]|$)", url, re.IGNORECASE) is not None
