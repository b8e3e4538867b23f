"""Hostile and broken input: what a model says is data, in every place where it is shown or kept."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import load_suite
from pytest_spiral.text import whole_characters
from tests.fakes.openai_server import Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

ESC = "\x1b[2J\x1b]0;owned\x07\x1b[31m"
HTML = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def _valid(scenario: str, **changes: object) -> str:
    suite = load_suite()
    return json.dumps({**json.loads(dry_output("perfect", suite, suite[scenario])), **changes})


HOSTILE = {
    "ps-01": ESC + HTML,
    "ps-02": "\ud800 half a pair \udfff",
    "ps-03": "x" * 2**20,
    "ps-04": _valid("ps-04", **{ESC + HTML: 1}),
    "ps-05": _valid("ps-05", detected_emotion=ESC + HTML),
    "ps-06": _valid("ps-06", reply=f"{ESC} Sorry {HTML} \u202e\u200b| `a` **b** @everyone"),
    "ps-07": _valid("ps-07", **{"\udc80": 1}),
    "ps-08": "[" * 100_000,
    "ps-09": "\x00\x01\x7f\x85\u2028\ufeff",
    "pi-01": _valid("pi-01", reply="\udead"),
    "pi-02": '{"intensity": ' + "9" * 6000 + "}",
    "pi-03": _valid("pi-03") + ESC,
    "pi-04": _valid("pi-04", **{f"key{n}": ESC for n in range(1000)}),
}


@pytest.fixture
def hostile(project: Project, serve: Serve) -> tuple[str, ...]:
    """A server whose model says all that, under a hostile name of its own."""
    name = f"m{HTML}`|"
    replies = {key: Reply(text, model=ESC + HTML) for key, text in HOSTILE.items()}
    project.reach(serve(ScriptedModel(replies=replies)))
    return ("--model", name.replace(" ", "_"), "--suite=tempaffect", "--prompting", "raw", "-k", " or ".join(HOSTILE))


def test_hostile_outputs_reach_nothing(project: Project, hostile: tuple[str, ...], anywhere: tuple[str, ...]) -> None:
    """No escape sequence on the terminal, no markup in the summary, no broken file; the report holds the raw output.

    Of outputs longer than twice the limit of 20,000 characters it holds the beginning.
    """
    result = project.pytest(
        *hostile, *anywhere, "--strict-items", "-rA", "-vv", "--showlocals", "--junitxml=out.xml", "--color=no"
    )

    said = result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in said
    assert [char for char in "\x1b\x07\u202e\x00\x85" if char in said] == []
    assert "<script" not in (project.folder() / "summary.md").read_text()
    assert "<img" not in (project.folder() / "summary.md").read_text()
    items = project.items()
    expected = {name: whole_characters(text[:40_000]) for name, text in HOSTILE.items()}
    assert {name: items["raw", name]["output"] for name in HOSTILE} == expected
    assert {items["raw", name]["status"] for name in HOSTILE if name != "ps-06"} == {"model_failed"}
    assert len(ElementTree.parse(project.path / "out.xml").findall(".//testcase")) == len(HOSTILE)
    result.assert_outcomes(failed=len(HOSTILE))


def test_hostile_names_make_no_path(project: Project, hostile: tuple[str, ...]) -> None:
    """Card files have plain names inside the run's folder."""
    project.pytest(*hostile, "-p", "no:xdist", "--color=yes")

    (name,) = project.cards()
    assert name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    assert {path.name for path in project.path.iterdir()} <= {"reports", "stdout", "stderr", ".pytest_cache"}


def test_a_model_name_that_is_a_path(project: Project, serve: Serve) -> None:
    """`../../x` is a name like any other to the endpoint and no way out of the report folder."""
    project.reach(serve(ScriptedModel()))

    result = project.pytest(
        "--model", "../../x", "--suite=tempaffect", "--prompting", "raw", "-k", "ps-01", "-p", "no:xdist"
    )

    result.assert_outcomes(passed=1)
    assert not (project.path.parent / "x").exists()
    assert list(project.cards()) == ["x-raw_json.json"]


def test_two_names_that_look_alike_on_disk(project: Project, serve: Serve) -> None:
    """Cards of models whose names differ only in characters that files cannot have do not overwrite each other."""
    project.reach(serve(ScriptedModel()))

    project.pytest(
        "--model", "a/b", "--model", "a:b", "--suite=tempaffect", "--prompting", "raw", "-k", "ps-01", "-p", "no:xdist"
    )

    cards = [json.loads(card)["model"] for card in project.cards().values()]
    assert sorted(cards) == ["a/b", "a:b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[model]\n", "spiral.toml"),
        ('[[model]]\nmatch = "m"\ntemprature = 1\n', "temprature"),
        ('[[model]]\nmatch = "m"\ntemperature = "hot"\n', "temperature"),
        ("\udcff".encode("utf-8", "surrogateescape"), "UTF-8"),
    ],
    ids=["syntax", "key", "value", "bytes"],
)
def test_a_broken_spiral_toml(project: Project, serve: Serve, text: str | bytes, says: str) -> None:
    """Exit code 4 naming file and place, before anything is sent."""
    server = serve()
    project.reach(server)
    (project.path / "spiral.toml").write_bytes(text if isinstance(text, bytes) else text.encode())

    result = project.here("--model", "m", "--suite=tempaffect", "-p", "no:xdist")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "spiral.toml" in result.stderr.str()
    assert says in result.stderr.str()
    assert "Traceback" not in result.stderr.str()
    assert server.requests == []


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"A", b"=", b"EVALUATED_MODEL_API_KEY=a b\nX='"])
def test_a_broken_dot_env(project: Project, serve: Serve, content: bytes) -> None:
    """Ignored where it says nothing, refused in one sentence where it cannot be used; never a traceback."""
    project.reach(serve(ScriptedModel()))
    (project.path / ".env").write_bytes(content)

    result = project.pytest("--model", "m", "--suite=tempaffect", "--prompting", "raw", "-k", "ps-01", "-p", "no:xdist")

    assert result.ret in (pytest.ExitCode.USAGE_ERROR, 11)
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("name", ["strict_items", "run_id", "report_dir", "gate_policy", "seed", "concurrency", "gate"])
def test_wrong_types_in_native_settings(project: Project, name: str) -> None:
    """`[tool.pytest]` does no conversion: a table where a value belongs is a usage error in one sentence."""
    project.write(pyproject__toml=f"[tool.pytest]\nspiral_{name} = {{ a = 1 }}\n")

    result = project.here("--model", "dry/perfect", "--suite=tempaffect")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert name in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


@pytest.mark.parametrize("given", [["--replay="], ["--model="], ["--model=dry/perfect", "--run-id", ""], ["--gate="]])
def test_an_empty_value_is_not_an_absent_one(project: Project, given: list[str]) -> None:
    """Of a variable that is not set: the bundled scenarios are not what was meant, and nothing is not either."""
    result = project.pytest(*given)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*: the value is empty, as that of a variable which is not set*"])
    assert not (project.path / "reports").exists()
