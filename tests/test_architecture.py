"""The house stands: imports point down, the plugin stays light, data stays out of code."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_spiral

PACKAGE = Path(pytest_spiral.__file__).parent
FLOORS = {
    1: ("stats", "text", "records", "errors", "resources", "hashing", "strict_json"),
    2: ("tempaffect", "spiral", "gates", "comparison", "shadow", "verdict", "settings", "profile"),
    3: ("chat", "store", "report"),
    4: ("session",),
    5: ("plugin", "options", "hooks", "cli"),
}
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imported(path: Path) -> set[str]:
    """Rooms of this package that a module imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pytest_spiral."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("pytest_spiral.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    """A room may use its own floor and those below."""
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    floor = FLOOR_OF[room]

    assert {name for name in imported(path) if FLOOR_OF[name] > floor} == set()


@pytest.mark.parametrize(
    "room", ["tempaffect", "spiral", "stats", "text", "strict_json", "gates", "session", "chat", "store", "report"]
)
def test_only_the_top_floor_knows_pytest(room):
    """Scoring, running and reporting can be used without pytest."""
    paths = [path for path in MODULES if path.relative_to(PACKAGE).parts[0].removesuffix(".py") == room]
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}

        assert not {name for name in names if name.split(".")[0] in ("pytest", "_pytest", "xdist")}, path


@pytest.mark.parametrize(
    ("role", "without"),
    [
        ("lead", ("openai", "nltk", "pytest_spiral.tempaffect.lexicon", "pytest_spiral.spiral.labels")),
        (
            "worker",
            ("openai", "nltk", "pytest_spiral.tempaffect.lexicon", "pytest_spiral.gates", "pytest_spiral.report.build"),
        ),
    ],
)
def test_a_role_loads_what_it_needs(role, without):
    """Every process of a run loads its role before anything else: what is needed later, or elsewhere, waits."""
    program = f"import sys, pytest_spiral.hooks.{role}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert {*loaded} & {*without} == set()
