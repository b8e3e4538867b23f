"""The pytest plugin: hooks and fixtures that translate, nothing more.

Imported by every pytest run of an environment that has the package, so it imports the standard library and pytest only;
everything else is loaded once `--model` is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_spiral.plugin.options import add_options, add_short_names, free_short_names, read_settings

if TYPE_CHECKING:
    from pytest_spiral.plugin.items import ConversationResult, ScenarioResult
    from pytest_spiral.plugin.role import Role
    from pytest_spiral.run.runner import EvaluatedModel
    from pytest_spiral.spiral.judges import Judge
    from pytest_spiral.spiral.records import Conversation
    from pytest_spiral.tempaffect.checks import ReplyChecks
    from pytest_spiral.tempaffect.scenario import Scenario

CATEGORIES = (
    "spiral_tropes",
    "intellectual_exploration",
    "theory_development",
    "exploring_conspiracies",
    "mania_psychosis",
    "exploring_ai_consciousness",
)
MARKERS = (
    "tempaffect: item of the TempAffect suite",
    "spiral: item of the Spiral-Bench suite",
    *(f"{category}: Spiral-Bench category" for category in CATEGORIES),
    "practical_support_under_affect: TempAffect family, meet the need under emotional load",
    "pressured_integrity: TempAffect family, hold the line under pressure",
    "repair_after_mistake: TempAffect family, own a mistake and mend it",
)
ROLE: pytest.StashKey[Role] = pytest.StashKey()
PARSER: pytest.StashKey[pytest.Parser] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register `--spiral-...` and the ini keys."""
    add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> Generator[None]:
    """Once everybody else's options are known, add the short names that are still free."""
    result = yield
    add_short_names(parser)
    early_config.stash[PARSER] = parser
    if early_config.pluginmanager.hasplugin("asyncio"):
        # An installed pytest-asyncio warns in every run until this is set; this value keeps what it does anyway.
        parser.addini(
            "asyncio_default_fixture_loop_scope",
            "default scope of the asyncio event loop used to execute async fixtures",
            type="string",
            default="fixture-scope",
        )
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Take up a role where `--model` is given: lead the run, or work for one that another process leads."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    settings = read_settings(config)
    if settings is None:
        return
    from pytest_spiral.plugin.role import take_role

    config.stash[ROLE] = take_role(config, settings)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Let `pytest --help` end with the metrics of `--gate`, which no other run has to load."""
    result = yield
    if config.option.help:
        from pytest_spiral.plugin.help import gate_help

        print(f"\n{gate_help()}")
    return result


def pytest_sessionstart(session: pytest.Session) -> None:
    """The command line is read: whoever comes later may have the short names."""
    free_short_names(session.config.stash[PARSER])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what is still running."""
    if role := config.stash.get(ROLE, None):
        role.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize whatever asks for `scenario_result` or `conversation_result` with all units of the run."""
    role = metafunc.config.stash.get(ROLE, None)
    if "scenario_result" in metafunc.fixturenames:
        metafunc.parametrize("scenario_result", role.scenario_params() if role else [], indirect=True)
    if "conversation_result" in metafunc.fixturenames:
        metafunc.parametrize("conversation_result", role.conversation_params() if role else [], indirect=True)


@pytest.fixture
def scenario_result(request: pytest.FixtureRequest) -> ScenarioResult:
    """One TempAffect measurement. An instrument failure is an error of the test's setup, never a result."""
    return request.config.stash[ROLE].scenario_result(request.node, request.param)


@pytest.fixture
def conversation_result(request: pytest.FixtureRequest) -> ConversationResult:
    """One conversation, held and judged. An instrument failure is an error of the test's setup, never a result."""
    return request.config.stash[ROLE].conversation_result(request.node, request.param)


@pytest.fixture(scope="session")
def chat_model(request: pytest.FixtureRequest) -> EvaluatedModel:
    """The first evaluated model, for tests of your own: `await chat_model.ask("...")` in an `async def` test.

    Replies are kept in the run's store like all others. Skips the test without `--model`.
    """
    return _role(request).chat_model()


def _role(request: pytest.FixtureRequest) -> Role:
    role = request.config.stash.get(ROLE, None)
    if role is None:
        pytest.skip("needs --model")
    return role


@pytest.fixture(scope="session")
def user_model(request: pytest.FixtureRequest) -> EvaluatedModel:
    """The user model that plays the seeker, for tests of your own. Skips the test without `--model`."""
    return _role(request).runner.seeker()


@pytest.fixture(scope="session")
def judges(request: pytest.FixtureRequest) -> tuple[Judge, ...]:
    """The judges of the run, each with `await judge.chunk(...)` and `await judge.final(...)`."""
    return _role(request).runner.judges()


@pytest.fixture(scope="session")
def converse(request: pytest.FixtureRequest) -> Converse:
    """Hold a conversation: `await converse("the opening message", turns=5)` in an `async def` test."""
    return Converse(_role(request))


@pytest.fixture(scope="session")
def judge_conversation(request: pytest.FixtureRequest) -> Callable[[Conversation], Awaitable[Conversation]]:
    """Have a conversation judged: `(await judge_conversation(talk)).findings`."""
    return _role(request).runner.judge


class Converse:
    """Holds conversations between the user model and the first evaluated model."""

    def __init__(self, role: Role) -> None:
        self._role = role

    async def __call__(
        self, opening: str, *, turns: int | None = None, category: str = "own", prompt_id: str = "own-1", index: int = 0
    ) -> Conversation:
        """The conversation that begins with `opening`. turns: replies of the evaluated model, the run's by default.

        index: give another number to have the same conversation held anew. Raises nothing for a failing instrument: the
        conversation's status says so.
        """
        from pytest_spiral.spiral.content import Opening

        start = Opening(prompt_id=prompt_id, category=category, prompts=(opening,))
        return await self._role.runner.converse(start, turns, index)


class ScoreReply:
    """Checks a reply against a scenario: `score_reply(scenario, "...").useful_bounded`."""

    def __call__(self, scenario: Scenario, reply: str) -> ReplyChecks:
        from pytest_spiral.tempaffect import check_reply

        return check_reply(scenario, reply)


@pytest.fixture(scope="session")
def score_reply() -> ScoreReply:
    """The deterministic reply checks of TempAffect, for tests of your own. Needs no model."""
    return ScoreReply()
