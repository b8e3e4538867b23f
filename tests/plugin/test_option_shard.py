"""`--shard K/N` and `pytest-spiral merge`: divided over machines, and put together as if it had been one run."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.cli import main
from pytest_spiral.resources import data_root
from pytest_spiral.run.plan import shard_of
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

RUN = (
    "--model=dry/perfect",
    "--suite=tempaffect",
    "--suite=spiral",
    "--num-turns=2",
    "--gate",
    "tempaffect.score >= 0.2",
)
# When, under which name and by which command line a run was made, and how far it was slowed down.
ASIDE = ("id", "started_at", "finished_at", "argv", "limits")


def results(project: Project, run: str) -> str:
    """A report, byte for byte, apart from ids, times and what went on between us and the endpoints."""
    report = project.report(run)
    for row in report["usage"]["by_role"].values():
        del row["retries"]
    for name in ASIDE:
        del report["run"][name]
    for name in ("run_id", "report_dir"):
        del report["run"]["config"][name]
    for judge in report["spiral"]["anchors"]["judges"].values():
        del judge["judged_at"]
    return json.dumps(report, indent=1)


def conversations(project: Project, run: str) -> str:
    """The result file, byte for byte, apart from the run's name."""
    return project.upstream(run).read_text().replace(f'"{run}"', '"RUN"')


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whole run and its three shards, made once."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def shards(project: Project, runs: Path) -> list[Path]:
    """Folders of one run whole and in three shards."""
    if not (runs / "reports").exists():
        own = "def test_a(): pass\ndef test_b(): pass\n"
        project.write(test_own__py=own)
        assert project.pytest(*RUN, "--run-id=whole", "-p", "no:xdist").ret == 0
        for k, how in ((1, ("-p", "no:xdist")), (2, ("-n", "2")), (3, ("-p", "no:xdist"))):
            result = project.pytest(*RUN, "--run-id=part", f"--shard={k}/3", *how)
            assert result.ret == 0, result.outlines
            result.stdout.fnmatch_lines(
                [f"Shard {k}/3: *all shards are merged.", "  pytest-spiral merge reports/part-shard[*] --run-id=part"]
            )
        shutil.copytree(project.path / "reports", runs / "reports", symlinks=True)
    else:
        shutil.copytree(runs / "reports", project.path / "reports", symlinks=True)
    return [project.folder(f"part-shard{k}of3") for k in (1, 2, 3)]


def test_merged_shards_are_the_whole_run(project: Project, shards: list[Path]) -> None:
    """Byte-identical report, cards and result file; the order in which shards are named does not matter."""
    assert main(["merge", *map(str, reversed(shards))]) == 0

    assert results(project, "merged") == results(project, "whole")
    assert project.cards("merged") == project.cards("whole")
    assert conversations(project, "merged") == conversations(project, "whole")


def test_what_is_printed_lies_where_it_says(
    project: Project, shards: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory of its own, too."""
    command = ["merge", *map(str, shards), "--report-dir=elsewhere", "--run-id=all"]
    monkeypatch.setattr("sys.argv", ["pytest-spiral", *command])
    assert main(command) == 0
    assert capsys.readouterr().out.rstrip().endswith("pytest-spiral report elsewhere/all")
    assert project.path.joinpath("elsewhere", "all", "report.html").is_file()


def test_a_shard_without_items_is_whole(project: Project) -> None:
    """There may be more shards than items; a run of which nothing was selected is not interrupted either."""
    one = json.dumps(
        [json.loads((data_root().parent / "scenarios" / "tempaffect" / "repair_after_mistake.json").read_text())[0]]
    )
    project.write(one__json=one)
    run = ("--model=dry/perfect", "--suite=tempaffect", "--prompting=raw", "--tempaffect-scenarios=one.json")
    for k in (1, 2):
        assert project.pytest(*run, "--run-id=few", f"--shard={k}/2").ret == 0

    assert main(["merge", *(str(project.folder(f"few-shard{k}of2")) for k in (1, 2)), "--run-id=few"]) == 0
    assert project.report("few")["run"]["complete"]

    result = project.pytest(*run, "--run-id=none", "-k", "nothing")
    assert result.ret == 11
    result.stdout.fnmatch_lines(["Not cleared to ship: too much is missing; no gate failed.", "next: run the rest*"])


def test_a_merge_overwrites_no_run(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a shard nor another run; the directory that holds the shards stands for them."""
    before = {path: (path / "report.json").read_bytes() for path in shards}

    for path in shards:
        assert main(["merge", *map(str, shards), f"--run-id={path.name}", f"--report-dir={path.parent}"]) == 4
        assert "holds a run, whose report would be overwritten" in capsys.readouterr().err
        (path / "run.sqlite").unlink()
        assert main(["merge", *map(str, shards), f"--run-id={path.name}", f"--report-dir={path.parent}"]) == 4
    assert before == {path: (path / "report.json").read_bytes() for path in shards}
    folder = shards[0].parent / "all"
    folder.mkdir()
    for path in shards:
        (folder / path.name).symlink_to(path)
    assert main(["merge", str(folder)]) == 0


def test_json_of_merged_shards_needs_no_text(
    shards: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in the summary for people costs programs nothing."""
    monkeypatch.setattr("pytest_spiral.cli.runs.summary_lines", None)

    assert main(["merge", *map(str, shards), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "pass"


@pytest.mark.parametrize(
    ("pick", "says"),
    [((0, 2), "shards missing: 2/3; all 3 are needed"), ((0, 1, 1, 2), "shard 2/3 is there more than once")],
    ids=["missing", "twice"],
)
def test_not_exactly_all_shards_is_refused(
    shards: list[Path], pick: tuple[int, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing ones and doubles are named."""
    assert main(["merge", *(str(shards[i]) for i in pick)]) == 4

    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r["run"]["config"].update(seed=2), "config.seed (1 and 2)"),
        (
            lambda r: r["run"]["config"].update(num_turns=9, epochs=2),
            "config.epochs (1 and 2); config.num_turns (2 and 9)",
        ),
        (lambda r: r["integrity"]["tempaffect"].update(suite_hash="0" * 64), "integrity.tempaffect.suite_hash"),
        (lambda r: r["run"]["versions"].update({"pytest-spiral": "9"}), "versions.pytest-spiral"),
        (lambda r: r["run"]["config"].update(shard="3/4"), "shards of different divisions: K/3, K/4"),
        (lambda r: r["run"]["config"].update(shard=None), "a whole run, not a shard"),
        (lambda r: r.update(schema_version=99), "report schema 99"),
        (lambda r: r.pop("run"), "run: missing key"),
    ],
    ids=["seed", "two-fields", "suite", "version", "division", "whole", "schema", "foreign"],
)
def test_unequal_shards_are_refused_with_the_fields_named(
    shards: list[Path], change: Callable[[Any], Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is merged that is not one run."""
    file = shards[2] / "report.json"
    report = json.loads(file.read_text())
    change(report)
    file.write_text(json.dumps(report))

    assert main(["merge", *map(str, shards)]) == 4

    assert says in capsys.readouterr().err


def test_shards_of_one_server_by_several_names_are_merged(project: Project, serve: Serve) -> None:
    """Two machines reach it under other names and ports: the name of the endpoint counts, not its address."""
    for k, host in ((1, "127.0.0.1"), (2, "localhost")):
        server = serve(ScriptedModel())
        project.setenv("EVALUATED_MODEL_BASE_URL", server.base_url.replace("127.0.0.1", host))
        run = ("--model=m", "--suite=tempaffect", "--prompting=raw", "--run-id=part", f"--shard={k}/2")
        assert project.pytest(*run, "-p", "no:xdist").ret == 0

    assert main(["merge", *(str(project.folder(f"part-shard{k}of2")) for k in (1, 2))]) == 0

    merged = project.report("merged")
    assert len(merged["tempaffect"]["items"]) == 75
    assert merged["run"]["notes"] == []


def test_overlapping_shards_are_refused(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """An item that two shards measured belongs to neither."""
    first, second = (json.loads((shard / "report.json").read_text()) for shard in shards[:2])
    second["tempaffect"]["items"].append(first["tempaffect"]["items"][0])
    (shards[1] / "report.json").write_text(json.dumps(second))

    assert main(["merge", *map(str, shards)]) == 4

    assert "is in another shard as well" in capsys.readouterr().err


def test_what_a_shard_lacks_is_missing_in_the_whole(
    project: Project, shards: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instrument failures of a shard stay what they are: no verdict. Its command resumes it, the last line merges."""
    file = shards[0] / "report.json"
    report = json.loads(file.read_text())
    lost = {"status": "instrument_failed", "reason": {"code": "timeout", "detail": ""}, "output": None, "points": {}}
    for item in report["tempaffect"]["items"][:6]:
        item |= {**lost, "score": None, "useful_bounded": None, "recoverable": None, "answer": None, "checks": None}
    file.write_text(json.dumps(report))

    monkeypatch.setattr("sys.argv", ["pytest-spiral", "merge", *map(str, shards)])
    assert main(["merge", *map(str, shards)]) == 11
    lines = capsys.readouterr().out.splitlines()

    assert project.report("merged")["verdict"] == "incomplete"
    (at,) = (number for number, line in enumerate(lines) if line.startswith("shard "))
    assert lines[at].startswith(
        "shard 1/3 lacks measurements; where it ran, resume, which asks again for what is missing"
    )
    resumed = project.pytest(*shlex.split(lines[at + 1])[1:])
    assert resumed.ret == 0
    assert lines[-1] == f"  {shlex.join(['pytest-spiral', 'merge', *map(str, shards)])}"
    assert main(shlex.split(lines[-1])[1:]) == 0


@pytest.mark.parametrize(("units", "n"), [(0, 3), (2, 3), (10, 3), (150, 7)])
def test_shares_are_disjoint_and_complete(units: int, n: int) -> None:
    """Every unit in exactly one shard, sizes at most one apart."""
    shares = [shard_of(range(units), (k, n)) for k in range(1, n + 1)]

    assert sorted(unit for share in shares for unit in share) == list(range(units))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("value", ["0/3", "4/3", "a/b", "1", "1/0", "-1/2"])
def test_no_such_shard_is_a_usage_error(project: Project, value: str) -> None:
    """K from 1 to N."""
    result = project.here("--model=dry/perfect", "--suite=tempaffect", f"--shard={value}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--shard: *such as 2/5*"])
