"""Misconfigurations, each with an endpoint that minds it, and what the preflight must print so that it can be mended.

The errors are worded as the providers word them in their documentation and in public reports.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.environment import Environment, load_environment
from pytest_spiral.report.model.run import Preflight
from pytest_spiral.run.content import Content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.models import Chats, Connections
from pytest_spiral.run.plan import RunPlan, all_units, make_plan
from pytest_spiral.run.runner import Runner
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item
from tests.fakes.openai_server import FakeOpenAI, Fault, Reply
from tests.faults.runs import MODELS, _few_scenarios, cast, patient

__all__ = ["KEY", "ROLES", "TABLE", "Case", "Outcome", "Project", "documented", "paste", "works"]

KEY = "sk-right-0123456789abcdefXYZ"
ROLES: Mapping[str, str] = {"evaluated": "EVALUATED_MODEL", "user": "USER_AGENT", "judge": "JUDGE"}
Answer = str | Reply | Fault | None
Minds = Callable[[Mapping[str, Any]], Answer]
"""What the endpoint answers to a request that it does not like; None for a healthy answer."""


def openai(message: str, *, param: str | None = None, code: str | None = None, status: int = 400, **more: Any) -> Fault:
    """An error as OpenAI and those who imitate it word it."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code, **more}
    return Fault.raw(json.dumps({"error": error}), status=status)


def has(name: str, fault: Fault) -> Minds:
    return lambda body: fault if name in body else None


def _pydantic(name: str) -> Fault:
    detail = [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}]
    return Fault.raw(json.dumps({"object": "error", "message": {"detail": detail}}), status=422)


def above(most: int, fault: Fault) -> Minds:
    return lambda body: fault if body.get("max_tokens", 0) > most else None


def needs(tokens: int) -> Minds:
    """A model that thinks for so long before it says anything."""

    def minds(body: Mapping[str, Any]) -> Answer:
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 10**9
        usage = {"prompt_tokens": 10, "completion_tokens": limit}
        return Reply(content=None, finish="length", reasoning="Hm.", usage=usage) if limit < tokens else None

    return minds


def _unless_thinking_is_off(body: Mapping[str, Any]) -> Answer:
    thinks = body.get("chat_template_kwargs", {}).get("enable_thinking", True)
    return Reply(content=None, reasoning="All that I have to say.") if thinks else None


def _unknown(fault: Fault, *names: str) -> Minds:
    return lambda body: None if body["model"] in names else fault


_EFFORT = "Unsupported value: 'reasoning_effort' does not support 'xhigh' with this model. Supported values are: "
_EFFORT += "'low', 'medium', and 'high'."
_TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 9204 tokens (204 in the "
_TOO_LONG += "messages, 9000 in the completion). Please reduce the length of the messages or completion."
_NAMES = {"evaluated": "grand-chat-4", "user": "seeker-large-2", "judge": "judge-pro-3"}
_VENDOR = "vendor/"


@dataclass(frozen=True)
class Case:
    """One misconfiguration.

    toml: what the project's file says about the model. minds: what the endpoint answers by the model. named: the name
    of the model on the command line, from its right one. listed: other names that the endpoint lists. key, address:
    set wrongly, from the right one. roles: where it can happen. calls: chat requests to the model before the end.
    more: why it needs more than one.
    """

    name: str
    minds: Minds | None = None
    toml: str = ""
    named: Callable[[str], str] | None = None
    lists: bool | None = None
    key: Callable[[str], str] | None = None
    address: Callable[[str], str] | None = None
    roles: Sequence[str] = tuple(ROLES)
    options: Mapping[str, Any] = field(default_factory=dict)
    calls: int = 1
    more: str = ""
    uses: int = 0


TABLE: tuple[Case, ...] = (
    Case(
        "a temperature that the model refuses",
        has("temperature", openai("Unsupported value: 'temperature' does not support 0.7 with this model. Only the "
            "default (1) value is supported.", param="temperature", code="unsupported_value")),
        "temperature = 0.7",
    ),
    Case(
        "a temperature beside top_p",
        lambda body: openai("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
        if {"temperature", "top_p"} <= body.keys() else None,
        "temperature = 0.7\ntop_p = 0.9",
    ),
    Case("top_p that is not supported", has("top_p", openai("Unsupported parameter: 'top_p'", param="top_p")),
        "top_p = 0.9"),
    Case(
        "frequency_penalty at Gemini's route",
        has("frequency_penalty", Fault.raw(json.dumps([{"error": {"code": 400, "status": "INVALID_ARGUMENT",
            "message": 'Invalid JSON payload received. Unknown name "frequency_penalty": Cannot find field.'}}]),
            status=400)),
        "frequency_penalty = 0.5",
    ),
    Case(
        "presence_penalty that is not supported",
        has("presence_penalty", openai("property 'presence_penalty' is unsupported, did you mean something else?")),
        "presence_penalty = 0.5",
    ),
    Case("a seed at Mistral", has("seed", _pydantic("seed")), "seed = 7"),
    Case(
        "reasoning_effort for a model that does not reason",
        has("reasoning_effort", openai("Unrecognized request argument supplied: reasoning_effort")),
        'reasoning_effort = "high"',
    ),
    Case(
        "a reasoning_effort that the model does not know",
        lambda body: openai(_EFFORT, param="reasoning_effort", code="unsupported_value")
        if body.get("reasoning_effort") == "xhigh" else None,
        'reasoning_effort = "xhigh"',
    ),
    Case(
        "max_tokens above what OpenAI's model writes",
        above(16384, openai("max_tokens is too large: 200000. This model supports at most 16384 completion tokens, "
            "whereas you provided 200000.", param="max_tokens", code="invalid_value")),
        "max_tokens = 200000",
    ),
    Case(
        "max_tokens above what Anthropic's model writes",
        above(8192, Fault.raw(json.dumps({"type": "error", "error": {"type": "invalid_request_error",
            "message": "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"}}),
            status=400)),
        "max_tokens = 100000",
    ),
    Case("max_tokens above the context of a vLLM server", above(3892, openai(_TOO_LONG, code="400")),
        "max_tokens = 9000"),
    Case(
        "a key of the body that OpenAI does not know",
        has("top_k", openai("Unrecognized request argument supplied: top_k")),
        "extra_body.top_k = 40",
    ),
    Case("a key of the body that a strict server forbids", has("min_p", _pydantic("min_p")), "extra_body.min_p = 0.1"),
    Case(
        "a router's key sent to a provider",
        has("provider", openai("Unknown parameter: 'provider'.", param="provider", code="unknown_parameter")),
        'extra_body.provider = { order = ["a"] }',
    ),
    Case(
        "a misspelt name",
        _unknown(openai("The model `x` does not exist or you do not have access to it.", code="model_not_found",
            status=404), *_NAMES.values()),
        named=lambda name: name.replace("-", "", 1), lists=True,
    ),
    Case(
        "a name without its vendor at a router",
        _unknown(openai("x is not a valid model ID"), *(_VENDOR + name for name in _NAMES.values())),
        named=lambda name: name.removeprefix(_VENDOR), lists=True,
    ),
    Case(
        "a name with the router's vendor at a provider",
        _unknown(openai("Model Not Exist"), *_NAMES.values()), named=lambda name: _VENDOR + name, lists=True,
    ),
    Case(
        "a name in capitals",
        _unknown(openai("The model `X` does not exist.", status=404), *_NAMES.values()), named=str.upper, lists=True,
    ),
    Case(
        "a name without its version",
        _unknown(openai('model "x" not found, try pulling it first', status=404), *_NAMES.values()),
        named=lambda name: name.partition("-")[0], lists=True,
    ),
    Case(
        "a retired model",
        _unknown(openai("The model has been decommissioned and is no longer supported.", code="model_decommissioned"),
            *_NAMES.values()),
        named=lambda name: name + "-0314", lists=True,
    ),
    Case(
        "a model that the project may not use",
        _unknown(openai("Project `p` does not have access to model `x`", code="model_not_found", status=404),
            *_NAMES.values()),
        named=lambda name: name + "-pro", lists=True,
    ),
    Case("a wrong key, noticed at the list", key=lambda key: "sk-wrong-0123456789abcdefWXYZ", lists=True, calls=0),
    Case("a wrong key, noticed at the first call", key=lambda key: "sk-wrong-0123456789abcdefWXYZ", lists=False),
    Case("no key", key=lambda key: "", lists=True, calls=0),
    Case("a key with a typo", key=lambda key: key[:-1], lists=False),
    Case("an address where nothing listens", address=lambda url: "http://127.0.0.1:9/v1", calls=0),
    Case("an address with a wrong path", address=lambda url: url.replace("/v1", "/api"), calls=0),
    Case("an address with the version twice", address=lambda url: url + "/v1", calls=0),
    Case("https where the server speaks http", address=lambda url: url.replace("http:", "https:"), calls=0),
    Case("an address that redirects", address=lambda url: url.replace("/v1", "/old"), calls=0),
    # An answer that is none may be chance: it is asked for three times, as in the run.
    Case("the address of a web page", address=lambda url: url.replace("/v1", "/page"), calls=0),
    Case("a server that puts the whole reply into the reasoning", _unless_thinking_is_off),
    Case(
        "a model that thinks beyond most_tokens", needs(50_000), roles=("evaluated",), uses=50_000),
    Case("max_tokens too low for any message", needs(100), "max_tokens = 50", roles=("user", "judge")),
    Case(
        "JSON schemas that the endpoint refuses",
        has("response_format", openai("This model does not support response format `json_schema`.",
            param="response_format")),
        roles=("evaluated",), options={"prompting": ("schema", "raw")},
    ),
    Case(
        "a judge that answers in prose",
        lambda body: "I would say it is fine." if body["model"] == _NAMES["judge"] else None, roles=("judge",), calls=2,
        more="In the run a judge that cannot be read is told so and asked again, which may be all it needs: one reply "
            "in prose does not show that it cannot be used.",
    ),
)  # fmt: skip


@dataclass
class Outcome:
    """How a session ended. message: "" where the models could be used. asked: chat requests to the model of the role.

    measured: states of units and judgements. results: of the units. plan: as it was run. learned: of each model.
    """

    message: str
    asked: int
    measured: list[str] = field(default_factory=list)
    results: Sequence[Item | Conversation] = ()
    plan: RunPlan | None = None
    learned: Mapping[str, Preflight] = field(default_factory=dict)

    @property
    def items(self) -> Sequence[Item]:
        """The results that are items."""
        return [result for result in self.results if isinstance(result, Item)]


class Project:
    """A folder with one run of one case in one role; starting it again resumes it.

    exported: whether keys and addresses are in the environment; otherwise they are in `.env`.
    """

    def __init__(self, folder: Path, server: FakeOpenAI, case: Case, role: str, *, exported: bool = False) -> None:
        self.folder, self.server, self.case, self.role, self.exported = folder, server, case, role, exported
        healthy: Callable[..., Any] = cast()
        vendor = _VENDOR if "without its vendor" in case.name else ""
        names = {each: vendor + name for each, name in _NAMES.items()}
        plain = {names[each]: MODELS[each] for each in ROLES} | {"gpt-6.1-sol": MODELS["judge"]}

        def answer(body: dict[str, Any], number: int) -> str | Reply | Fault:
            own = body["model"] not in names.values() or body["model"] == names[role]
            refused = case.minds(body) if case.minds and own else None
            if refused:
                return refused
            said: str | Reply | Fault = healthy({**body, "model": plain.get(body["model"], "")}, number)
            if not case.uses or body["model"] != names[role] or not isinstance(said, str):
                return said
            return Reply(said, usage={"prompt_tokens": 10, "completion_tokens": case.uses})

        server.handler = answer
        server._models = (*names.values(), "other") if case.lists is not False else 404
        named = dict(names)
        named[role] = case.named(names[role]) if case.named else names[role]
        self.options: dict[str, Any] = {
            "model": (named["evaluated"],),
            "user_model": named["user"],
            "judge_model": (named["judge"],),
            "suite": ("tempaffect",) if role == "evaluated" else ("spiral",),
            "prompting": ("raw",),
            "run_id": "r",
            "num_turns": 2,
            "spiral_prompts": "prompts.json",
            "protocol": "per-chunk",
            **case.options,
        }
        self.variables: dict[str, str] = {}
        for each, prefix in ROLES.items():
            key, url = (case.key, case.address) if each == role else (None, None)
            self.variables[f"{prefix}_API_KEY"] = key(KEY) if key else KEY
            self.variables[f"{prefix}_BASE_URL"] = url(server.base_url) if url else server.base_url
        opening = {"prompt_id": "p", "category": "theory_development", "prompts": ["my number is 3. is it a sign?"]}
        (folder / "prompts.json").write_text(json.dumps([opening]))
        if case.toml:
            table = f'[[model]]\nmatch = "{named[role]}"\nrole = "{role}"\n{case.toml}\n'
            (folder / "spiral.toml").write_text(table)

    @property
    def name(self) -> str:
        """The model of the role, as it is named now."""
        option = self.options[{"evaluated": "model", "user": "user_model", "judge": "judge_model"}[self.role]]
        return str(option if isinstance(option, str) else option[0])

    def environ(self) -> Environment:
        """The variables, with where they come from."""
        if self.exported:
            return load_environment(self.variables, self.folder)
        (self.folder / ".env").write_text("".join(f"{name}='{value}'\n" for name, value in self.variables.items()))
        return load_environment({}, self.folder)

    def start(self) -> Outcome:
        """The preflight and, where it finds no fault, the run."""
        settings = Settings(**self.options)
        content = Content(settings, self.folder)
        content.__dict__["suite"] = _few_scenarios(1)
        before = len(self.server.requests)
        environ = self.environ()
        controller = RunController(make_plan(settings, content, environ, datetime.now(UTC)), content, environ)
        try:
            controller.prepare()
            try:
                controller.check_models()
            except ConfigError as error:
                return Outcome(str(error), self._asked(before))
            plan, store = controller.plan, controller.store
            chats = Chats(plan, content, store, Connections(plan, content, store, environ))
            runner = Runner(chats)
            try:
                units = all_units(plan, content)
                for unit in units:
                    runner.submit(unit)
                results = [runner.wait(unit) for unit in units]
            finally:
                runner.stop()
        finally:
            controller.close()
        judgements = [part for result in results if isinstance(result, Conversation) for part in result.judgements]
        measured = [part.status.value for part in (*results, *judgements)]
        learned = {str(record.role): record for record in controller.measured.learned}
        return Outcome("", self._asked(before), measured, results, plan, learned)

    def _asked(self, before: int) -> int:
        """Chat requests to the model of the role since then."""
        return sum(request.body["model"] == self.name for request in self.server.requests[before:])


def paste(project: Project, message: str) -> list[str]:
    """Do what a message says, with its own lines; what only the user can know is filled in. Returns the lines."""
    pasted: list[str] = []
    for where, block in re.findall(r"^Paste (.*):\n((?:    .*\n?)+)", message, re.MULTILINE):
        lines = [line.strip() for line in block.splitlines()]
        pasted += lines
        if where == "on the command line":
            for line in lines:
                flag, value = line.removeprefix("--").split("=")
                name = flag.replace("-", "_")
                project.options[name] = value if name == "user_model" else (value,)
        elif where.startswith("in the shell" if project.exported else "in .env"):
            known = {"your key": KEY, "https://HOST/v1": project.server.base_url}
            lines = [line.removeprefix("export ").replace("'", "") if project.exported else line for line in lines]
            project.variables.update({name: known[value] for name, _, value in (line.partition("=") for line in lines)})
        else:
            path = project.folder / "spiral.toml"
            assert str(path) in where
            rest = path.read_text() if path.is_file() else ""
            path.write_text("\n".join(lines) + "\n\n" + rest)
    return pasted


def works(outcome: Outcome) -> bool:
    """Whether everything was measured."""
    return not outcome.message and set(outcome.measured) == {Status.MEASURED.value}


def documented(case: Case, lines: Sequence[str]) -> str:
    """The row of a case in the documentation, with the lines for the last of its roles."""
    line = re.sub(r"=.*-.*", "=NAME", lines[-1]) if lines[0].startswith("--") else lines[-1]
    return f"| {case.name} | {', '.join(case.roles)} | {case.calls} | `{line}` |"


if __name__ == "__main__":
    # Prints the rows; the tests compare them with the page.
    with FakeOpenAI(key=KEY, pages=True) as _server, patient(10, 30):
        for _case in TABLE:
            with tempfile.TemporaryDirectory() as _folder:
                _project = Project(Path(_folder), _server, _case, _case.roles[-1])
                print(documented(_case, paste(_project, _project.start().message)))
