"""A run that broke off goes on where it stopped: nothing is paid for twice, the cards are what they would have been."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable

import pytest

from pytest_spiral.store import PREFLIGHT, RunStore
from tests.fakes.openai_server import Fault
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

RUN = ("--model", "m", "--suite=tempaffect", "--run-id", "r")


def _kept(project: Project) -> set[tuple[str, str]]:
    """(mode, scenario id) of every reply in the run's store."""
    store = RunStore.join(project.folder("r") / "run.sqlite")
    requests = [each.request for each in store.exchanges()]
    store.close()
    return {("schema" if each.schema else "raw", each.unit) for each in requests if PREFLIGHT not in each.unit}


def test_what_is_missing_is_asked_and_nothing_else(project: Project, serve: Serve) -> None:
    """Broken off by a dead account, resumed, resumed again: the missing requests, then none; cards as undisturbed.

    The distribution over processes may change from one to the next.
    """
    model = ScriptedModel("perfect", answers=50)
    project.reach(serve(model))
    raw = (*RUN, "--prompting", "raw")

    broken = project.pytest(*raw, "-n", "2")
    kept = _kept(project)
    measured = {key for key, item in project.items().items() if item["status"] == "measured"}
    asked_before, model.answers = len(model.asked), None
    resumed = project.pytest(*raw, "-p", "no:xdist")
    asked = model.asked[asked_before:]
    resumed_cards = project.cards("r")
    again = project.pytest(*raw, "-n", "0")
    asked_again = len(model.asked) - asked_before - len(asked)
    undisturbed = project.pytest(*raw, "--run-id", "other", "-p", "no:xdist")

    assert [broken.ret, resumed.ret, again.ret, undisturbed.ret] == [11, 0, 0, 0]
    assert measured == kept
    assert (len(kept), len(asked), len(set(asked))) == (50, 25, 25)
    assert not kept & set(asked)
    assert asked_again == 0
    assert project.cards("r") == resumed_cards == project.cards("other")
    assert project.report("r")["usage"]["by_role"]["evaluated"]["failures"] == 25
    # One in each of two runs.
    assert model.probes == 2


def test_lf_finds_the_failed_instruments(project: Project, serve: Serve) -> None:
    """`--lf` runs exactly the items that were not measured, and together with what is kept that is all."""
    model = ScriptedModel("perfect", answers=70)
    project.reach(serve(model))
    args = (*RUN, "--prompting", "raw")

    project.pytest(*args, "-p", "no:xdist")
    model.answers = None
    result = project.pytest(*args, "--lf", "-n", "1")

    result.assert_outcomes(passed=5)
    assert len(model.asked) == 80


def test_another_configuration_is_another_run(project: Project) -> None:
    """Refused with the differing field named, and the old run's report untouched."""
    args = ("--model", "dry/perfect", "--suite=tempaffect", "--run-id", "r", "-p", "no:xdist", "-k", "ps-01")
    project.pytest(*args)
    before = (project.folder("r") / "report.json").read_bytes()
    changes = {
        "prompting": ("--prompting", "schema"),
        "seed": ("--seed", "2"),
        "epochs": ("--epochs", "2"),
        "model[1].model_id": ("--model", "dry/echo", "--suite=tempaffect"),
    }

    for field, change in changes.items():
        result = project.pytest(*args, *change)

        assert result.ret == pytest.ExitCode.USAGE_ERROR
        said = " ".join(result.stderr.str().split())
        assert f"another configuration: {field} (was" in said
        assert "--run-id" in said
        assert (project.folder("r") / "report.json").read_bytes() == before


def test_another_address_is_the_same_run(project: Project, serve: Serve) -> None:
    """The same model behind another host or port is the same measurement: what is stored is not asked again.

    An endpoint of another name is refused, with the difference and nothing else.
    """
    first, second = serve(ScriptedModel()), serve(ScriptedModel())
    args = (*RUN, "--prompting", "raw", "-k", "ps-01", "-p", "no:xdist")
    project.reach(first)
    project.pytest(*args)
    project.setenv("EVALUATED_MODEL_BASE_URL", second.base_url.replace("127.0.0.1", "localhost"))

    result = project.pytest(*args)
    project.write(spiral__toml='[[model]]\nmatch = "m"\nendpoint = "gateway-a"\n')
    refused = project.pytest(*args)

    result.assert_outcomes(passed=1)
    assert (len(first.requests), len(second.requests)) == (2, 0)
    assert project.report()["run"]["config"]["models"][0]["endpoint_name"] == "custom"
    assert project.report()["run"]["notes"] == []
    assert refused.ret == 4
    said = " ".join(refused.stderr.str().split())
    assert 'another configuration: model[0].endpoint (was "custom", now "gateway-a"). Give' in said


def test_what_does_not_decide_the_measurement_may_change(project: Project) -> None:
    """Gates, policy and concurrency of a resumed run are free."""
    args = ("--model", "dry/perfect", "--suite=tempaffect", "--run-id", "r", "-p", "no:xdist", "-k", "ps-01")
    project.pytest(*args)

    result = project.pytest(*args, "--gate", "tempaffect.score <= 1", "--gate-policy", "point", "--concurrency", "3")

    assert result.ret == 11
    assert len(project.report("r")["gates"]) == 2


def test_a_killed_run_loses_nothing_it_was_told(
    project: Project, serve: Serve, wait_for: Callable[..., None], end: Callable[..., str], one_or_two: tuple[str, ...]
) -> None:
    """kill -9 in the middle: after it, no request whose reply was committed is ever sent again."""
    model, after = ScriptedModel("perfect"), ScriptedModel("perfect")
    project.reach(serve(model, latency=0.05))
    args = (*RUN, "--prompting", "raw", "--concurrency", "4", *one_or_two)

    process = project.start(*args)
    wait_for(lambda: len(model.asked) >= 10)
    # How far commits are behind replies depends on how busy the machine is.
    wait_for(lambda: len(_kept(project)) >= 20)
    told = _kept(project)
    end(process, signal.SIGKILL)
    kept = _kept(project)
    # On a busy machine, the first server may still find requests of the dead run in its sockets.
    project.reach(serve(after))
    result = project.pytest(*args)

    asked = Counter(after.asked)
    assert result.ret == 0
    assert told <= kept
    assert not kept & set(asked)
    assert len(kept) + len(asked) == 75
    assert set(asked.values()) == {1}
    assert not list(project.folder("r").glob(".*"))


def test_what_was_answered_before_ctrl_c_is_in_the_report(
    project: Project, serve: Serve, wait_for: Callable[..., None], end: Callable[..., str]
) -> None:
    """pytest waits for one item after another, while all are under way: those behind the first slow one count too."""
    model = ScriptedModel("perfect", replies={"ps-01": Fault.hang()})
    project.reach(serve(model))

    process = project.start(*RUN, "--prompting", "raw", "-p", "no:xdist")
    wait_for(lambda: len(set(model.asked)) == 75 and len(_kept(project)) == 74)
    text = end(process, signal.SIGINT)

    assert process.returncode == 2
    assert [item["status"] for item in project.items("r").values()] == ["measured"] * 74
    assert json.loads((project.folder("r") / "progress.jsonl").read_text().splitlines()[-1])["finished"] == 74
    assert "missing: 1 item: Not selected, or the run ended before it had a result." in " ".join(text.split())


def test_a_run_that_died_before_its_first_reply_resumes(project: Project, serve: Serve) -> None:
    """An endpoint that refuses the key leaves a run folder behind; with the right key the same run goes on."""
    model = ScriptedModel()
    refused = [True]
    project.reach(serve(lambda body, n: Fault.status_code(401) if refused[0] else model(body, n)))
    args = (*RUN, "-k", "ps-01", "-p", "no:xdist")

    first = project.pytest(*args)
    refused[0] = False
    second = project.pytest(*args)

    assert [first.ret, second.ret] == [4, 11]
    second.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not a database at all, but long enough to look like one" * 40, "not a database"),
        (None, "not a run store"),
        (b"", "is empty"),
    ],
    ids=["garbage", "foreign", "empty"],
)
def test_a_store_that_is_none_of_ours(project: Project, content: bytes | None, says: str) -> None:
    """Refused with the file named; the file is left as it is."""
    path = project.folder("r") / "run.sqlite"
    path.parent.mkdir(parents=True)
    if content is None:
        with sqlite3.connect(path) as foreign:
            foreign.execute("CREATE TABLE theirs (a)")
        content = path.read_bytes()
    path.write_bytes(content)

    result = project.pytest("--model", "dry/perfect", "--suite=tempaffect", "--run-id", "r", "-p", "no:xdist")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert says in result.stderr.str()
    assert "run.sqlite" in result.stderr.str()
    assert path.read_bytes() == content


def test_a_report_without_its_store_is_kept(project: Project, serve: Serve) -> None:
    """Nothing could be reused: all would be paid for again, and a smaller selection would replace the report."""
    model = ScriptedModel("perfect")
    project.reach(serve(model))
    run = (*RUN, "--prompting", "raw", "-p", "no:xdist")
    project.pytest(*run, "-k", "ps-01 or ps-02")
    asked, report = len(model.asked), (project.folder("r") / "report.json").read_bytes()
    (project.folder("r") / "run.sqlite").unlink()

    again = project.pytest(*run, "-k", "ps-01")

    assert again.ret == pytest.ExitCode.USAGE_ERROR
    assert "restore run.sqlite, or choose another --run-id" in again.stderr.str()
    assert (asked, len(model.asked)) == (2, 2)
    assert (project.folder("r") / "report.json").read_bytes() == report
    assert not (project.folder("r") / "run.sqlite").exists()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE reply SET completion_tokens = completion_tokens + 1 WHERE id = 2",
        "UPDATE text SET content = zeroblob(length(content)) WHERE id = 3",
        "UPDATE reply SET content = (SELECT content FROM reply WHERE id = 1) WHERE id = 2",
    ],
    ids=["row", "text", "another text"],
)
def test_a_damaged_reply_is_refused_before_anything_is_paid(project: Project, serve: Serve, damage: str) -> None:
    """Even one that this session would not read: exit code 4, the file's name, and no request."""
    server = serve(ScriptedModel())
    project.reach(server)
    args = ("--model", "m", "--suite=tempaffect", "--prompting", "raw", "--run-id", "r", "-p", "no:xdist")
    project.pytest(*args, "-k", "ps-01 or ps-02 or ps-03")
    with sqlite3.connect(project.folder("r") / "run.sqlite") as store:
        store.execute(damage)
    requests, probes = len(server.requests), server.probes

    result = project.pytest(*args, "-k", "ps-04")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "run.sqlite: the run store is damaged" in " ".join(result.stderr.str().split())
    assert (len(server.requests), server.probes) == (requests, probes)


def test_a_run_directory_is_for_its_owner(project: Project) -> None:
    """The directory, and the store wherever it is copied to. Who opened the directory to others has it stay open."""
    args = ("--model", "dry/perfect", "--suite=tempaffect", "--prompting=raw", "--run-id", "r", "-p", "no:xdist")
    project.pytest(*args, "-k", "ps-01")
    modes = [path.stat().st_mode & 0o777 for path in (project.folder("r"), project.folder("r") / "run.sqlite")]
    project.folder("r").chmod(0o755)
    project.pytest(*args, "-k", "ps-01")

    assert modes == [0o700, 0o600]
    assert project.folder("r").stat().st_mode & 0o777 == 0o755
