"""The GitHub action and the GitLab template: valid by the platforms' schemas, and what their steps do, run here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
TEMPLATE = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
# Answers as the API does: what was posted is listed afterwards.
GH = """#!/bin/sh
echo "$*" >> "$GH_LOG"
case "$*" in
  *POST*) for a in "$@"; do case "$a" in body=@*) cp "${a#body=@}" "$GH_LOG.body";; esac; done ;;
  *PATCH*) for a in "$@"; do case "$a" in body=@*) cp "${a#body=@}" "$GH_LOG.body";; esac; done ;;
  *) if [ -f "$GH_LOG.body" ]; then echo 77; fi ;;
esac
"""


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

    def __init__(self, folder: Path, lean: dict[str, str]) -> None:
        self.folder = folder
        self.values = {f"inputs.{name}": str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        self.values |= {"steps.upload.outputs.artifact-url": "https://github.test/artifact/1", "inputs.token": "t"}
        self.values |= {"github.event.pull_request.number": "7", "github.token": "t"}
        tools = folder / "tools"
        tools.mkdir()
        (tools / "gh").write_text(GH)
        (tools / "gh").chmod(0o755)
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environ = {
            "PATH": path,
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "GH_LOG": str(folder / "gh.log"),
            "RUNNER_TEMP": str(folder),
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
def job(tmp_path: Path, lean: dict[str, str]) -> Job:
    return Job(tmp_path, lean)


def test_the_steps_of_the_action(job: Job) -> None:
    """A gate that fails: code and annotation, JUnit with the worst items, a summary without dead links, one comment."""
    job.values["inputs.model"] = "dry/caver"
    job.values["inputs.arguments"] = "--suite=tempaffect\n--prompting=raw\n--gate=tempaffect.score >= 0.99\n\n-q\n"

    ran = job.run("Run")
    for name in ("Summarise", "Comment", "Comment"):
        assert job.run(name).returncode == 0
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
    calls = (job.folder / "gh.log").read_text().splitlines()
    assert [("POST" in call, "PATCH" in call) for call in calls] == [
        (False, False),
        (True, False),
        (False, False),
        (False, True),
    ]
    body = (job.folder / "gh.log.body").read_text()
    assert body.startswith("<!-- pytest-spiral gate -->\n## pytest-spiral: FAIL")


def test_a_run_that_does_not_start(job: Job) -> None:
    """A wrong option ends with its own code; there is no summary, no comment and nothing to export."""
    job.values["inputs.model"] = "dry/nobody"
    job.values["inputs.arguments"] = "--suite=tempaffect"

    assert job.run("Run").returncode == 0
    assert [job.run(name).returncode for name in ("Summarise", "Comment", "Decide")] == [0, 0, 4]
    assert not (job.folder / "gh.log").exists()


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


def test_the_script_of_the_template(job: Job) -> None:
    """Test results are written whatever the outcome, which is the exit code of the job."""
    base = TEMPLATE[".pytest-spiral"]
    variables = {**base["variables"], "SPIRAL_MODEL": "dry/perfect", "SPIRAL_PACKAGE": ""}
    variables["SPIRAL_ARGUMENTS"] = "--suite=tempaffect --prompting=raw --gate-recipe=release"

    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(base["script"])],
        cwd=job.folder, env={**job.environ, **variables}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert list(job.folder.glob(base["artifacts"]["reports"]["junit"]))
