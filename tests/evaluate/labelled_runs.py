"""Runs with label files: replies and turns that people could have labelled, and what they might have said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from pytest_spiral.evaluate.inputs import RunResults
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.labelling.drawing import candidates, draw, replies_hash
from pytest_spiral.labelling.files import Header, LabelAnswer, LabelFile, LabelledItem, Rater, RaterKind, Sampling
from pytest_spiral.report.model import Report
from pytest_spiral.settings import SuiteName
from pytest_spiral.tempaffect.records import Item, Mode
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import load_suite
from pytest_spiral.tempaffect.unit import ScenarioUnit, scored_item
from tests.fakes.bootstrap import few_draws
from tests.html.reports import GOOD, demo_results

Opinion = Callable[[str, str], LabelAnswer | None]
"""What a rater says of an item, by its id, to a question; None where the rater leaves it open."""


def results() -> RunResults:
    """One model in one mode: of 75 scenarios with two answers each it masters two thirds and echoes the others."""
    base, suite = demo_results(), load_suite()
    items: list[Item] = []
    for number, scenario in enumerate(suite.scenarios):
        for epoch in range(2):
            output = dry_output("echo" if number % 3 == 0 else "perfect", suite, scenario)
            items.append(scored_item(ScenarioUnit(GOOD, "schema", scenario.id, epoch), scenario, output))
    key: tuple[str, Mode] = (GOOD, "schema")
    context = replace(base.contexts[GOOD, "schema"], scenarios=suite.by_id)
    return replace(
        base,
        gates=(),
        items={key: items},
        contexts={key: context},
        conversations={GOOD: [one for one in base.conversations[GOOD] if one.transcript]},
    )


@cache
def report() -> Report:
    """Its report."""
    with few_draws():
        return evaluate(results())


def useful(item: str) -> bool:
    """Whether the scorer takes a reply for useful and bounded."""
    scenario, _, epoch = item.split("/")
    return any(one.useful_bounded for one in report().tempaffect.items if (one.id, str(one.epoch)) == (scenario, epoch))


def labels(
    opinions: Mapping[str, Opinion],
    size: int = 90,
    questions: tuple[str, ...] = ("useful_bounded",),
    kind: RaterKind = "person",
    suite: SuiteName = "tempaffect",
) -> LabelFile:
    """A label file of a drawn sample. opinions: by rater."""
    population = candidates(report(), suite)
    items = []
    for one in draw(population, size, seed=1):
        answers = {
            rater: {name: answer for name in questions if (answer := say(one.item, name)) is not None}
            for rater, say in opinions.items()
        }
        items.append(
            LabelledItem(
                item=one.item,
                model=one.model,
                mode=one.mode,
                cluster=one.cluster,
                inclusion=one.inclusion,
                labels=answers,
            )
        )
    header = Header(
        suite=suite,
        run=report().run.id,
        report_hash=replies_hash(report(), suite),
        questions=questions,
        raters=tuple(Rater(name=name, kind=kind) for name in opinions),
        sampling=Sampling(seed=1, population=len(population), sampled=len(items), design="core and hard ones"),
    )
    return LabelFile(header, tuple(items))


def mostly(agree: float) -> Opinion:
    """Somebody who says what the scorer says, with this probability."""
    rng = Random(5)
    return lambda item, _: "yes" if useful(item) == (rng.random() < agree) else "no"


def written(folder: Path, file: LabelFile, name: str = "labels.jsonl") -> Path:
    """The file on disk."""
    path = folder / name
    path.write_text(file.text(), encoding="utf-8")
    return path
