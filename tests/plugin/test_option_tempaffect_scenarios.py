"""`--tempaffect-scenarios`: custom scenarios in place of the bundled ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pytest_spiral.cli import main
from pytest_spiral.resources import data_root
from pytest_spiral.tempaffect.suite import lock
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import DISTRIBUTIONS, SUITE, Project, Serve, node
from tests.plugin.test_option_plan import rows
from tests.tempaffect.test_suite import SCENARIO, changed, decided

NO_XDIST = DISTRIBUTIONS["no-xdist"]
REPLY = "That typo is mine. I am reprinting the banner now and the courier brings it before you open."
OWN = [
    {**decided(), "id": name, "reference_reply": REPLY, "user_message": f"{SCENARIO['user_message']} {name}"}
    for name in "ab"
]
RUN = ("--model=dry/perfect", "--suite=tempaffect", "--tempaffect-scenarios=own.json", "--run-id=r")


@pytest.fixture
def own(project: Project) -> Project:
    """A project with two scenarios of its own."""
    project.write(own__json=json.dumps(OWN))
    return project


def test_the_files_scenarios_are_asked_and_nothing_else(own: Project, anywhere: tuple[str, ...]) -> None:
    """Ids are the file's, the scorer is the pinned one, the suite hash is not; the card says so (B11)."""
    result = own.pytest(*RUN, "-v", *anywhere)

    result.assert_outcomes(passed=4)
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*{node('a', 'schema').replace('[', '[[]')}*"])
    report = own.report("r")
    schema = json.loads((data_root() / "report.schema.json").read_text())
    assert [error.message for error in Draft202012Validator(schema).iter_errors(report)] == []
    hashes = report["integrity"]["tempaffect"]
    assert hashes["suite_hash"] != lock().suite_hash
    assert {k: v for k, v in hashes["components"].items() if k != "scenarios"} == {
        k: v for k, v in lock().components.items() if k != "scenarios"
    }
    assert hashes["scorer_fingerprint"] == lock().scorer_fingerprint
    card = report["tempaffect"]["cards"][0]
    assert (card["missing"]["of"], card["useful_bounded_response_rate"]) == (2, 1.0)
    assert [blocker[:3] for blocker in card["integrity"]["publication_blockers"]] == ["B02", "B05", "B11"]
    assert set(report["tempaffect"]["scenarios"]) == {"a", "b"}


def test_a_gate_on_what_needs_decision_keys_is_refused_without_them(project: Project) -> None:
    """Before anything is asked, naming what to add and what to gate on instead; other gates are not concerned."""
    keyless = [{**one, "expected": {**one["expected"], "decision": None}} for one in OWN]
    project.write(own__json=json.dumps(keyless))
    gate = "tempaffect.families.repair_after_mistake.right_decision >= 0.5"

    refused = project.here(*RUN, *NO_XDIST, "--gate", gate)
    asked = project.here(*RUN, *NO_XDIST, "--gate", "tempaffect.score >= 0.1", "--prompting=raw")

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"*{gate}*decision key*expected.decision*tempaffect.score"])
    assert asked.ret == 0
    asked.stdout.fnmatch_lines(["*caution: useful and bounded is not measured: the scenarios have no*"])
    assert project.report("r")["tempaffect"]["cards"][0]["useful_bounded_response_rate"] is None


def test_selected_resumed_and_changed(own: Project) -> None:
    """-k and -m choose among them, a resumed run asks what is left, and another content is another run."""
    first = own.pytest(*RUN, *NO_XDIST, "-k", "raw-a", "-m", "repair_after_mistake")
    again = own.pytest(*RUN, *NO_XDIST)
    requests = own.report("r")["usage"]["by_role"]["evaluated"]["requests"]
    own.write(own__json=json.dumps([*OWN[:1], {**OWN[1], "agent_context": "Cannot reprint."}]))
    other = own.here(*RUN, *NO_XDIST)

    first.assert_outcomes(passed=1, deselected=3)
    again.assert_outcomes(passed=4)
    assert requests == 4
    assert other.ret == pytest.ExitCode.USAGE_ERROR
    other.stderr.fnmatch_lines(["*tempaffect_scenarios*"])


def test_the_ini_key_one_node_and_the_plan(own: Project) -> None:
    """The file may be named in the configuration; a node id or the plan then is of its scenarios."""
    own.write(pytest__ini="[pytest]\nspiral_tempaffect_scenarios = own.json\n")

    assert own.collected("--model=dry/perfect", "--suite=tempaffect", f"{SUITE}::test_scenario[dry/perfect-raw-b]") == [
        node("b")
    ]
    bundled = own.here("--model=dry/perfect", "--suite=tempaffect", "--collect-only", "-q", *NO_XDIST, node("ps-01"))
    plan = own.here("--model=m", "--suite=tempaffect", "--plan", "--prompting=raw", "--epochs=3", *NO_XDIST)

    assert bundled.ret == pytest.ExitCode.USAGE_ERROR
    # Two scenarios in three epochs, and the question of preflight.
    assert rows(plan)["evaluated m"][0] == "7"


BROKEN = [
    ("[", ("own.json:1:2", "not valid JSON")),
    ("[]", ("own.json", "no scenario found")),
    ([OWN[0], {**OWN[1], "mood": "x"}], ("own.json", "scenario 1 (b)", "mood: unknown key")),
    ([OWN[0], OWN[0]], ("own.json", "scenario 1 (a)", "id: used twice")),
    ([5], ("own.json", "scenario 0")),
    ([changed(id="c")], ("scenario c", "reference_reply is missing")),
    (None, ("own.json", "cannot be read")),
]


@pytest.mark.parametrize(("content", "says"), BROKEN, ids=range(len(BROKEN)))
def test_a_wrong_file_names_itself_index_and_key(project: Project, content: object, says: tuple[str, ...]) -> None:
    """A usage error before anything is made, also where the stand-in quotes what the file leaves out."""
    if content is not None:
        project.write(own__json=content if isinstance(content, str) else json.dumps(content))

    result = project.here(*RUN)

    said = " ".join(result.stderr.str().split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [part for part in says if part not in said] == []
    assert "Traceback" not in said
    assert not (project.path / "reports").exists()


def test_a_replay_is_of_the_scenarios_that_were_asked(own: Project) -> None:
    """With their file it scores the same; without it there is nothing to score, and it says what is missing."""
    own.pytest(*RUN, *NO_XDIST, "--prompting=raw")
    replay = ("--replay=reports/r", "--suite=tempaffect", "--prompting=raw", *NO_XDIST)

    with_file = own.pytest(*replay, "--tempaffect-scenarios=own.json", "--run-id=again")
    without = own.here(*replay)

    assert with_file.ret == 0
    again, first = (own.report(run)["tempaffect"]["items"] for run in ("again", "r"))
    assert again == first
    assert without.ret == pytest.ExitCode.USAGE_ERROR
    without.stderr.fnmatch_lines(["*recorded on other scenarios; name their file with --tempaffect-scenarios*"])


def test_a_model_that_knows_the_public_scenarios_only(
    own: Project, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right on all 75, at a loss before a scenario it has not seen: the two runs, and the caution."""
    own.reach(serve(ScriptedModel("perfect")))
    run = ("--model=m", "--suite=tempaffect", "--prompting=raw", *NO_XDIST)
    own.pytest(*run, "--run-id=public")
    own.pytest(*run, "--run-id=private", "--tempaffect-scenarios=own.json")
    capsys.readouterr()

    assert main(["shadow", str(own.folder("public")), str(own.folder("private")), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["public"]["rate"], row["shadow"]["rate"], row["verdict"]) == (1.0, 0.0, "caution")
    assert main(["compare", str(own.folder("public")), str(own.folder("private"))]) == 4
    assert "suite_hash" in capsys.readouterr().err
    assert main(["compare", str(own.folder("private")), str(own.folder("private"))]) == 0


def test_a_file_elsewhere(own: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An absolute path is one: a private form need not lie in the project."""
    elsewhere = tmp_path_factory.mktemp("vault") / "form.json"
    Path("own.json").rename(elsewhere)

    assert own.collected(
        "--model=dry/perfect", "--suite=tempaffect", f"--spiral-tempaffect-scenarios={elsewhere}", "-k", "raw"
    ) == [node("a"), node("b")]
