"""`--labels`: numbers of a finished run corrected by labels, when it is resumed or replayed."""

from __future__ import annotations

from pathlib import Path

from pytest_spiral.labelling.drawing import candidates, draw, replies_hash
from pytest_spiral.labelling.files import Header, LabelFile, LabelledItem, Rater, Sampling
from pytest_spiral.report.read import load_report
from tests.plugin.conftest import Project

RUN = ("--model=dry/echo", "--suite=tempaffect", "--prompting=raw", "-p", "no:xdist", "--run-id=run")
GATE = "--gate=tempaffect.corrected.useful_bounded >= 0.2"


def label(run: Path) -> None:
    """Ann labels 60 replies of a run; she finds every second one good."""
    report = load_report(run / "report.json")
    population = candidates(report, "tempaffect")
    items = tuple(
        LabelledItem(
            item=one.item,
            model=one.model,
            mode=one.mode,
            cluster=one.cluster,
            inclusion=one.inclusion,
            labels={"ann": {"useful_bounded": "yes" if number % 2 else "no"}},
        )
        for number, one in enumerate(draw(population, 60, seed=1))
    )
    header = Header(
        suite="tempaffect",
        run=report.run.id,
        report_hash=replies_hash(report, "tempaffect"),
        questions=("useful_bounded",),
        raters=(Rater(name="ann", kind="person"),),
        sampling=Sampling(seed=1, population=len(population), sampled=len(items), design="core and hard ones"),
    )
    Path("labels.jsonl").write_text(LabelFile(header, items).text(), encoding="utf-8")


def test_a_resumed_run_is_corrected_and_gated(project: Project) -> None:
    """Labels need replies; given later, nothing is asked again, and the gate is decided on the corrected number."""
    early = project.pytest("--model=dry/echo", "--labels=labels.jsonl")
    assert early.ret == 4
    early.stderr.fnmatch_lines(["*--labels: labels are of a finished run; name it with --run-id*"])

    assert project.pytest(*RUN).ret == 0
    label(project.path / "reports" / "run")
    resumed = project.pytest(*RUN, "--labels=labels.jsonl", GATE)
    other = project.pytest(*RUN[:-1], "--run-id=other", "--labels=labels.jsonl")

    # Before anything is asked: nobody has labelled replies of a run that does not exist.
    assert other.ret == 4
    other.stderr.fnmatch_lines(["*--labels: run other has no report*"])

    assert resumed.ret == 0
    resumed.stdout.fnmatch_lines(["*corrected by labels of people (ann)*", "verdict: PASS", "gate PASS *"])
    # The next version has other replies.
    assert "--labels" not in resumed.stdout.str().partition("can be compared with this one")[2]
    assert "corrected." not in resumed.stdout.str().partition("can be compared with this one")[2]
    report = project.report("run")
    (figure,) = report["corrected"]["figures"]
    assert (figure["raw"], figure["labels"]) == (0, 60)
    assert 0.2 < figure["low"] < figure["value"] < figure["high"] < 0.8
    assert report["gates"][0]["metric"] == "tempaffect.corrected.useful_bounded"
