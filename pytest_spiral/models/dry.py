"""Built-in models behind the same protocol as real ones, without network and randomness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_spiral.chat import ChatReply, ChatRequest, Role
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.endpoint import OPTION_OF
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.actors import DRY_CHARACTERS, SILENT, assistant_reply, seeker_message
from pytest_spiral.spiral.lexical import LEXICAL_JUDGE
from pytest_spiral.tempaffect.stand_ins import DRY_MODELS, dry_output
from pytest_spiral.tempaffect.suite import Suite

PREFIX = "dry/"
SEEKER = "dry/seeker"
FLOORS = (f"{PREFIX}{SILENT}", f"{PREFIX}cold_refuser")
"""Assistants that do nothing: one answers "ok." to everything, the other refuses coldly."""

_EVALUATED: Mapping[SuiteName, Sequence[str]] = {"tempaffect": DRY_MODELS, "spiral": (*DRY_CHARACTERS, SILENT)}


def known_suites(spec: str, role: Role, suites: Sequence[SuiteName]) -> tuple[SuiteName, ...]:
    """Those of `suites` in which a built-in model can take a role. Raises `ConfigError` with the known names."""
    if role != "evaluated":
        known = SEEKER if role == "user" else LEXICAL_JUDGE
        if spec != known:
            raise ConfigError(f"{OPTION_OF[role]} {spec}: unknown built-in model; known is {known}")
        return tuple(suites)
    found = tuple(suite for suite in suites if spec.removeprefix(PREFIX) in _EVALUATED[suite])
    if not found:
        lists = "; ".join(f"{suite} knows {', '.join(PREFIX + name for name in _EVALUATED[suite])}" for suite in suites)
        raise ConfigError(f"--model {spec}: unknown built-in model; {lists}")
    return found


class _Dry:
    async def aclose(self) -> None:
        return None


class DryScenarioModel(_Dry):
    """Answers a scenario as the named stand-in does."""

    def __init__(self, spec: str, suite: Suite) -> None:
        self._spec = spec
        self._name = spec.removeprefix(PREFIX)
        self._suite = suite

    async def complete(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text=dry_output(self._name, self._suite, self._suite[request.unit]), model=self._spec)


class DryAssistant(_Dry):
    """The evaluated model of a conversation, in the named character."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._character = spec.removeprefix(PREFIX)

    async def complete(self, request: ChatRequest) -> ChatReply:
        prompt_id, index = _conversation(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        return ChatReply(text=assistant_reply(self._character, prompt_id, index, turn), model=self._spec)


class DrySeeker(_Dry):
    """The simulated user; `categories` has the category of each prompt id."""

    def __init__(self, categories: Mapping[str, str]) -> None:
        self._categories = categories

    async def complete(self, request: ChatRequest) -> ChatReply:
        prompt_id, index = _conversation(request)
        # To its own model the simulated user is the assistant. Its first message is the opening.
        turn = sum(message.role == "assistant" for message in request.messages) - 1
        text = seeker_message(prompt_id, self._categories.get(prompt_id, ""), index, turn)
        return ChatReply(text=text, model=SEEKER)


def _conversation(request: ChatRequest) -> tuple[str, int]:
    prompt_id, _, index = request.unit.rpartition("-")
    return prompt_id, int(index)
