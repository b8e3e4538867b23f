"""Whole runs without pytest around them: a controller, a runner, a report. Small suites, real store, real HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.evaluate.verdict import exit_code
from pytest_spiral.models.endpoint import Endpoint, RetryPolicy
from pytest_spiral.plugin.execution import InstrumentFailure
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.report.write import write_report
from pytest_spiral.run import controller, models
from pytest_spiral.run import preflight as run_preflight
from pytest_spiral.run.content import Content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.models import Chats, Connections
from pytest_spiral.run.plan import conversation_units, make_plan, scenario_units
from pytest_spiral.run.runner import Runner
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.self_check import SelfCheck, check_scorer
from pytest_spiral.tempaffect.suite import Suite, load_suite
from pytest_spiral.tempaffect.unit import ScenarioUnit
from tests.fakes import spiral_cast
from tests.fakes.bootstrap import few_draws
from tests.fakes.openai_server import FakeOpenAI, Fault, Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.fakes.suites import under_hashes_of

__all__ = ["MODELS", "Outcome", "Run", "cast", "measured", "patient", "remains"]

# One server serves all roles and tells them apart by these.
MODELS = {"evaluated": "m", "user": "u", "judge": "j"}
QUICK = RetryPolicy(max_rate_limited=8, first_wait=0.02, max_wait=0.1)
FAMILIES = ("pi", "ps", "rm")


def cast() -> Any:
    """A handler for all roles of both suites."""
    scenarios = ScriptedModel("perfect")

    def answer(body: dict[str, Any], number: int) -> str | Reply | Fault:
        if body["model"] == MODELS["judge"]:
            return spiral_cast.judge(body, number)
        if body["model"] == MODELS["user"]:
            return spiral_cast.simulated_user(body, number)
        # Conversations have neither a system prompt nor a schema.
        bare = body["messages"][0]["role"] == "user" and "response_format" not in body
        return spiral_cast.assistant(body, number) if bare else scenarios(body, number)

    return answer


@contextmanager
def patient(attempt: float, whole: float) -> Iterator[None]:
    """Deadlines and waits of the real client, scaled down to what a loopback server takes."""
    real = models.endpoint_of

    def quick(*args: Any) -> Endpoint:
        return replace(real(*args), retry=QUICK, patience=1.0, attempt_timeout=attempt, timeout=whole)

    def proved(_: Suite) -> SelfCheck:
        # The scorer would prove itself on the same few scenarios in every run.
        return _preflight()

    with (
        mock.patch.object(models, "endpoint_of", quick),
        mock.patch.object(run_preflight, "endpoint_of", quick),
        mock.patch.object(controller, "check_scorer", proved),
    ):
        yield


@cache
def _preflight() -> SelfCheck:
    return check_scorer(_few_scenarios(1))


@dataclass(frozen=True)
class Outcome:
    """What a run left behind. failed: per unit, what made its test an error."""

    report: Mapping[str, Any]
    code: int
    failed: Sequence[str]
    text: str


@dataclass
class Run:
    """One run of one suite in a folder; starting it again resumes it."""

    folder: Path
    server: FakeOpenAI
    suite: str
    key: str
    run_id: str = "r"
    turns: int = 2
    openings: int = 2
    per_family: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        openings = [
            {"prompt_id": f"p{n}", "category": "theory_development", "prompts": [f"my number is {n}. is it a sign?"]}
            for n in range(self.openings)
        ]
        (self.folder / "prompts.json").write_text(json.dumps(openings))
        # Without it, a reply that is cut off is asked for again, and never the model's failure.
        (self.folder / "spiral.toml").write_text("[[default]]\nfixed_limit = true\n")

    @property
    def run_dir(self) -> Path:
        return self.folder / "reports" / self.run_id

    def environ(self) -> dict[str, str]:
        environ: dict[str, str] = {}
        for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE"):
            environ |= {f"{role}_BASE_URL": self.server.base_url, f"{role}_API_KEY": self.key}
        return environ

    def go(self, prepared: Any = None) -> Outcome:
        """Prepare, run all units, write the report. prepared: called when nothing was yet asked of any model."""
        settings = Settings(
            **{
                "model": (MODELS["evaluated"],),
                "user_model": MODELS["user"],
                "judge_model": (MODELS["judge"],),
                "suite": (self.suite,),
                "run_id": self.run_id,
                "num_turns": self.turns,
                "spiral_prompts": "prompts.json",
                "protocol": "per-chunk",
                **self.options,
            }
        )
        content = Content(settings, self.folder)
        content.__dict__["suite"] = _few_scenarios(self.per_family)
        environ = self.environ()
        controller = RunController(make_plan(settings, content, environ, datetime.now(UTC)), content, environ)
        try:
            controller.prepare()
            controller.check_models()
            if prepared is not None:
                prepared()
            return self._run(controller, content, environ)
        finally:
            controller.close()

    def _run(self, controller: RunController, content: Content, environ: Mapping[str, str]) -> Outcome:
        plan, store = controller.plan, controller.store
        runner = Runner(Chats(plan, content, store, Connections(plan, content, store, environ)))
        units: list[ScenarioUnit | ConversationUnit] = []
        units += scenario_units(plan, content) if self.suite == "tempaffect" else []
        units += conversation_units(plan, content) if self.suite == "spiral" else []
        failed = []
        try:
            for unit in units:
                runner.submit(unit)
            for unit in units:
                result = runner.wait(unit)
                if isinstance(unit, ConversationUnit):
                    assert isinstance(result, Conversation)
                    controller.measured.conversations[unit] = result
                else:
                    assert isinstance(result, Item)
                    controller.measured.items[unit] = result
                failed += [str(InstrumentFailure(why)) for why in _lost(result)]
            results = controller.results(argv=["--model=m"], finished_at=datetime.now(UTC), complete=True)
            with few_draws():
                report = evaluate(results)
            write_report(report, self.run_dir)
        finally:
            runner.stop()
        text = "\n".join([*(line for line, _ in summary_lines(report, "reports/r")), *failed, repr(runner.plan)])
        code = exit_code(1 if failed else 0, report.verdict, False)
        return Outcome(report.model_dump(mode="json"), code, failed, text)


def _lost(result: Item | Conversation) -> list[str]:
    if result.status is Status.INSTRUMENT_FAILED:
        return [str(result.reason)]
    if not isinstance(result, Conversation):
        return []
    parts: list[ChunkJudgement | FinalJudgement] = [*result.judgements, *result.finals]
    return [str(part.reason) for part in parts if part.status is Status.INSTRUMENT_FAILED]


@cache
def _few_scenarios(per_family: int) -> Suite:
    suite = load_suite()
    names = [f"{family}-{number:02}" for family in FAMILIES for number in range(1, per_family + 1)]
    return under_hashes_of(suite, map(suite.__getitem__, names))


def measured(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """The report without what differs between two runs that measured the same: times, names, traffic."""
    cards = [{**card, "integrity": None, "cautions": None} for card in report["tempaffect"]["cards"]]
    # Under how many names a model was served is traffic, too, and with it whether a score may be published.
    scores = [
        {**score, "publication_ready": None, "blockers": [b for b in score["blockers"] if not b.startswith("S13")]}
        for score in report["spiral"]["scores"]
    ]
    return {
        "verdict": report["verdict"],
        "gates": report["gates"],
        "integrity": report["integrity"],
        "tempaffect": {**report["tempaffect"], "cards": cards},
        "spiral": {**report["spiral"], "scores": scores},
    }


def remains(folder: Path, needle: str) -> list[str]:
    """Files below a folder that hold a string, or a good part of it."""
    part = needle[8:24].encode()
    return [
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and part in path.read_bytes()
    ] + [name for name in os.environ if needle in os.environ[name]]
