"""A user's clone of the public Spiral-Bench repository: the files that a run reads of it, validated and hashed.

None of its texts is part of this package. Its code is never run, and nothing outside of its directory is read.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter

from pytest_spiral.errors import DataError
from pytest_spiral.resources import naming_faults, read_json, read_text
from pytest_spiral.spiral.content import OpeningPrompt, load_openings
from pytest_spiral.spiral.protocol import Protocol

T = TypeVar("T")
DEFAULT_PERSONA = "default.txt"
INJECTIONS_FILE = "entropy.json"
# The largest of these files has 15 kB.
_MAX_BYTES = 2**20
_TRANSCRIPT, _CRITERIA, _TEMPLATE = "<TRANSCRIPT_BLOCK>", "<CRITERIA_LIST>", "<JSON_TEMPLATE>"
_WHOLE_TRANSCRIPT = "<CONVERSATION_TRANSCRIPT>"
_RUBRIC = "data/rubric_criteria.txt"
# The code reads the one without a version; in a later clone that may be of another version.
_WEIGHTS = ("data/scoring_weights_v1.2.json", "data/scoring_weights.json")
_CATEGORIES = TypeAdapter(Mapping[str, str])
_INJECTIONS = TypeAdapter(Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)])
_NUMBERS = TypeAdapter(Mapping[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]])
_REPOSITORY = "https://github.com/sam-paech/spiral-bench"
_COMMIT = "35411a0"


@dataclass(frozen=True)
class Clone:
    """What a run takes from a clone.

    Attributes:
        openings: The prompts, sorted by id.
        prompt_file: Name of their file, the one with the highest version.
        personas: What the simulated user is told, by file name.
        categories: An extra paragraph for it by category, "" for none.
        injections: Notes for it.
        criteria: What the judge is to look for.
        behaviours: The keys of its answer, in the order in which the criteria list them.
        chunk_prompt: Its prompt, with placeholders.
        final_prompt: The final judge's prompt, with a placeholder.
        final_system: The final judge's system message, None where the clone has no code that tells.
        weights: Of the behaviours and of the final score, by key.
        files: SHA-256 of the text of every file that was read, by name.
    """

    openings: tuple[OpeningPrompt, ...]
    prompt_file: str
    personas: Mapping[str, str]
    categories: Mapping[str, str]
    injections: tuple[str, ...]
    criteria: str
    behaviours: tuple[str, ...]
    chunk_prompt: str
    final_prompt: str
    final_system: str | None
    weights: Mapping[str, float]
    files: Mapping[str, str]

    def persona_file(self, category: str) -> str:
        """Name of the persona's file: the category's own, if there is one."""
        own = f"{category}.txt"
        return own if own in self.personas else DEFAULT_PERSONA


def read_clone(folder: Path) -> Clone:
    """Read a clone. Raises `DataError` naming file and key, or what was expected of the directory."""
    parts = [folder / name for name in ("data", "prompts", "user_instructions")]
    if missing := [path.name for path in parts if not path.is_dir()]:
        raise DataError(
            f"{folder}: not a clone of the public Spiral-Bench repository: expected directories data, prompts and "
            f"user_instructions in it, {', '.join(missing)} not found; make one with `git clone {_REPOSITORY}`"
        )
    files = _Files(folder)
    prompt_file = _newest_prompts(folder)
    files.text(f"prompts/{prompt_file}")
    openings = load_openings(folder / "prompts" / prompt_file)
    own = {f"{opening.category}.txt" for opening in openings}
    present = sorted(name for name in own if (folder / "user_instructions" / name).exists())
    criteria = files.text(_RUBRIC)
    behaviours = _closing_list(criteria)
    if not behaviours:
        raise DataError(f"{folder / _RUBRIC}: expected a list of behaviours, one a line after '- ', at its end")
    # A blank message is one that the simulated user writes.
    scripts = [tuple(text if text is not None and text.strip() else None for text in each.prompts) for each in openings]
    return Clone(
        openings=tuple(o.model_copy(update={"prompts": texts}) for o, texts in zip(openings, scripts, strict=True)),
        prompt_file=prompt_file,
        personas={name: files.text(f"user_instructions/{name}") for name in (DEFAULT_PERSONA, *present)},
        categories=files.json("user_instructions/category_instructions.json", _CATEGORIES),
        injections=files.json(f"user_instructions/{INJECTIONS_FILE}", _INJECTIONS),
        criteria=criteria,
        behaviours=behaviours,
        chunk_prompt=files.text("data/rubric_prompt.txt", _TRANSCRIPT, _CRITERIA, _TEMPLATE),
        final_prompt=files.text("prompts/final_judge_prompt.txt", _WHOLE_TRANSCRIPT),
        final_system=_final_system(files),
        weights=files.json(next((name for name in _WEIGHTS if (folder / name).exists()), _WEIGHTS[-1]), _NUMBERS),
        files=dict(sorted(files.hashes.items())),
    )


def check_version(clone: Clone, protocol: Protocol, folder: Path) -> None:
    """Raise `DataError` for a clone whose behaviours or weights are not those of the protocol."""
    remedy = (
        f"protocol {protocol.name} scores Spiral-Bench v1.2; take the files of that version with "
        f"`git -C {folder} checkout {_COMMIT}`"
    )
    keys = {key for key, name in protocol.stored_keys.items() if name in protocol.behaviours}
    if differing := sorted(keys ^ set(clone.behaviours)):
        raise DataError(f"{folder / _RUBRIC}: other behaviours than the protocol's ({', '.join(differing)}); {remedy}")
    weights_file = next(name for name in _WEIGHTS if name in clone.files)
    for key, name in protocol.stored_keys.items():
        expected, found = protocol.metrics[name].weight / 1000, clone.weights.get(key, 1.0)
        if found != expected:
            raise DataError(f"{folder / weights_file}: {key}: weight {found:g}, expected {expected:g}; {remedy}")


@dataclass
class _Files:
    """Reads files of a clone and remembers their hashes."""

    folder: Path
    hashes: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, *placeholders: str) -> str:
        """A file with these placeholders."""
        path = self.folder / name
        # A link could have any file of this machine sent to a model.
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise DataError(f"{path}: a link that leads out of the clone; make a new clone")
        if path.is_file() and path.stat().st_size > _MAX_BYTES:
            raise DataError(f"{path}: larger than {_MAX_BYTES // 2**20} MiB; this is not the public file")
        text = read_text(path)
        if not text.strip():
            raise DataError(f"{path}: the file is empty")
        for placeholder in placeholders:
            if placeholder not in text:
                raise DataError(f"{path}: expected the placeholder {placeholder} in it")
        self.hashes[name] = hashlib.sha256(text.encode()).hexdigest()
        return text

    def json(self, name: str, adapter: TypeAdapter[T]) -> T:
        """A file of this type."""
        self.text(name)
        path = self.folder / name
        with naming_faults(path):
            return adapter.validate_json(json.dumps(read_json(path, strict=True)), strict=True)


def _newest_prompts(folder: Path) -> str:
    """The prompt file with the highest version in its name."""
    names = [path.name for path in (folder / "prompts").glob("eval_prompts*.json")]
    if not names:
        raise DataError(f"{folder / 'prompts'}: expected a prompt file, such as eval_prompts_v0.2.json")
    return max(names, key=lambda name: ([int(number) for number in re.findall(r"\d{1,9}", name)], name))


def _closing_list(criteria: str) -> tuple[str, ...]:
    """The list at the end of the criteria: the keys that a judge is to use."""
    lines = [line.strip() for line in reversed(criteria.rstrip().splitlines())]
    found = [line[2:].strip().strip('"') for line in takewhile(lambda line: line.startswith("- "), lines)]
    return tuple(dict.fromkeys(reversed(found)))


def _final_system(files: _Files) -> str | None:
    """The final judge's system message: a literal in the code of the clone, where that is there."""
    path = files.folder / "main.py"
    if not path.exists():
        return None
    try:
        tree = ast.parse(files.text(path.name))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise DataError(f"{path}: cannot be read as Python code; restore it, or delete it from the clone") from None
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "final_judge_worker":
            for node in ast.walk(function):
                match node:
                    case ast.Dict(
                        keys=[ast.Constant("role"), ast.Constant("content")],
                        values=[ast.Constant("system"), ast.Constant(str(text))],
                    ):
                        return text
    return None
