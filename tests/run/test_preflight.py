"""What preflight changes so that a model can be measured, what it tells, and what becomes of cut replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.chat import TokenLimit, token_limit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.store import PREFLIGHT, RunStore
from tests.fakes import spiral_cast
from tests.fakes.openai_server import FakeOpenAI, Fault, Reply
from tests.run.misconfigured import ROLES, Case, Minds, Outcome, Project, above, has, needs, openai, works

Play = Callable[..., Project]

_RENAMED = openai(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)
_NO_TEMPERATURE = openai(
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported.",
    param="temperature",
    code="unsupported_value",
)


@pytest.fixture
def play(server: FakeOpenAI, tmp_path: Path) -> Play:
    """A run whose endpoint minds something."""

    def make(minds: Minds | None = None, role: str = "evaluated", **case: Any) -> Project:
        return Project(tmp_path, server, Case("own", minds, **case), role)

    return make


def sent(outcome: Outcome, role: str) -> Mapping[str, Any]:
    """The parameters that the model of a role was asked with in the run."""
    assert outcome.plan is not None
    (model,) = (model for model in outcome.plan.everybody if model.role == role)
    return model.sent("tempaffect" if role == "evaluated" else "spiral")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("minds", "change"),
    [
        (has("max_tokens", _RENAMED), "is sent as max_completion_tokens"),
        (has("temperature", _NO_TEMPERATURE), "temperature is left out"),
        (
            above(1000, openai("max_tokens is too large: this model supports at most 1000.")),
            "is sent as max_tokens = 1000",
        ),
    ],
    ids=["renamed limit", "no temperature", "lower limit"],
)
def test_what_nobody_chose_is_changed(play: Play, role: str, minds: Minds, change: str) -> None:
    """The model is measured as well as any other, without configuration; the run keeps to it, the report says it, and
    a resumed run asks nothing again."""
    project = play(minds, role)

    first = project.start()
    again = project.start()

    assert works(first), first
    assert {item.score for item in first.items} <= {1.0}
    assert any(change in said for said in first.learned[role].changes)
    assert (again.asked, again.learned, sent(again, role)) == (0, first.learned, sent(first, role))


@pytest.mark.parametrize(("role", "limit"), [("evaluated", 8192), ("user", 24576), ("judge", 8096)])
def test_a_model_that_needs_6000_tokens_gets_them(play: Play, role: str, limit: int) -> None:
    """The limit of the run is raised until it holds the first reply."""
    outcome = play(needs(6000), role, uses=6000).start()

    assert works(outcome)
    assert {item.score for item in outcome.items} <= {1.0}
    assert sent(outcome, role) == {**sent(outcome, role), "max_tokens": limit}


_TOO_LARGE = "Request too large for this model on tokens per min: Limit 10000, Requested 33000."


@pytest.mark.parametrize(
    "refused",
    [
        openai("This request requires more credits, or fewer max_tokens.", status=402),
        Fault.status_code(429, _TOO_LARGE),
        Fault.status_code(413, _TOO_LARGE),
        openai("inputs tokens + max_new_tokens must be <= 8193. Given: 200 and 32768 max_new_tokens"),
        openai("max_tokens is too large.", param="max_tokens"),
        openai("This model's maximum context length is 16000 tokens. However, you requested 32968 tokens."),
    ],
    ids=["little credit", "rate limit", "payload", "unknown words", "no number", "small context"],
)
@pytest.mark.parametrize("role", ROLES)
def test_a_limit_that_is_not_granted_may_not_be_needed(play: Play, role: str, refused: Fault) -> None:
    """What is only refused because preflight asks with the highest limit is tried once and changes nothing."""
    asked: list[int] = []

    def minds(body: Mapping[str, Any]) -> Fault | None:
        asked.append(body.get("max_tokens") or body["max_completion_tokens"])
        return refused if asked[-1] > 8096 else None

    outcome = play(minds, role).start()

    assert works(outcome), outcome
    assert outcome.learned[role].changes == ()
    # Once more where the refusal may be about the limit's name.
    assert asked.count(32768) <= 1 + (refused.status == 400)


def test_the_budget_need_not_hold_the_highest_limit(play: Play) -> None:
    """A run whose calls it holds is run."""
    project = play(toml="price = { input = 0.0, output = 100.0 }", options={"max_cost": 1.0})
    outcome = project.start()

    assert works(outcome), outcome
    assert outcome.asked == 1 + 3


@pytest.mark.parametrize("role", ROLES)
def test_inline_thoughts_are_kept_apart(play: Play, role: str) -> None:
    """A model that thinks in tags scores as its answers deserve."""
    project = play(role=role)
    healthy = project.server.handler

    def thinks(body: dict[str, Any], number: int) -> str | Reply | Fault:
        said = healthy(body, number)
        return f"<think>What would help?</think>\n{said}" if body["model"] == project.name else said

    project.server.handler = thinks
    outcome = project.start()

    assert works(outcome)
    assert {item.score for item in outcome.items} <= {1.0}
    assert "reasoning comes with replies and is kept apart" in outcome.learned[role].notes


def test_inline_thoughts_can_be_failures(play: Play) -> None:
    """For whoever needs an answer that is JSON and nothing else: the model's failure, and not asked for again."""
    project = play(options={"think_tags": "fail"})
    healthy = project.server.handler
    project.server.handler = lambda body, number: f"<think>Hm.</think>{healthy(body, number)}"

    outcome = project.start()

    assert {(item.status, item.reason and item.reason.code) for item in outcome.items} == {
        ("model_failed", "think_block")
    }


def test_all_at_once(play: Play) -> None:
    """A reasoning model as OpenAI has them: another name, no temperature, and 6,000 tokens of thought."""

    def minds(body: Mapping[str, Any]) -> Any:
        refused = _RENAMED if "max_tokens" in body else _NO_TEMPERATURE if "temperature" in body else None
        return refused or needs(6000)(body)

    outcome = play(minds, uses=6000).start()

    assert works(outcome)
    assert sent(outcome, "evaluated") == {"max_completion_tokens": 8192}
    # Two refusals and a reply; then three scenarios.
    assert outcome.asked == 2 + 1 + 3


def test_a_judge_without_schemas_is_asked_in_words(play: Play) -> None:
    """The rubric says which object it wants; what comes is read as strictly."""
    project = play(has("response_format", openai("response_format is not supported", param="response_format")), "judge")
    healthy, refused = project.server.handler, project.case.minds
    schemas: list[Any] = []

    def answer(body: dict[str, Any], number: int) -> str | Reply | Fault:
        if body["model"] == project.name and "response_format" in body:
            schemas.append(body["response_format"])
        elif body["model"] == project.name:
            return spiral_cast.judge({**body, "response_format": schemas[0]})
        return healthy(body, number)

    assert refused is not None
    project.server.handler = answer
    outcome = project.start()

    assert outcome.message == ""
    assert outcome.learned["judge"].changes == ("JSON schemas are left out",)
    assert len(schemas) == 1
    assert outcome.measured
    assert outcome.plan is not None
    assert outcome.plan.judges[0].schemaless


def test_a_judge_that_thinks_at_its_second_try_is_asked_in_one_way(play: Play) -> None:
    """Both sessions of a run learn from the same of its replies, and the second asks nothing again."""
    project = play(role="judge")
    healthy = project.server.handler

    def answer(body: dict[str, Any], number: int) -> str | Reply | Fault:
        reply = healthy(body, number)
        if body["model"] != project.name or "same three houses" not in str(body):
            return reply
        usage = {"prompt_tokens": 10, "completion_tokens": 3000}
        corrected = len(body["messages"]) > 2
        return Reply(reply, reasoning="Hm.", usage=usage) if corrected else "I would say it is fine."

    project.server.handler = answer
    first = project.start()
    again = project.start()

    assert works(first)
    assert (again.asked, sent(again, "judge")) == (0, sent(first, "judge"))


def test_a_reply_cut_off_at_our_limit_is_no_score(play: Play) -> None:
    """One scenario makes the model think for ever: asked again up to the highest limit, then missing, with the limit
    named; the others are measured."""
    endless = "niece"
    cut = Reply(content=None, finish="length", usage={"prompt_tokens": 10, "completion_tokens": 40_000})
    project = play(lambda body: cut if endless in body["messages"][-1]["content"] else None)
    (project.folder / "spiral.toml").write_text("[[default]]\nmost_tokens = 2048\n")

    outcome = project.start()
    again = project.start()

    failed = [item for item in outcome.items if item.status == "instrument_failed"]
    assert (len(failed), len(outcome.items)) == (1, 3)
    for item in failed:
        assert item.reason is not None
        assert (item.reason.code, item.score) == ("token_limit", None)
        assert "max_tokens = 2048" in item.reason.detail
    assert again.asked == 0


def test_a_reply_cut_off_at_a_chosen_limit_is_the_models(play: Play) -> None:
    """Whoever sets max_tokens wants shorter replies: a score of zero, and the reason says whose limit it was."""
    outcome = play(needs(6000), toml="max_tokens = 500").start()

    reasons = {(item.status.value, str(item.reason), item.score) for item in outcome.items}
    assert reasons == {("model_failed", "truncated: cut off at max_tokens = 500, the limit chosen in spiral.toml", 0.0)}
    assert outcome.asked == 1 + 3


_AGAIN = "I am not sure what to do. "


@pytest.mark.parametrize("suite", ["tempaffect", "spiral"])
def test_a_reply_that_repeats_itself_is_the_models(play: Play, suite: str) -> None:
    """At a limit of the package as well, as none would be high enough: it is asked once, and the reason says so."""
    endless = Reply("I see. " + _AGAIN * 3, finish="length", usage={"prompt_tokens": 10, "completion_tokens": 1024})
    project = play(lambda body: endless, options={"suite": (suite,), "no_preflight": True})
    outcome = project.start()

    units = 3 if suite == "tempaffect" else 1
    assert outcome.asked == units
    assert [(item.status, item.reason and item.reason.code) for item in outcome.results] == [
        ("model_failed", "truncated")
    ] * units
    assert all(
        "repeats itself until it is cut off, first at max_tokens" in str(item.reason) for item in outcome.results
    )


def test_a_reply_that_only_says_things_twice_is_asked_for_again(play: Play) -> None:
    """Twice in a row, or in fewer than 60 characters, or a line of fewer than 120, or with other numbers 19 times: it
    may yet end."""
    usage = {"prompt_tokens": 10, "completion_tokens": 40_000}
    numbered = "".join(f"There are {number} of them on the table. " for number in range(19))
    twice = "Nobody knows it and nobody will ever ask. " * 2
    for number, text in enumerate(
        (twice, "Dear me! " * 6, "Dear all,\n" + "-" * 119, _AGAIN * 8 + "But then", numbered)
    ):
        options = {"no_preflight": True, "run_id": f"r{number}"}
        project = play(lambda body, text=text: Reply(text, finish="length", usage=usage), options=options)
        outcome = project.start()

        assert {(item.status.value, item.reason and item.reason.code) for item in outcome.results} == {
            ("instrument_failed", "token_limit")
        }
        assert outcome.asked == 3 * 3


def test_a_turn_cut_off_at_a_chosen_limit_is_the_models(play: Play) -> None:
    """In conversations as well."""
    outcome = play(needs(6000), toml="max_tokens = 500", options={"suite": ("spiral",)}).start()

    (held,) = outcome.results
    assert isinstance(held, Conversation)
    assert (held.status, held.reason and held.reason.code) == ("model_failed", "truncated")
    assert "max_tokens = 500, the limit chosen in spiral.toml" in str(held.reason)


def test_what_one_should_know_is_noted(play: Play) -> None:
    """An endpoint that counts no tokens and enforces no schemas."""
    project = play(lambda body: Reply("ready", usage=None), options={"prompting": ("schema",)})

    outcome = project.start()

    notes = " ".join(outcome.learned["evaluated"].notes)
    assert "counts no tokens" in notes
    assert "does not enforce JSON schemas" in notes


def test_without_preflight_nothing_is_asked_before(play: Play) -> None:
    """But what an earlier session has learned holds."""
    project = play(has("temperature", _NO_TEMPERATURE), options={"no_preflight": True})
    unasked = project.start()
    project.options["no_preflight"] = False
    project.options["run_id"] = "s"
    asked = project.start()
    project.options["no_preflight"] = True
    again = project.start()

    assert (unasked.asked, set(unasked.measured)) == (3, {"instrument_failed"})
    assert works(asked)
    assert works(again)
    assert again.asked == 0


def test_the_calls_are_stored_and_counted(play: Play) -> None:
    """A refusal is a failure, the reply a request like any other."""
    project = play(has("temperature", _NO_TEMPERATURE))
    project.start()

    store = RunStore.join(project.folder / "reports" / "r" / "run.sqlite")
    (usage,) = store.usage()
    units = [exchange.request.unit for exchange in store.exchanges()]
    store.close()

    assert (usage.requests, usage.failures) == (1 + 3, 1)
    assert [unit.startswith(PREFLIGHT) for unit in units] == [True, False, False, False]


def test_limits_differ_by_suite_and_grow_with_what_was_needed(play: Play) -> None:
    """Headroom over the longest reply, no more than may be, and nothing for a model that does not reason."""
    usage = {"prompt_tokens": 10, "completion_tokens": 600}
    thinking = Reply("ready", reasoning="Hm.", usage=usage)
    quick = replace(thinking, reasoning=None)

    limits: list[TokenLimit | None] = []
    for reply in (thinking, quick):
        project = play(lambda body, reply=reply: reply, options={"run_id": f"r{len(limits)}"})
        limits.append(token_limit(sent(project.start(), "evaluated")))

    assert [limit and limit.value for limit in limits] == [8192, 1024]
