"""`--model`: which models are evaluated, and what is no model."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project, node


def test_several_models_are_evaluated_side_by_side(project: Project) -> None:
    """Repeating the option adds a model with its own items, cards and columns; naming one twice does not."""
    names = ("dry/perfect", "dry/echo", "dry/perfect")
    models = [part for name in names for part in ("--model", name, "--suite=tempaffect")]

    result = project.pytest(*models, "--prompting", "raw", "-k", "ps-01", "-p", "no:xdist")

    result.assert_outcomes(passed=2)
    assert list(project.cards()) == ["dry-echo-raw_json.json", "dry-perfect-raw_json.json"]
    assert project.report()["run"]["config"]["model"] == ["dry/perfect", "dry/echo"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("dry/nobody", "dry/perfect"),
        ("dry/", "dry/perfect"),
        ("dry", "a name must follow"),
        ("local/", "smollm2-135m"),
        ("local/nobody", "smollm2-135m"),
        ("local/no/such/file.gguf", "file.gguf"),
        ("a b", "not a model name"),
        ("a\x1b[31mb", "not a model name"),
    ],
)
def test_a_wrong_name_is_a_usage_error(project: Project, spec: str, says: str) -> None:
    """Exit code 4 and one sentence that says what exists; nothing is created."""
    result = project.here(f"--model={spec}", "--suite=tempaffect")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.errlines if line.strip()]
    assert len(errors) == 1
    assert errors[0].startswith(("ERROR: --model", "ERROR: local/"))
    assert says in errors[0]
    assert "\x1b" not in errors[0]
    assert not (project.path / "reports").exists()


def test_a_local_model_that_is_not_fetched_names_the_command(project: Project) -> None:
    """Nothing is ever downloaded behind the user's back."""
    project.setenv("PYTEST_SPIRAL_CACHE", str(project.path / "nothing"))

    result = project.here("--model=local/smollm2-135m", "--suite=tempaffect")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pytest-spiral fetch-model*"])


def test_ini(project: Project) -> None:
    """The ini key holds several models; the command line replaces them."""
    models = "spiral_model =\n    dry/perfect\n    dry/echo\n"
    project.write(pytest__ini=f"[pytest]\n{models}spiral_prompting = raw\nspiral_suite = tempaffect\n")

    assert node("ps-01", model="dry/echo") in project.collected()
    assert len(project.collected()) == 150
    assert len(project.collected("--model", "dry/caver", "--suite=tempaffect")) == 75
