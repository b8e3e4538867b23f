"""What a simulated run measures, and with how many processes."""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_spiral.models.parameters import Price
from pytest_spiral.run.content import Content, SpiralContent
from pytest_spiral.settings import Settings
from tests.faults.runs import MODELS, _few_scenarios

__all__ = ["PRICE", "Shape", "content_of", "write_openings"]

# USD per million tokens, of every model.
PRICE = Price(input=1.0, output=10.0)


@dataclass(frozen=True)
class Shape:
    """What a run measures and with how many processes. refuses: the parameter that its endpoint does not take."""

    suites: tuple[Any, ...]
    turns: int
    openings: int
    prompting: tuple[Any, ...]
    workers: int
    concurrency: int
    retest: int
    refuses: str

    @classmethod
    def draw(cls, rng: random.Random, refuses: str) -> Shape:
        """Any."""
        suites = rng.choice((("tempaffect",), ("spiral",), ("tempaffect", "spiral")))
        return cls(
            suites,
            rng.choice((2, 3)),
            rng.choice((1, 2)),
            rng.choice((("schema",), ("raw",), ("schema", "raw"))),
            rng.choice((0, 0, 1, 2, 3)),
            rng.choice((1, 2, 4, 16)),
            rng.choice((0, 0, 0, 50)),
            refuses,
        )

    def settings(self, max_cost: float | None = None) -> Settings:
        """As options."""
        return Settings(
            model=(MODELS["evaluated"],),
            user_model=MODELS["user"],
            judge_model=(MODELS["judge"],),
            suite=self.suites,
            prompting=self.prompting,
            run_id="r",
            num_turns=self.turns,
            spiral_prompts="prompts.json",
            protocol="per-chunk",
            concurrency=self.concurrency,
            retest_share=self.retest,
            max_cost=max_cost,
        )


def content_of(settings: Settings, shape: Shape, folder: Path) -> Content:
    content = Content(settings, folder)
    content.__dict__["suite"] = _few_scenarios(1)
    content.__dict__["spiral"] = _spiral_contents(shape.openings)
    return content


_SPIRAL: dict[int, SpiralContent] = {}


def _spiral_contents(openings: int) -> SpiralContent:
    if openings not in _SPIRAL:
        with tempfile.TemporaryDirectory() as folder:
            write_openings(Path(folder), openings)
            settings = Settings(spiral_prompts="prompts.json", protocol="per-chunk")
            loaded = Content(settings, Path(folder)).spiral
        # Enough draws for every branch; how many decide nothing else.
        protocol = loaded.protocol.model_copy(update={"draws": 40})
        _SPIRAL[openings] = replace(loaded, protocol=protocol)
    return _SPIRAL[openings]


def write_openings(folder: Path, count: int) -> None:
    openings = [
        {"prompt_id": f"p{n}", "category": "theory_development", "prompts": [f"my number is {n}. is it a sign?"]}
        for n in range(count)
    ]
    (folder / "prompts.json").write_text(json.dumps(openings))
    price = f"price = {{ input = {PRICE.input}, output = {PRICE.output} }}"
    (folder / "spiral.toml").write_text(f'[[model]]\nmatch = "*"\n{price}\n')
