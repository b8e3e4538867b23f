"""A real endpoint over HTTP: what is sent, what counts as the model's failure, and what is the instrument's."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.plugin.terminal import Progress
from tests.fakes.forks import ADDRESS
from tests.fakes.openai_server import Fault, Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

KEY = "sk-plugin-test-0123456789abcdefXYZ"
RAW = ("--model", "m", "--suite=tempaffect", "--prompting", "raw")
FEW = (*RAW, "-k", "ps-01 or ps-02 or ps-03 or ps-04 or ps-05 or ps-06", "-p", "no:xdist")


def reason_code(item: dict[str, Any]) -> str | None:
    """Code of an item's reason."""
    return None if item["reason"] is None else str(item["reason"]["code"])


def _leaks(project: Project, result: pytest.RunResult, secret: str) -> list[str]:
    """Where a secret, or a good part of it, can be read after a run."""
    part = secret[10:26].encode()
    found = [str(path) for path in project.path.rglob("*") if path.is_file() and part in path.read_bytes()]
    return found + [name for name in ("stdout", "stderr") if part.decode() in getattr(result, name).str()]


def _children() -> set[str]:
    """Processes that this one has started and that are still there, as far as the system tells."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def test_what_is_sent(project: Project, serve: Serve, anywhere: tuple[str, ...]) -> None:
    """75 scenarios in two modes, and one question in each before the first; the schema only in schema mode, strict; the
    key on every request and nowhere else."""
    model = ScriptedModel("perfect")
    server = serve(model, key=KEY)
    project.reach(server, KEY)

    result = project.pytest("--model", "some/model", "--suite=tempaffect", *anywhere)

    assert result.ret == 0
    result.assert_outcomes(passed=150)
    assert (len(model.asked), len(set(model.asked)), model.probes) == (150, 150, 2)
    assert Counter(mode for mode, _ in model.asked) == {"schema": 75, "raw": 75}
    for request in server.requests:
        form = request.body.get("response_format")
        assert request.body["model"] == "some/model"
        assert request.body["temperature"] == 0.0
        assert form is None or (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
    # A question in each mode, with room for whatever the model may think.
    assert [request.body["max_tokens"] for request in server.requests] == [32768, 32768, *[1024] * 150]
    (card, _) = project.report()["tempaffect"]["cards"]
    assert card["integrity"]["enforcement_verified"] is True
    assert card["integrity"]["served_models"] == ["some/model"]
    usage = project.report()["usage"]["by_role"]["evaluated"]
    assert (usage["requests"], usage["completion_tokens"], usage["failures"]) == (152, 760, 0)
    assert _leaks(project, result, KEY) == []


def test_the_answer_key_is_never_sent(project: Project, serve: Serve) -> None:
    """Neither ids nor labels of a scenario reach the model."""
    server = serve(ScriptedModel())
    project.reach(server)

    project.pytest(*FEW)

    for request in server.requests:
        assert b"ps-0" not in request.raw
        assert b"expected" not in request.raw
        assert b"anchor" not in request.raw


def test_failures_of_the_model_score_zero(project: Project, serve: Serve) -> None:
    """Refused, empty or in prose: measured as a failure with its reason, never dropped and never an error."""
    replies: dict[str, str | Reply | Fault] = {
        "ps-01": Reply.refused(),
        "ps-03": Reply(content=None),
        "ps-04": "I would rather talk about it.",
        "ps-05": Reply.filtered(),
    }
    project.reach(serve(ScriptedModel("perfect", replies=replies)))

    result = project.pytest(*FEW)

    result.assert_outcomes(passed=6)
    items = project.items()
    assert {name: items["raw", name]["reason"]["code"] for name in replies} == {
        "ps-01": "refusal",
        "ps-03": "empty_output",
        "ps-04": "not_json",
        "ps-05": "content_filter",
    }
    assert {(items["raw", name]["status"], items["raw", name]["score"]) for name in replies} == {("model_failed", 0.0)}
    assert items["raw", "ps-06"]["status"] == "measured"
    assert project.report()["tempaffect"]["cards"][0]["valid_output_rate"] == pytest.approx(2 / 6)


def test_failures_of_the_instrument_are_no_score(project: Project, serve: Serve, anywhere: tuple[str, ...]) -> None:
    """Out of credit after 50 answers: the rest are test errors without a score, what was measured stays, no verdict."""
    model = ScriptedModel("perfect", answers=50)
    project.reach(serve(model), KEY)

    result = project.pytest(*RAW, *anywhere, "--gate", "tempaffect.valid_output_rate >= 0.5")

    result.assert_outcomes(passed=50, errors=25)
    assert result.ret == 11
    items = Counter(
        (item["status"], (item["reason"] or {}).get("code"), item["score"] is None) for item in project.items().values()
    )
    assert items == {("measured", None, False): 50, ("instrument_failed", "quota", True): 25}
    (card,) = project.report()["tempaffect"]["cards"]
    assert (card["missing"]["n"], card["valid_output_rate"]) == (25, 1.0)
    assert project.report()["verdict"] == "incomplete"
    assert project.report()["gates"][0]["outcome"] == "incomplete"
    said = result.stdout.str()
    assert "out of credit" in said
    assert "Traceback" not in said
    assert "pytest_spiral/" not in said


def test_a_server_that_goes_away_is_no_score(project: Project, serve: Serve) -> None:
    """Connections lost in the middle of a run are tried again, then reported as what they are."""
    model = ScriptedModel("perfect", answers=2, then=Fault.reset())
    project.reach(serve(model))

    result = project.pytest(*FEW, "--concurrency", "2", "--patience=2")

    result.assert_outcomes(passed=2, errors=4)
    assert result.ret == 11
    assert Counter(map(reason_code, project.items().values())) == {None: 2, "bad_response": 4}


def test_an_outage_loses_no_item(project: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that answers 503 and 429 for three seconds, and asks not to wait, is left alone until it is back."""
    model = ScriptedModel("perfect")
    began: list[float] = []

    def answer(body: dict[str, Any], n: int) -> str | Reply | Fault:
        began.append(time.monotonic())
        # The first question comes before any scenario.
        if n == 0 or began[-1] - began[1] > 3:
            return model(body, n)
        return Fault.status_code(429, retry_after=0) if n % 2 else Fault.status_code(503)

    server = serve(answer)
    project.reach(server)
    monkeypatch.setattr(Progress, "log_seconds", 0.5)

    result = project.pytest("--model=m", "--suite=tempaffect", "--prompting=raw", "--patience=60", "-p", "no:xdist")

    result.assert_outcomes(passed=75)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*0 of * units, 0 of * calls*; m paused for * s: its endpoint fails"])
    # 64 at first, a probe after each pause, and 75 answers.
    assert len(server.requests) < 1 + 64 + 10 + 75


def test_a_schema_that_is_not_enforced_is_no_schema_mode(project: Project, serve: Serve) -> None:
    """An endpoint that only claims to enforce schemas is found out, and its schema card says so (B06)."""
    project.reach(serve(ScriptedModel("perfect", enforces=False)))

    project.pytest("--model", "m", "--suite=tempaffect", "-k", "ps-01", "-p", "no:xdist")

    schema, raw = (card["integrity"]["publication_blockers"] for card in project.report()["tempaffect"]["cards"])
    assert "B06" in [blocker.split()[0] for blocker in schema]
    assert "B06" not in [blocker.split()[0] for blocker in raw]


def test_an_endpoint_that_refuses_schemas(project: Project, serve: Serve) -> None:
    """Exit code 4 with the way out, before anything is scored."""
    server = serve(lambda body, n: Fault.status_code(400, "response_format json_schema is not supported"))
    project.reach(server)

    result = project.pytest("--model", "m", "--suite=tempaffect", "-p", "no:xdist")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--prompting raw" in result.stderr.str()
    assert len(server.requests) == 1


@pytest.mark.parametrize("listing", [("fake",), 404], ids=["list-checks-the-key", "no-list"])
@pytest.mark.parametrize("given", [None, "sk-wrong-0123456789abcdefWXYZ"], ids=["no-key", "wrong-key"])
def test_a_key_that_is_refused(
    project: Project, serve: Serve, listing: tuple[str, ...] | int, given: str | None
) -> None:
    """401: exit code 4 before any scored call; the key is not in the message though the server echoes it."""
    model = ScriptedModel()
    project.reach(serve(model, key=KEY, models=listing), given)

    result = project.pytest("--model", "m", "--suite=tempaffect", "-p", "no:xdist")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert model.asked == []
    assert "EVALUATED_MODEL_API_KEY" in result.stderr.str()
    if given:
        assert _leaks(project, result, given) == []


@pytest.mark.parametrize("distribution", [("-p", "no:xdist"), ("-n", "1")], ids=["no-xdist", "n1"])
def test_nobody_there(project: Project, distribution: tuple[str, ...]) -> None:
    """A closed port: exit code 4 and what to check, and no report. Workers that have been started are gone."""
    project.setenv("EVALUATED_MODEL_BASE_URL", "http://127.0.0.1:9")
    # Its workers must be its children.
    project.delenv(ADDRESS)
    children = _children()

    result = project.pytest("--model", "m", "--suite=tempaffect", "--run-id=r", *distribution)

    assert _children() == children
    assert not list(project.path.glob("reports/r/report.*"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --model m: 127.0.0.1:9: connection refused: *EVALUATED_MODEL_BASE_URL*"])


@pytest.mark.parametrize("distribution", [("-p", "no:xdist"), ("-n", "2")], ids=["no-xdist", "n2"])
def test_no_key_at_all(project: Project, distribution: tuple[str, ...]) -> None:
    """The default endpoint needs a key: exit code 4 names the variables, and nothing is sent or created."""
    result = project.here("--model", "gpt-5", "--suite=tempaffect", *distribution)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (error,) = [line for line in result.errlines if line.strip()]
    assert "EVALUATED_MODEL_API_KEY" in error
    assert "OPENAI_API_KEY" in error
    assert not (project.path / "reports").exists()


@pytest.mark.parametrize("suffix", ["/", "/v1/chat/completions"])
def test_base_urls_as_people_write_them(project: Project, serve: Serve, suffix: str) -> None:
    """With and without /v1."""
    model = ScriptedModel()
    project.setenv("EVALUATED_MODEL_BASE_URL", serve(model).origin + suffix)

    project.pytest(*RAW, "-k", "ps-01", "-p", "no:xdist")

    assert model.asked == [("raw", "ps-01")]


@pytest.mark.parametrize("url", ["example.org", "ftp://example.org", "https://u:secretpassword@example.org/v1"])
def test_a_base_url_that_is_none(project: Project, url: str) -> None:
    """Exit code 4, one sentence; what may be a password is not repeated."""
    project.setenv("EVALUATED_MODEL_BASE_URL", url)
    project.setenv("EVALUATED_MODEL_API_KEY", KEY)

    result = project.here(*RAW, "-p", "no:xdist")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in result.stderr.str()
    assert "base URL" in result.stderr.str()
    assert _leaks(project, result, "x" * 10 + "secretpassword") == []


def test_dot_env_is_read(project: Project, serve: Serve, anywhere: tuple[str, ...]) -> None:
    """Key and address from .env where the user stands; workers read it, too. Where the user trusts the file's address,
    the environment's key wins."""
    model = ScriptedModel()
    server = serve(model, key=KEY)
    lines = f"EVALUATED_MODEL_BASE_URL={server.base_url}\nEVALUATED_MODEL_API_KEY="

    project.write(__env=lines + KEY)
    project.pytest(*RAW, "-k", "ps-01", *anywhere).assert_outcomes(passed=1)
    project.write(__env=lines + "wrong")
    project.setenv("EVALUATED_MODEL_API_KEY", KEY)
    project.pytest(*RAW, "-k", "ps-02", "--trust-env", *anywhere).assert_outcomes(passed=1)

    assert sorted(model.asked) == [("raw", "ps-01"), ("raw", "ps-02")]


def test_a_dot_env_does_not_get_at_keys(project: Project, serve: Serve) -> None:
    """A file that came with the project names an address. A key of the environment is not sent there: exit code 4 with
    the line to paste, and nothing is sent or made; a server on this machine is asked without a key."""
    server = serve(ScriptedModel(), key=KEY)
    project.setenv("OPENAI_API_KEY", KEY)
    project.setenv("EVALUATED_MODEL_API_KEY", KEY)

    for value, says in (
        ("http://192.0.2.7:9/${OPENAI_API_KEY}/v1", "refers to another variable"),
        ("http://192.0.2.7:9/planted-in-path/v1", "EVALUATED_MODEL_API_KEY="),
    ):
        project.write(__env=f"EVALUATED_MODEL_BASE_URL={value}\n")
        result = project.pytest(*RAW, "-p", "no:xdist")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert says in result.stderr.str()
        assert ".env:1" in result.stderr.str()
        assert "planted" not in result.stderr.str()
        assert not (project.path / "reports").exists()
    project.write(__env=f"EVALUATED_MODEL_BASE_URL={server.base_url}\n")
    result = project.pytest(*RAW, "-p", "no:xdist")

    assert "no key was sent" in result.stderr.str()
    assert (result.ret, _leaks(project, result, KEY)) == (pytest.ExitCode.USAGE_ERROR, [])


@pytest.mark.parametrize(
    ("status", "place"), [(200, ("-n", "1")), (404, ("-p", "no:xdist")), (301, ("-p", "no:xdist"))]
)
def test_a_token_in_the_path_of_an_address_stays_there(
    project: Project, serve: Serve, status: int, place: tuple[str, ...]
) -> None:
    """Some services put a key into the address. Neither a run that works nor one whose server repeats it in errors and
    redirects shows it: in the run directory, JUnit, the terminal, failing tests with their locals, or logs."""
    token = "abcdefghij0123456789TOKENzyxwvut"
    echo = Fault("answer", status, f"no such page: /{token}/v1/x".encode(), headers={"Location": f"/{token}/v2/x"})
    model = ScriptedModel()
    server = serve(lambda body, n: model(body, n) if status == 200 else echo, prefix=f"/{token}/v1")
    project.reach(server, KEY)
    project.write(
        test_own__py="""
import asyncio

def test_own(chat_model, pytestconfig):
    text = asyncio.run(chat_model.ask("hello"))
    assert text == chat_model
"""
    )

    loud = (
        "--no-preflight",
        "--log-level=DEBUG",
        "--log-file=log.txt",
        "--log-cli-level=DEBUG",
        "--junit-xml=junit.xml",
        "-l",
        "-vv",
    )
    result = project.pytest(*RAW, *loud, *place, "-k", "ps-01 or ps-02")
    own = project.pytest(*RAW, *loud, "-p", "no:xdist", "test_own.py")

    result.assert_outcomes(**({"passed": 2} if status == 200 else {"errors": 2}))
    own.assert_outcomes(failed=1)
    assert server.origin + "/*/v1" in (project.path / "log.txt").read_text()
    assert _leaks(project, result, token) == _leaks(project, own, token) == []
    assert _leaks(project, result, KEY) == _leaks(project, own, KEY) == []


@pytest.mark.parametrize("status", [200, 400])
def test_secrets_of_headers_and_addresses_stay_there(project: Project, serve: Serve, status: int) -> None:
    """A gateway that wants a token in a header and one in the address repeats both: neither is in the run directory,
    the terminal, JUnit or the logs."""
    header, query = "headertoken0123456789HEADER", "querytoken0123456789QUERY"
    model = ScriptedModel()
    echo = Fault.status_code(status, f"bad token {header} in /v1/chat/completions?sig={query}")
    server = serve(lambda body, n: model(body, n) if status == 200 else echo)
    project.write(
        spiral__toml=f'''[[model]]
match = "m"
base_url = "{server.base_url}"
headers.X-Gateway = {{ env = "GATEWAY", prefix = "Basic " }}
query.sig = {{ env = "SIGNATURE" }}
endpoint = "gateway-a"
''',
        __env=f"GATEWAY={header}\nSIGNATURE={query}\n",
    )

    loud = ("--log-level=DEBUG", "--log-file=log.txt", "--log-cli-level=DEBUG", "--junit-xml=junit.xml", "-l", "-vv")
    result = project.pytest(*RAW, *loud, "-p", "no:xdist", "-k", "ps-01")

    assert (server.requests[0].headers["x-gateway"], query in server.requests[0].path) == (f"Basic {header}", True)
    (project.path / ".env").unlink()
    assert _leaks(project, result, header) == _leaks(project, result, query) == []
    if status == 200:
        (config,) = project.report()["run"]["config"]["models"]
        assert config["endpoint"]["query"] == {"sig": {"env": "SIGNATURE", "prefix": ""}}
        assert config["endpoint"]["alias"] == "gateway-a"


def test_fallbacks_of_the_environment(project: Project, serve: Serve) -> None:
    """OPENAI_BASE_URL serves a role that has no address of its own; a key meant for others stays away from it."""
    model = ScriptedModel()
    server = serve(model)
    project.setenv("OPENAI_BASE_URL", server.base_url)
    project.setenv("OPENAI_API_KEY", KEY)
    project.setenv("OPENROUTER_API_KEY", KEY)

    project.pytest(*RAW, "-k", "ps-01", "-p", "no:xdist")

    assert model.asked == [("raw", "ps-01")]
    assert KEY not in json.dumps([request.headers for request in server.requests])


def test_spiral_toml_changes_the_request(project: Project, serve: Serve) -> None:
    """Parameters come from files, per model; the report shows what was sent."""
    project.write(spiral__toml='[[model]]\nmatch = "m"\ntemperature = "unset"\nmax_completion_tokens = 77\n')
    server = serve(ScriptedModel())
    project.reach(server)

    project.pytest(*RAW, "-k", "ps-01", "-p", "no:xdist")

    body = server.requests[-1].body
    assert (body.get("temperature"), body.get("max_tokens"), body.get("max_completion_tokens")) == (None, None, 77)
    assert project.report()["run"]["config"]["models"][0]["params"] == {"tempaffect": {"max_completion_tokens": 77}}


def test_rate_limits_are_waited_out(project: Project, serve: Serve) -> None:
    """A 429 is no failure of anybody; it is tried again and counted."""
    model = ScriptedModel()
    limited = Fault.status_code(429, retry_after=0.05)
    project.reach(serve(lambda body, n: limited if n in (2, 4) else model(body, n)))

    result = project.pytest(*FEW)

    result.assert_outcomes(passed=6)
    assert project.report()["usage"]["by_role"]["evaluated"]["retries"] == 2
