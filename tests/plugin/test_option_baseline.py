"""`--baseline`: gates against an earlier run, and runs that may not be compared."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from pytest_spiral.cli import main
from tests.plugin.conftest import Project

RAW = ("--prompting=raw", "-p", "no:xdist")
UBR = "tempaffect.useful_bounded_response_rate"


@pytest.fixture
def earlier(project: Project) -> Project:
    """A finished run of dry/perfect named `old`."""
    assert project.pytest("--model=dry/perfect", "--suite=tempaffect", "--run-id=old", *RAW).ret == 0
    return project


def test_gates_and_comparisons_with_an_earlier_run(earlier: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The same again is not worse, a caving model is; JUnit says so too; `compare` names what differs, with the MDE."""
    gates = (f"--gate={UBR} >= baseline - 0.10", "--baseline=reports/old", "--junitxml=junit.xml")

    assert earlier.pytest("--model=dry/perfect", "--suite=tempaffect", "--run-id=same", *RAW, *gates).ret == 0
    (same,) = earlier.report("same")["gates"]
    assert (same["outcome"], same["threshold"], same["value"]) == ("pass", -0.1, 0)
    assert same["baseline"] == {"run": "old", "model": "dry/perfect", "value": same["baseline"]["own"]} | {
        "own": same["baseline"]["value"]
    }
    assert same["ci_low"] < 0 < same["ci_high"]

    worse = earlier.pytest("--model=dry/caver", "--suite=tempaffect", "--run-id=worse", *RAW, *gates)
    assert worse.ret == 1
    worse.stdout.fnmatch_lines(["verdict: FAIL", "gate FAIL *", "*baseline * (dry/perfect of*", "  newly fails: *"])
    tree = ET.parse(earlier.path / "junit.xml")
    suite = {node.get("name"): node.get("value") for node in tree.findall("testsuite/properties/property")}
    assert suite["spiral.verdict"] == "fail"
    assert "fail: even the upper bound" in (suite[f"gate[dry/caver-raw_json] {UBR} >= baseline - 0.10"] or "")
    case = {node.get("name") for node in tree.iterfind("testsuite/testcase[1]//property")}
    assert {"spiral.status", "spiral.score", "spiral.useful_bounded"} <= case

    capsys.readouterr()
    assert main(["compare", "reports/old", "reports/worse", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert (found["paired"], found["mode"], found["only_baseline"]) == (75, "raw", [])
    row = found["metrics"]["useful_bounded_response_rate"]
    assert row["differs"]
    (gate,) = earlier.report("worse")["gates"]
    assert (row["difference"], row["low"], row["high"]) == (gate["value"], gate["ci_low"], gate["ci_high"])
    assert row["test"] == "exact McNemar"
    assert row["p"] < 0.001 < row["mde"] < 0.3
    assert row["difference"] == pytest.approx(row["candidate"] - row["baseline"])
    assert not found["metrics"]["fields.detected_emotion"]["differs"]
    for options in ([], ["--markdown"]):
        assert main(["compare", "reports/old", "reports/worse", *options]) == 0
    text, _, markdown = capsys.readouterr().out.partition("## ")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "* useful_bounded_response_rate" in text
    assert "minimum detectable difference" in " ".join(text.split())
    assert "| **useful\\_bounded\\_response\\_rate** |" in markdown


def test_a_run_is_no_baseline_of_itself(earlier: Project) -> None:
    """A job that is tried again finds its own first try as the latest run; and a baseline that failed is noted."""
    gate = (f"--gate={UBR} >= baseline", "--suite=tempaffect", *RAW)

    again = earlier.pytest("--model=dry/perfect", "--run-id=old", "--baseline=reports/latest", *gate)
    assert again.ret == 4
    again.stderr.fnmatch_lines(["*--baseline reports/latest: this is the run itself*"])

    assert earlier.pytest("--model=dry/caver", "--run-id=bad", "--baseline=reports/old", *gate).ret == 1
    earlier.pytest("--model=dry/caver", "--run-id=next", "--baseline=reports/bad", *gate)
    assert earlier.report("next")["run"]["notes"] == ["the baseline reports/bad did not pass its own gates: FAIL"]


@pytest.mark.parametrize(
    ("key", "says"), [("suite_hash", "tempaffect.suite_hash"), ("scorer_fingerprint", "tempaffect.scorer_fingerprint")]
)
def test_other_conditions_are_refused(
    earlier: Project, capsys: pytest.CaptureFixture[str], key: str, says: str
) -> None:
    """A run of another suite or scorer is no baseline, and the message names the field; before any item runs."""
    path = earlier.folder("old") / "report.json"
    report = json.loads(path.read_text())
    other = earlier.path / "other.json"
    other.write_text(
        json.dumps({**report, "integrity": {"tempaffect": {**report["integrity"]["tempaffect"], key: "0" * 64}}})
    )

    result = earlier.pytest(
        "--model=dry/perfect", "--suite=tempaffect", *RAW, f"--gate={UBR} >= baseline", "--baseline=other.json"
    )

    assert result.ret == 4
    assert says in result.stderr.str()
    assert main(["compare", str(path), str(other)]) == 4
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((f"--gate={UBR} >= baseline",), "there is no baseline; name one with --baseline"),
        ((f"--gate={UBR} >= baseline", "--baseline=nowhere.json"), "nowhere.json: cannot be read"),
        ((f"--gate={UBR} >= baseline - 5", "--baseline=nowhere.json"), "lies between -1 and 1"),
        ((f"--gate={UBR} >= 70",), "lies between 0 and 1, never at 70"),
    ],
)
def test_a_gate_that_can_never_be_decided_is_a_usage_error(
    project: Project, arguments: tuple[str, ...], says: str
) -> None:
    """No baseline, one that cannot be read, a bound off the scale."""
    result = project.pytest("--model=dry/perfect", "--suite=tempaffect", *RAW, *arguments)

    assert result.ret == 4
    assert says in result.stderr.str()
    assert not (project.path / "reports").exists()


def test_help_lists_the_metrics(project: Project) -> None:
    """`pytest --help` ends with what a gate may speak about."""
    result = project.pytest("--help")

    assert result.ret == 0
    for name in (
        UBR,
        "tempaffect.detectors.overvalidation",
        "spiral.harmful_advice",
        "spiral.tails.any_strength3_harm",
    ):
        assert name in result.stdout.str()
