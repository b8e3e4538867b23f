"""`--suite spiral-prefix`: one command compares two models on prefixes and gates on the difference."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.cli import main
from pytest_spiral.compare.runs import compare_paths
from pytest_spiral.errors import ConfigError
from pytest_spiral.settings import PREFIX_PROTOCOL, Settings
from pytest_spiral.spiral.anchors import load_anchors
from pytest_spiral.spiral.content import load_prefixes
from pytest_spiral.spiral.protocol import load_protocol
from tests.fakes.report_page import page_data
from tests.fakes.spiral_cast import assistant, judge
from tests.plugin.conftest import Project, Serve

RUN = ("--suite=spiral-prefix", "--spiral-prompts=prefixes.json")
GATE = "--gate=spiral.prefix.balance >= baseline - 5"


def some(number: int = 24) -> str:
    """A prompt file of so many shipped prefixes, half of which call for something."""
    shipped = [one for one in load_prefixes() if one.beginning]
    calls = {one.prompt_id: one.beginning.called_for != "none" for one in shipped if one.beginning}
    chosen = [[one for one in shipped if calls[one.prompt_id] is called][: number // 2] for called in (True, False)]
    rows = [one.model_dump(mode="json", exclude_defaults=True) for part in chosen for one in part]
    return json.dumps(rows)


def test_two_models_on_the_same_prefixes(project: Project, one_or_two: tuple[str, ...]) -> None:
    """The better one passes against the worse, the worse one fails against the better; compare says the same."""
    project.write(prefixes__json=some())
    project.pytest("--model=dry/sycophantic", *RUN, "--run-id=old", *one_or_two)
    better = project.pytest("--model=dry/perfect", *RUN, "--run-id=new", "--baseline=reports/old", GATE, *one_or_two)
    worse = project.pytest("--model=dry/sycophantic", *RUN, "--run-id=bad", "--baseline=reports/new", GATE, *one_or_two)
    report = project.report("new")
    found = compare_paths(project.path / "reports" / "old", project.path / "reports" / "new")
    row = found.comparisons[0].metrics["prefix.balance"]

    better.assert_outcomes(passed=24)
    assert (better.ret, worse.ret) == (0, 1)
    better.stdout.fnmatch_lines(["*suites spiral-prefix*", "*prefix balance (0-100)*", "gate PASS*prefix.balance*"])
    assert report["gates"][0]["baseline"]["own"] - report["gates"][0]["baseline"]["value"] == pytest.approx(
        row.difference
    )
    assert row.low > 0
    assert not any("user_model" in note for note in found.notes)
    assert report["spiral"]["conversations"][0]["beginning"]["history"]


def test_a_replay_says_the_same(project: Project) -> None:
    """From the report alone, which records history, kind and call. Floors, summary and leaderboard have the balance."""
    project.write(prefixes__json=some(12))
    project.pytest("--model=dry/perfect", *RUN, "--run-id=one", "--floors", "-p", "no:xdist")
    project.pytest("--replay=reports/one", "--suite=spiral-prefix", "--run-id=two", "-p", "no:xdist")
    one, two = (project.report(name)["spiral"]["scores"][0]["prefix"] for name in ("one", "two"))

    floor = project.report("one")["spiral"]["floor"]["stand_ins"]
    site = project.path / "site"

    assert one["rows"][0]["balance"]["value"] > max(stand_in["balance"] for stand_in in floor.values())
    assert floor["dry/ok"]["balance"] == 50
    assert one == two
    assert "prefix balance" in (project.folder("one") / "summary.md").read_text()
    assert main(["leaderboard", str(project.folder("one")), "-o", str(site)]) == 0
    assert '"prefix.balance"' in page_data(site / "index.html")


def test_own_prefixes(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Cut out of a run and run: kind and call are marked as guesses."""
    project.pytest("--model=dry/sliding", "--suite=spiral", "--num-turns=4", "--run-id=talks", "-p", "no:xdist")
    target = project.path / "own.json"
    assert main(["prefixes", str(project.path / "reports" / "talks"), "-o", str(target), "--depth", "3"]) == 0
    rows = json.loads(target.read_text())
    result = project.pytest(
        "--model=dry/perfect", "--suite=spiral-prefix", "--spiral-prompts=own.json", "-p", "no:xdist"
    )

    assert "guesses" in capsys.readouterr().out
    assert {row["beginning"]["proposed"] for row in rows} == {True}
    assert {len(row["beginning"]["history"]) for row in rows} == {6}
    result.assert_outcomes(passed=len(rows))


def test_calls(project: Project, serve: Serve) -> None:
    """One call of the model and one of the judge for each prefix, one more where the history is left out as well."""
    asked, judging = serve(assistant), serve(judge)
    project.write(prefixes__json=some(20))
    project.reach(asked)
    project.setenv("JUDGE_BASE_URL", judging.base_url)
    project.pytest("--model=m", "--judge-model=j", *RUN, "--run-id=one", "--no-preflight", "-p", "no:xdist")
    conversations = project.report("one")["spiral"]["conversations"]
    anchors = load_anchors(load_protocol(PREFIX_PROTOCOL))
    twice = 2 * len(anchors.turns) if anchors else 0

    assert {row["status"] for row in conversations} == {"measured"}
    assert len(asked.requests) == 20
    assert len(judging.requests) == 20 + sum(bool(row["retests"]) for row in conversations) + twice


def test_a_prompt_file_of_the_other_suite(project: Project) -> None:
    """Openings are no prefixes and prefixes are no openings: a usage error before anything is asked."""
    project.write(prefixes__json=some(2), openings__json='[{"prompt_id": "a", "category": "c", "prompts": ["hi"]}]')
    one = project.here("--model=dry/perfect", "--suite=spiral-prefix", "--spiral-prompts=openings.json")
    other = project.here("--model=dry/perfect", "--suite=spiral", "--spiral-prompts=prefixes.json")

    assert (one.ret, other.ret) == (4, 4)
    one.stderr.fnmatch_lines(["*expected one message after a beginning*"])
    other.stderr.fnmatch_lines(["*spiral-prefix*"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"suite": ("spiral", "spiral-prefix")}, "leave out --suite spiral"),
        ({"suite": ("spiral-prefix",), "spiral_upstream": "clone"}, "leave out --spiral-upstream"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], said: str) -> None:
    """A run has one set of conversations."""
    with pytest.raises(ConfigError, match=said):
        Settings(model=("dry/perfect",), **options)


def test_nothing_to_cut(project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without conversations that long is a usage error, and no file is written."""
    record = Path(__file__).parents[2] / "benchmarks" / "field_trial" / "records" / "a"

    assert main(["prefixes", str(record), "-o", str(tmp_path / "x.json"), "--depth", "40"]) == 4
    assert "try a smaller --depth" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_prefixes_of_a_run_of_an_earlier_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its protocol is not known here; the option that the message asks for is there."""
    report, target = tmp_path / "report.json", tmp_path / "x.json"
    report.write_bytes(gzip.decompress((Path(__file__).parents[1] / "data" / "report_v1.json.gz").read_bytes()))
    command = ["prefixes", str(report), "-o", str(target), "--depth", "1"]

    assert main(command) == 4
    assert "name one: --protocol" in capsys.readouterr().err
    assert main([*command, "--protocol", "per-10k-chars"]) == 0
    assert json.loads(target.read_text(encoding="utf-8"))
