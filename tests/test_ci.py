"""The GitHub action and the GitLab template: valid by the platforms' schemas, and what their steps do, run here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pytest_spiral.cli import main
from tests.fakes.forks import ADDOPTS, ADDRESS, forked_commands
from tests.fakes.notes_api import NotesApi

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
TEMPLATE = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
TOKEN = "glpat-not-a-real-token"


@pytest.mark.parametrize(("name", "document"), [("github-actions", ACTION), ("gitlab-ci", TEMPLATE)])
def test_the_platforms_take_the_files(name: str, document: dict[str, Any]) -> None:
    """By the schemas that SchemaStore and GitLab publish."""
    pytest.importorskip("check_jsonschema")
    schema = json.loads((files("check_jsonschema") / f"builtin_schemas/vendor/{name}.json").read_text())

    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(document)] == []


def test_nothing_from_outside_is_run_by_the_shell() -> None:
    """Inputs reach scripts through the environment, every one is declared, and every script names its shell."""
    scripts = [step["run"] for step in STEPS.values() if "run" in step]
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))

    assert not any(EXPRESSION.search(script) for script in scripts)
    assert all(step["shell"] == "bash" for step in STEPS.values() if "run" in step)
    assert used == ACTION["inputs"].keys()
    outputs = [EXPRESSION.fullmatch(output["value"]) for output in ACTION["outputs"].values()]
    ids = {step["id"] for step in STEPS.values() if "id" in step}
    assert {match[1].split(".")[1] for match in outputs if match} <= ids


class Job:
    """A runner: its folders, its files for outputs, and the values of expressions."""

    def __init__(self, folder: Path, lean: dict[str, str], api: NotesApi) -> None:
        self.folder = folder
        self.values = {f"inputs.{name}": str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        self.values |= {"steps.upload.outputs.artifact-url": "https://github.test/artifact/1", "inputs.token": TOKEN}
        self.values |= {"github.event.pull_request.number": "7", "github.token": "t"}
        self.api = api
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environ = {
            "PATH": path,
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "PYTEST_ADDOPTS": f"-p tests.fakes.quick_start {ADDOPTS}",
            "RUNNER_TEMP": str(folder),
            "GITHUB_API_URL": api.url,
            "GITHUB_REPOSITORY": "a/b",
            "GITHUB_OUTPUT": str(folder / "outputs"),
            "GITHUB_STEP_SUMMARY": str(folder / "job.md"),
            **lean,
        }

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one step as GitHub does; what it outputs is known to later ones."""
        step = STEPS[name]
        own = {key: EXPRESSION.sub(lambda m: self.values[m[1]], value) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder, env={**self.environ, **own}, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        outputs = self.folder / "outputs"
        for line in outputs.read_text().splitlines() if outputs.exists() else ():
            key, _, value = line.partition("=")
            self.values[f"steps.{step.get('id')}.outputs.{key}"] = value
        return done


@pytest.fixture
def api() -> Iterator[NotesApi]:
    with NotesApi(per_page=2) as api:
        yield api


@pytest.fixture
def job(tmp_path: Path, lean: dict[str, str], api: NotesApi) -> Job:
    return Job(tmp_path, lean, api)


@pytest.fixture
def forked_job(job: Job) -> Job:
    """One whose processes are forks: for what comes after a run that other jobs have in processes of their own."""
    commands = job.folder / "commands"
    commands.mkdir()
    forked_commands(commands, job.environ[ADDRESS])
    job.environ["PATH"] = os.pathsep.join([str(commands), job.environ["PATH"]])
    return job


def test_the_steps_of_the_action(job: Job) -> None:
    """A gate that fails: code and annotation, JUnit with the worst items, a summary without dead links, one comment."""
    job.values["inputs.model"] = "dry/caver"
    job.values["inputs.arguments"] = "--suite=tempaffect\n--prompting=raw\n--gate=tempaffect.score >= 0.99\n\n-q\n"

    job.api.notes = {1: "Looks good", 2: "Thanks", 3: "<!-- pytest-spiral other -->\n"}
    ran = job.run("Run")
    for name in ("Summarise", "Comment", "Comment"):
        done = job.run(name)
        assert (done.returncode, TOKEN in done.stdout + done.stderr) == (0, False)
    decided = job.run("Decide")

    assert ran.returncode == 0, ran.stderr
    assert job.values["steps.run.outputs.exit-code"] == "1"
    assert (decided.returncode, decided.stdout) == (
        1,
        "::error title=pytest-spiral::a gate failed, or a test of your own\n",
    )
    junit = (job.folder / "reports/gate/export/gates.xml").read_text()
    assert "even the upper bound" in junit
    assert "  model: " in junit
    summary = (job.folder / "job.md").read_text()
    assert summary.startswith("## pytest-spiral: FAIL")
    assert re.findall(r"\]\(([^)]*)\)", summary) == ["https://github.test/artifact/1"]
    comments = "/repos/a/b/issues/7/comments"
    assert job.api.calls == [
        *[("GET", comments)] * 3,
        ("POST", comments),
        *[("GET", comments)] * 2,
        ("PATCH", "/repos/a/b/issues/comments/4"),
    ]
    assert job.api.notes[4].startswith("<!-- pytest-spiral gate -->\n## pytest-spiral: FAIL")
    assert (len(job.api.notes), job.api.tokens) == (4, {TOKEN})


def test_a_run_that_does_not_start(forked_job: Job) -> None:
    """A wrong option ends with its own code; there is no summary, no comment and nothing to export."""
    job = forked_job
    job.values["inputs.model"] = "dry/nobody"
    job.values["inputs.arguments"] = "--suite=tempaffect"

    assert job.run("Run").returncode == 0
    assert [job.run(name).returncode for name in ("Summarise", "Comment", "Decide")] == [0, 0, 4]
    assert job.api.calls == []


@pytest.mark.parametrize(
    ("code", "says"),
    [("0", ""), ("3", "internal error"), ("10", "inconclusive"), ("11", "incomplete"), ("143", "interrupted")],
)
def test_exit_codes_are_explained(job: Job, code: str, says: str) -> None:
    """And passed on."""
    job.values["steps.run.outputs.exit-code"] = code
    done = job.run("Decide")

    assert done.returncode == int(code)
    assert says in done.stdout


class Template:
    """A runner of GitLab: the script with its variables, in a merge request."""

    def __init__(self, job: Job, arguments: str, **more: str) -> None:
        self.base = TEMPLATE[".pytest-spiral"]
        self.folder = job.folder
        known = {"CI_JOB_URL": "https://gitlab.test/job/1", "CI_API_V4_URL": f"{job.api.url}/api/v4"}
        request = {"CI_PROJECT_ID": "12", "CI_MERGE_REQUEST_IID": "7"}
        own = {"SPIRAL_MODEL": "dry/caver", "SPIRAL_PACKAGE": "", "SPIRAL_ARGUMENTS": arguments}
        self.environ = {**job.environ, **self.base["variables"], **known, **request, **own, **more}

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(self.base["script"])],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=200,
        )  # fmt: skip


QUICK = "--suite=tempaffect --prompting=raw -k ps-0 --gate=tempaffect.score>=0.99 -q"


def test_the_script_of_the_template(forked_job: Job) -> None:
    """Test results are written whatever the outcome, which is the exit code of the job; without a token, no note."""
    arguments = "--suite=tempaffect --prompting=raw --gate-recipe=release"
    template = Template(forked_job, arguments, SPIRAL_MODEL="dry/perfect")
    done = template.run()

    assert done.returncode == 0, done.stdout + done.stderr
    assert list(forked_job.folder.glob(template.base["artifacts"]["reports"]["junit"]))
    assert "SPIRAL_NOTE_TOKEN is not set: no note" in done.stdout
    assert forked_job.api.calls == []


def test_the_note_of_the_template(forked_job: Job) -> None:
    """One note, found on any page by its marker and changed from then on; the token is in no log."""
    forked_job.api.notes = {n: f"note {n}" for n in range(1, 4)}
    template = Template(forked_job, QUICK, SPIRAL_NOTE_TOKEN=TOKEN)
    runs = [template.run(), template.run()]

    notes = "/api/v4/projects/12/merge_requests/7/notes"
    assert [run.returncode for run in runs] == [11, 11]
    written = [call for call in forked_job.api.calls if call[0] != "GET"]
    assert written == [("POST", notes), ("PUT", f"{notes}/4")]
    assert forked_job.api.notes[4].startswith("<!-- pytest-spiral gate -->\n## pytest-spiral: INCOMPLETE")
    assert re.findall(r"\]\(([^)]*)\)", forked_job.api.notes[4]) == [
        "https://gitlab.test/job/1/artifacts/browse/reports/gate"
    ]
    assert (len(forked_job.api.notes), forked_job.api.tokens) == (4, {TOKEN})
    assert not any(TOKEN in run.stdout + run.stderr for run in runs)


@pytest.mark.parametrize(("status", "says"), [(403, "HTTP 403; check that the token"), (302, "HTTP 302")])
def test_a_note_that_is_refused(forked_job: Job, status: int, says: str) -> None:
    """It is said, without the token, which no redirect leads elsewhere; the exit code is that of the run."""
    forked_job.api.status = status
    done = Template(forked_job, QUICK, SPIRAL_NOTE_TOKEN=TOKEN).run()

    assert done.returncode == 11
    assert says in done.stderr
    assert "The run counts all the same." in done.stdout
    assert TOKEN not in done.stdout + done.stderr
    assert len(forked_job.api.calls) == 1
    assert forked_job.api.notes == {}


def test_a_token_that_no_header_can_carry(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its characters are not shown either."""
    summary = job.folder / "summary.md"
    summary.write_text("text")
    for name, value in Template(job, QUICK, SPIRAL_NOTE_TOKEN=f"{TOKEN}\nmore").environ.items():
        monkeypatch.setenv(name, value)

    assert main(["note", str(summary)]) == 4
    assert TOKEN not in capsys.readouterr().err
    monkeypatch.delenv("CI_MERGE_REQUEST_IID")
    assert main(["note", str(summary), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"note": "none"}
