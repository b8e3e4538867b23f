"""Workers on other machines: no shared folder, and the controller knows everything all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.chat import ChatReply, ChatRequest, Message, TokenUsage
from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.run.remote_workers import Package, make_package, open_package, unpack
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import RunStore, StoredChat
from tests.fakes import spiral_cast
from tests.fakes.openai_server import Fault, Handler, Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve
from tests.plugin.test_option_shard import results

RUN = ("--model=m", "--user-model=u", "--judge-model=j", "--suite=tempaffect", "--suite=spiral", "--prompting=raw")
FEW = ("--num-turns=2", "--benign-twins=off", "-k", "repair or tropes")


def cast(scenarios: ScriptedModel) -> Handler:
    """One server for everybody: scenarios, the three of a conversation."""

    def answer(body: dict[str, Any], n: int) -> str | Reply | Fault:
        system = body["messages"][0]["role"] == "system"
        if "response_format" in body:
            return spiral_cast.judge(body)
        if body["model"] == "u":
            return spiral_cast.simulated_user(body)
        return scenarios(body, n) if system else spiral_cast.assistant(body)

    return answer


def kept(project: Project, run: str) -> list[tuple[str, str, str, str, int]]:
    """Every reply of a run's store, whatever the order."""
    store = RunStore.join(project.folder(run) / "run.sqlite")
    found = [(each.request, each.reply) for each in store.exchanges()]
    store.close()
    return sorted((q.role, q.model, q.unit, a.text, a.usage.prompt_tokens) for q, a in found)


def test_the_same_report_and_store_as_of_one_process(project: Project, serve: Serve, tmp_path: Path) -> None:
    """Two workers in folders of their own, the run's folder unknown to them: replies and results travel home."""
    server = serve(cast(ScriptedModel()))
    project.setenv("OPENAI_BASE_URL", server.base_url)
    away = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        away.append(f"--tx=popen//chdir={tmp_path / name}")

    plain = project.pytest(*RUN, *FEW, "--run-id=plain", "-p", "no:xdist")
    asked = len(server.requests)
    remote = project.pytest(*RUN, *FEW, "--run-id=remote", "-d", *away)
    asked_away = len(server.requests) - asked
    again = project.pytest(*RUN, *FEW, "--run-id=remote", "-d", *away)

    assert [run.parseoutcomes()["passed"] for run in (plain, remote, again)] == [30, 30, 30]
    assert asked_away == asked == len(server.requests) - asked
    assert results(project, "remote") == results(project, "plain")
    assert kept(project, "remote") == kept(project, "plain")
    assert not [path for path in tmp_path.glob("*/*") if "pytest" not in path.name]


def test_a_limit_on_cost_is_refused(project: Project, serve: Serve, tmp_path: Path) -> None:
    """Nobody could keep it."""
    project.reach(serve(ScriptedModel()))
    project.write(spiral__toml='[[model]]\nmatch = "m"\nprice = { input = 1, output = 1 }\n')

    result = project.pytest(
        "--model=m",
        "--suite=tempaffect",
        "--prompting=raw",
        "--max-cost=1",
        "-d",
        f"--tx=popen//chdir={tmp_path}",
        "-k",
        "ps-01",
    )

    result.stderr.fnmatch_lines(["*--max-cost needs workers that see the run directory*"])


def request(text: str, **other: Any) -> ChatRequest:
    return ChatRequest("judge", "j", (Message("system", "rubric"), Message("user", text)), {"max_tokens": 5}, **other)


class Model:
    """Answers one request and fails at all others."""

    def __init__(self, answered: ChatRequest, reply: ChatReply) -> None:
        self.answered, self.reply = answered, reply

    async def complete(self, request: ChatRequest) -> ChatReply:
        if request != self.answered:
            raise ChatError(ReasonCode.TIMEOUT, "no answer", attempts=3)
        return self.reply

    async def aclose(self) -> None:
        pass


def test_what_travels_is_what_was_stored(tmp_path: Path) -> None:
    """Requests, replies, failures and hostile text arrive whole, once, in what any channel can carry."""
    controller = RunStore.create_or_resume(tmp_path / "run.sqlite", {"seed": 1})
    known = ChatReply("yes \udc00", model="served")
    controller.keep_all([(request("known"), known)])
    package = make_package(controller, {"seed": 1})
    worker = open_package(Package.model_validate_json(package.model_dump_json(ensure_ascii=True)), {"seed": 1})
    asked = request("new", schema={"type": "object"})
    reply = ChatReply("\ud800<b>\x1b[0m", "length", "j-1", TokenUsage(7, 3, 2, 1), 1.5, 2, "hm \ud800")
    chat = StoredChat(Model(asked, reply), worker)

    assert asyncio.run(chat.complete(request("known"))) == known
    assert asyncio.run(chat.complete(asked)) == reply
    with pytest.raises(ChatError):
        asyncio.run(chat.complete(request("lost")))
    packed = worker.pack()

    assert worker.secret() == controller.secret()
    assert packed is not None
    assert packed.isascii()
    unpack(packed, controller)
    unpack(packed.replace("no answer", "again"), controller)
    assert worker.pack() is None
    assert controller.find(asked) == reply
    (usage,) = controller.usage()
    assert (usage.requests, usage.failures, usage.retries) == (2, 2, 1 + 4)


def test_a_worker_with_another_suite_is_refused(tmp_path: Path) -> None:
    """Another version of the package over there would measure something else."""
    controller = RunStore.create_or_resume(tmp_path / "run.sqlite", {"suite_hash": "a"})

    with pytest.raises(ConfigError, match="measure something else: suite_hash"):
        open_package(make_package(controller, {"suite_hash": "a"}), {"suite_hash": "b"})
