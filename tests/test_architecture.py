"""Imports point down the layers without cycles, the core knows no pytest, and the plugin stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest_spiral

PACKAGE = Path(pytest_spiral.__file__).parent
# From the lowest layer up. A name covers a module or a package; the longest name that fits a file decides.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "status",
        "chat",
        "errors",
        "text",
        "resources",
        "tables",
        "hashing",
        "strict_json",
        "settings",
        "differences",
        "grouping",
        "repetition",
    ),
    ("stats",),
    ("spiral.records", "tempaffect.records", "tempaffect.scenario", "gates.grammar"),
    ("report.model", "labelling.files"),
    ("gates",),
    ("tempaffect", "spiral"),
    ("store",),
    ("models",),
    ("report",),
    ("labelling",),
    ("compare",),
    ("evaluate",),
    ("run",),
    ("plugin", "cli"),
)
CORE = (
    "status",
    "settings",
    "chat",
    "stats",
    "gates",
    "tempaffect",
    "spiral",
    "report",
    "compare",
    "evaluate",
    "models",
    "run",
)
# May be imported by every pytest run of an environment that has the package: standard library and pytest only.
LIGHT = ("plugin", "plugin._compat", "plugin.options", "settings")


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name without the package's."""
    result = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            result[name] = path
    return result


MODULES = modules()


def layer(name: str) -> int:
    fits = [(len(entry), number) for number, names in enumerate(LAYERS) for entry in names if covers(entry, name)]
    return max(fits)[1]


def covers(entry: str, name: str) -> bool:
    return name == entry or name.startswith(f"{entry}.")


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def foreign(name: str) -> set[str]:
    """Top-level names of everything that a module imports."""
    nodes = list(ast.walk(tree(name)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {imported.partition(".")[0] for imported in names}


@cache
def imports(name: str) -> set[str]:
    """Modules of the package that one imports at run time, wherever in the file."""
    result = set()
    for node in run_time_nodes(tree(name)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pytest_spiral"):
            base = node.module.removeprefix("pytest_spiral").removeprefix(".")
            for alias in node.names:
                deeper = f"{base}.{alias.name}".removeprefix(".")
                result.add(deeper if deeper in MODULES else base)
        elif isinstance(node, ast.Import):
            result |= {
                alias.name.removeprefix("pytest_spiral.") for alias in node.names if "pytest_spiral." in alias.name
            }
    return {target for target in result if target in MODULES} - {name}


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    yield node
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    for child in ast.iter_child_nodes(node):
        yield from run_time_nodes(child)


def test_imports_point_down() -> None:
    """A module imports from its own layer and those below."""
    above = [(name, target) for name in MODULES for target in imports(name) if layer(target) > layer(name)]

    assert above == []


def test_no_import_cycles() -> None:
    """No file imports itself through others, imports inside functions included."""
    graph = {name: imports(name) for name in MODULES}
    done: set[str] = set()
    cycles: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycles.append(" -> ".join((*path[path.index(name) :], name)))
        elif name not in done:
            for target in sorted(graph[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())

    assert cycles == []


def test_the_core_does_not_know_pytest() -> None:
    """Scoring, running and reporting can be used without pytest."""
    core = [name for name in MODULES if name.partition(".")[0] in CORE]
    found = [(name, top) for name in core for top in foreign(name) & {"pytest", "_pytest", "xdist"}]

    assert len(core) > 100
    assert found == []


def test_the_inert_plugin_is_light() -> None:
    """Whoever does not use the plugin loads four small modules of it."""
    program = "import sys, pytest_spiral.plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in loaded if name.startswith("pytest_spiral.")}

    assert ours == {f"pytest_spiral.{name}" for name in LIGHT}


def test_the_change_list_names_files_that_exist() -> None:
    """At most four for a change; of one to be added, the directory exists."""
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = text.partition("| to add | touch |")[2].partition("\n\n")[0].splitlines()[2:]
    named = [re.findall(r"`([\w/]+\.(?:py|md|js|toml))`", row) for row in rows]
    paths = [name.rpartition("/")[0] if "NAME" in name else name for names in named for name in names]

    assert len(rows) == 6
    assert max(map(len, named)) <= 4
    assert [path for path in paths if not (PACKAGE / path).exists() and not (PACKAGE.parent / path).exists()] == []


def test_a_public_name_means_one_thing() -> None:
    """Classes and types of two modules have two names, so that a reader never has to ask which one is meant."""
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                if name[0].isupper() and not name.isupper() and len(name) > 1:
                    places.setdefault(name, []).append(path.relative_to(PACKAGE).as_posix())

    assert {name: found for name, found in places.items() if len(found) > 1} == {}
