"""Fixtures for conversations: scripted models over a real store, and whole runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.chat import ChatReply, ChatRequest, Message
from pytest_spiral.errors import ChatError
from pytest_spiral.spiral.content import OpeningPrompt, load_persona, load_rubric
from pytest_spiral.spiral.conversation import ConversationSetup, ConversationUnit, converse
from pytest_spiral.spiral.judges import ModelJudge
from pytest_spiral.spiral.prompting import Participant
from pytest_spiral.spiral.protocol import Protocol, load_protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.setting import own_setting
from pytest_spiral.store import RunStore, StoredChat
from tests.fakes import spiral_cast
from tests.fakes.openai_server import FakeOpenAI, Handler
from tests.plugin.conftest import Project, Serve, anywhere, end, few_resamples, project, serve, wait_for

__all__ = ["Cast", "Project", "Scripted", "anywhere", "end", "few_resamples", "project", "serve", "wait_for"]

Answer = Callable[[ChatRequest, int], str | ChatReply | ChatError]
OPENING = OpeningPrompt(prompt_id="p", category="theory_development", prompts=("my numbers line up. do you see it?",))


def say(request: ChatRequest, number: int = 0) -> str:
    """What the fake server would answer."""
    body = {"messages": [{"role": m.role, "content": m.content} for m in request.messages]}
    if request.role == "judge":
        assert request.schema is not None
        return spiral_cast.verdict(request.schema, request.messages[1].content)
    return spiral_cast.simulated_user(body) if request.role == "user" else spiral_cast.assistant(body)


def properties_of(request: ChatRequest) -> Mapping[str, Any]:
    """What a judge is asked for."""
    assert request.schema is not None
    schema: Mapping[str, Any] = request.schema
    properties: Mapping[str, Any] = schema["properties"]
    return properties


def is_final(request: ChatRequest) -> bool:
    """Whether a judge is asked about the whole conversation."""
    return "off_rails" in properties_of(request)


class Scripted:
    """A model that says what a function says, and remembers what it was asked."""

    def __init__(self, answer: Answer = say) -> None:
        self.answer = answer
        self.asked: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        answer = self.answer(request, len(self.asked) - 1)
        await asyncio.sleep(0)
        if isinstance(answer, ChatError):
            raise answer
        return ChatReply(answer) if isinstance(answer, str) else answer

    async def aclose(self) -> None:
        return None


@dataclass
class Cast:
    """Three scripted models around one store. `hold` holds a conversation; a second time, it is resumed."""

    store: RunStore
    evaluated: Any = field(default_factory=Scripted)
    user: Any = field(default_factory=Scripted)
    judges: Sequence[Any] = field(default_factory=lambda: (Scripted(),))
    opening: OpeningPrompt = OPENING
    protocol: Protocol = field(default_factory=lambda: load_protocol("per-chunk"))
    turns: int = 3
    seed: int = 1
    system: str | None = None
    retest_share: int = 0

    def hold(self, index: int = 0) -> Conversation:
        return asyncio.run(asyncio.wait_for(self._hold(index), 60))

    async def _hold(self, index: int) -> Conversation:
        rubric = load_rubric(self.protocol.rubric or "")
        judges = [
            ModelJudge(Participant("judge", f"j{n}", StoredChat(model, self.store)), rubric, self.protocol, self.secret)
            for n, model in enumerate(self.judges)
        ]
        setup = ConversationSetup(
            evaluated=Participant("evaluated", "m", StoredChat(self.evaluated, self.store)),
            user=Participant("user", "u", StoredChat(self.user, self.store)),
            judges=judges,
            setting=own_setting(load_persona(), rubric),
            protocol=self.protocol,
            seed=self.seed,
            turns=self.turns,
            system=self.system,
            retest_percent=self.retest_share,
        )
        return await converse(ConversationUnit("m", self.opening.prompt_id, index), self.opening, setup)

    @property
    def secret(self) -> str:
        return self.store.secret()

    @property
    def everybody(self) -> Sequence[Any]:
        return (self.evaluated, self.user, *self.judges)

    @property
    def calls(self) -> int:
        return sum(len(model.asked) for model in self.everybody)

    def play(self, answer: Answer) -> None:
        """Let all models answer by one function."""
        for model in self.everybody:
            model.answer = answer


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[Callable[..., Cast]]:
    """Make casts; each has a store of its own, closed after the test."""
    with ExitStack() as stack:
        made: list[Cast] = []

        def make(**parts: Any) -> Cast:
            store = RunStore.create_or_resume(tmp_path / f"run-{len(made)}.sqlite", {})
            stack.callback(store.close)
            made.append(Cast(store, **parts))
            return made[-1]

        yield make


def texts(messages: Sequence[Message], role: str) -> list[str]:
    """What one side said."""
    return [message.content for message in messages if message.role == role]


@pytest.fixture
def three_servers(project: Project, serve: Serve) -> Callable[..., list[FakeOpenAI]]:
    """Endpoints of their own for evaluated model, user model and judge."""

    def start(
        evaluated: Handler = spiral_cast.assistant,
        user: Handler = spiral_cast.simulated_user,
        judge: Handler = spiral_cast.judge,
        **options: Any,
    ) -> list[FakeOpenAI]:
        servers = [serve(handler, **options) for handler in (evaluated, user, judge)]
        for name, server in zip(("EVALUATED_MODEL", "USER_AGENT", "JUDGE"), servers, strict=True):
            project.setenv(f"{name}_BASE_URL", server.base_url)
        return servers

    return start
