"""The pytest plugin: hooks and fixtures.

Imported by every pytest run of an environment that has the package, so it imports the standard library and pytest only;
everything else is loaded once `--model` is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_spiral.plugin._compat import worker_input
from pytest_spiral.plugin.options import add_options, add_short_names, free_short_names, read_settings

if TYPE_CHECKING:
    from pytest_spiral.plugin.execution import ActiveParts, ConversationResult, ScenarioResult
    from pytest_spiral.run.runner import EvaluatedModel, Runner
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
    "practical_support_under_affect: TempAffect family: practical support for somebody upset",
    "pressured_integrity: TempAffect family: keep a boundary under pressure",
    "repair_after_mistake: TempAffect family: admit a mistake and repair it",
)
PARTS: pytest.StashKey[ActiveParts] = pytest.StashKey()
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
    """With --model or --replay: make this process the controller of a run, or one of its workers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    settings = read_settings(config)
    if settings is None:
        return
    # Loaded by runs that evaluate a model only.
    if worker_input(config) is not None:
        from pytest_spiral.plugin.worker import start_worker

        config.stash[PARTS] = start_worker(config)
    else:
        from pytest_spiral.plugin.controller import start_controller

        config.stash[PARTS] = start_controller(config, settings)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Let `pytest --help` end with the metrics of `--gate`, which no other run has to load."""
    result = yield
    if config.option.help:
        from pytest_spiral.plugin.terminal import gate_help

        print(f"\n{gate_help()}")
    return result


def pytest_sessionstart(session: pytest.Session) -> None:
    """The command line is read: whoever comes later may have the short names."""
    free_short_names(session.config.stash[PARSER])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what is still running."""
    if parts := config.stash.get(PARTS, None):
        parts.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that ask for `scenario_result` or `conversation_result` with all units of the run."""
    parts = metafunc.config.stash.get(PARTS, None)
    for name in ("scenario_result", "conversation_result"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, parts.collection.params(name) if parts else [], indirect=True)


@pytest.fixture
def scenario_result(request: pytest.FixtureRequest) -> ScenarioResult:
    """One TempAffect result; the test runs once for each scenario and mode.

    An instrument failure is an error in the test's setup, never a result.

    Example:
        def test_polite(scenario_result):
            assert scenario_result.item.checks.non_defensive
    """
    return request.config.stash[PARTS].execution.scenario_result(request.node, request.param)


@pytest.fixture
def conversation_result(request: pytest.FixtureRequest) -> ConversationResult:
    """One Spiral-Bench conversation with its judgements; the test runs once for each conversation.

    An instrument failure is an error in the test's setup, never a result.

    Example:
        def test_short_replies(conversation_result):
            assert all(len(reply) < 5000 for reply in conversation_result.conversation.replies)
    """
    return request.config.stash[PARTS].execution.conversation_result(request.node, request.param)


@pytest.fixture(scope="session")
def chat_model(request: pytest.FixtureRequest) -> EvaluatedModel:
    """The first evaluated model. Its replies are stored like all others. Skips the test without `--model`.

    Example:
        @pytest.mark.asyncio
        async def test_greeting(chat_model):
            assert "hello" in (await chat_model.ask("Say hello.")).lower()
    """
    runner = _runner(request)
    return runner.evaluated(runner.plan.models[0].spec)


def _runner(request: pytest.FixtureRequest) -> Runner:
    parts = request.config.stash.get(PARTS, None)
    if parts is None:
        pytest.skip("needs --model")
    return parts.execution.runner


@pytest.fixture(scope="session")
def user_model(request: pytest.FixtureRequest) -> EvaluatedModel:
    """The model that plays the user in conversations. Skips the test without `--model`.

    Example:
        @pytest.mark.asyncio
        async def test_user(user_model):
            assert await user_model.ask("Who are you?", system="You are a curious student.")
    """
    return _runner(request).simulated_user()


@pytest.fixture(scope="session")
def judges(request: pytest.FixtureRequest) -> tuple[Judge, ...]:
    """The judges of the run, each with `await judge.chunk(...)` and `await judge.final(...)`.

    Example:
        def test_ensemble(judges):
            assert len(judges) == 3
    """
    return _runner(request).judges()


@pytest.fixture(scope="session")
def converse(request: pytest.FixtureRequest) -> Callable[..., Awaitable[Conversation]]:
    """Holds a conversation between the simulated user and the first evaluated model: `Runner.converse`.

    Example:
        @pytest.mark.asyncio
        async def test_conversation(converse):
            conversation = await converse("I have found a hidden message.", turns=5)
            assert len(conversation.replies) == 5
    """
    return _runner(request).converse


@pytest.fixture(scope="session")
def judge_conversation(request: pytest.FixtureRequest) -> Callable[[Conversation], Awaitable[Conversation]]:
    """Has a conversation judged by the judges of the run.

    Example:
        @pytest.mark.asyncio
        async def test_no_flattery(converse, judge_conversation):
            judged = await judge_conversation(await converse("Am I a genius?", turns=3))
            assert not [f for f in judged.findings if f.behaviour == "sycophancy"]
    """
    return _runner(request).judge


@pytest.fixture(scope="session")
def score_reply() -> Callable[[Scenario, str], ReplyChecks]:
    """The deterministic reply checks of TempAffect. Needs no model.

    Example:
        def test_reply(score_reply):
            scenario = Scenario.model_validate(json.loads(Path("scenario.json").read_text()))
            assert score_reply(scenario, "I am sorry. I have cancelled the order.").useful_bounded
    """
    from pytest_spiral.tempaffect import check_reply

    return check_reply
