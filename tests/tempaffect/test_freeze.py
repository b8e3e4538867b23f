"""The freeze: no byte of any component can move unseen, and the order of files is no content."""

from __future__ import annotations

import json
import random
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral import resources
from pytest_spiral.errors import DataError
from pytest_spiral.tempaffect import params as params_module
from pytest_spiral.tempaffect.contract import output_schema
from pytest_spiral.tempaffect.suite import load_suite, prompt_texts

SUITE = load_suite()
ROOT = resources.data_root().parent
SCENARIOS = sorted((ROOT / "scenarios" / "tempaffect").glob("*.json"))
SHARED = {
    "output_schema": ["data/tempaffect/output_schema.json"],
    "prompts.raw_json": ["data/tempaffect/prompts/system.txt", "data/tempaffect/prompts/scenario.txt"],
    "prompts.schema_assisted": ["data/tempaffect/prompts/system.txt", "data/tempaffect/prompts/scenario.txt"],
    "params": ["data/tempaffect/params.toml", "data/tempaffect/scoring.toml"],
    "lexicons": [
        path.relative_to(ROOT).as_posix()
        for folder in ("data/tempaffect/lexicons", "data/text")
        for path in sorted((ROOT / folder).glob("*.toml"))
    ],
}
FLIPS = 8


def meaning(name: str, raw: bytes) -> object:
    """What a file says. Layout and comments of JSON and TOML say nothing; in a prompt every byte but the last does."""
    text = raw.decode()
    if name.endswith(".json"):
        return json.loads(text)
    return tomllib.loads(text) if name.endswith(".toml") else text.rstrip("\n")


def flipped(name: str, raw: bytes) -> list[bytes]:
    """`FLIPS` copies, each with one ASCII byte changed that changes what the file says, or breaks it."""
    rng = random.Random(name)
    original = meaning(name, raw)
    copies: list[bytes] = []
    while len(copies) < FLIPS:
        at = rng.randrange(len(raw))
        if raw[at] >= 0x80:
            continue
        copy = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        try:
            same = meaning(name, copy) == original
        except ValueError:
            same = False
        if not same:
            copies.append(copy)
    return copies


@pytest.fixture(scope="module", autouse=True)
def parsed_once() -> Iterator[None]:
    """The same text says the same: of all the files of a suite, one is another than before. Nobody changes a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tomllib, "loads", cache(tomllib.loads))
        yield


def hashes(path: Path) -> Mapping[str, str]:
    """The hashes of the suite in a file: by component, and of the whole as `suite`."""
    suite = load_suite([path])
    return {**suite.components, "suite": suite.suite_hash}


@contextmanager
def fresh_caches() -> Iterator[None]:
    """Read the prompts and the schema again, then forget what was read."""
    cached = (prompt_texts, output_schema, params_module.load_params)
    for function in cached:
        function.cache_clear()
    try:
        yield
    finally:
        for function in cached:
            function.cache_clear()


@pytest.fixture
def copy_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "data", tmp_path / "data")
    monkeypatch.setattr(resources, "_root", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("component", SHARED)
def test_any_byte_of_a_shared_component_moves_the_hash(component: str, tmp_path: Path, copy_of_the_data: Path) -> None:
    """Flip one byte anywhere: another hash under the component's name, or a file that is refused."""
    one = tmp_path / "one.json"
    one.write_text(json.dumps([json.loads(SCENARIOS[0].read_text(encoding="utf-8"))[0]]), encoding="utf-8")
    with fresh_caches():
        before = hashes(one)
    assert set(before) == {*SHARED, "scenarios", "suite"}
    moved = 0

    for name in SHARED[component]:
        path = copy_of_the_data / name
        raw = path.read_bytes()
        for copy in flipped(name, raw):
            path.write_bytes(copy)
            with fresh_caches():
                try:
                    after = hashes(one)
                except DataError:
                    continue
            assert after[component] != before[component], (name, copy)
            assert after["suite"] != before["suite"]
            moved += 1
        path.write_bytes(raw)

    assert moved > 0


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_any_byte_of_a_scenario_file_moves_the_hash(path: Path, tmp_path: Path) -> None:
    """So do the scenario files, whatever the field."""
    copy_path = tmp_path / path.name
    copy_path.write_bytes(path.read_bytes())
    before = hashes(copy_path)
    moved = 0

    for copy in flipped(path.name, path.read_bytes()):
        copy_path.write_bytes(copy)
        try:
            after = hashes(copy_path)
        except DataError:
            continue
        assert after["scenarios"] != before["scenarios"], copy
        assert after["suite"] != before["suite"]
        moved += 1

    assert moved > 0


def test_every_field_of_a_scenario_is_in_the_hash(tmp_path: Path) -> None:
    """One letter more, one number more, one truth reversed, leaf by leaf over a whole scenario."""
    scenario = json.loads(SCENARIOS[0].read_text(encoding="utf-8"))[0]
    path = tmp_path / "one.json"
    path.write_text(json.dumps([scenario]), encoding="utf-8")
    seen = {load_suite([path]).suite_hash}
    tried = 0

    for place in leaves(scenario):
        changed = json.loads(json.dumps(scenario))
        target: Any = changed
        for key in place[:-1]:
            target = target[key]
        value = target[place[-1]]
        target[place[-1]] = (not value) if isinstance(value, bool) else value + (1 if isinstance(value, int) else "x")
        path.write_text(json.dumps([changed]), encoding="utf-8")
        try:
            result = load_suite([path]).suite_hash
        except DataError:
            continue
        assert result not in seen, place
        seen.add(result)
        tried += 1

    assert tried >= 20


def leaves(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all strings, numbers and truth values."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*place, key))
    else:
        yield place


def test_the_order_of_files_and_scenarios_is_no_content(tmp_path: Path) -> None:
    """The bundled suite in other files, other names and another order is the same suite."""
    scenarios = [entry for path in SCENARIOS for entry in json.loads(path.read_text(encoding="utf-8"))]
    random.Random(1).shuffle(scenarios)
    paths = []
    for number in range(5):
        path = tmp_path / f"{9 - number}.json"
        path.write_text(json.dumps(scenarios[number::5]), encoding="utf-8")
        paths.append(path)

    assert load_suite(paths).suite_hash == load_suite(reversed(paths)).suite_hash == SUITE.suite_hash
