"""Command-line options and ini keys: one table, read once. Imported by every pytest run, so nothing but the standard
library and pytest."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

__all__ = ["OPTIONS", "Option", "add_aliases", "add_options", "free_aliases", "read_options"]

GROUP = "spiral"
TITLE = "model evaluation (pytest-spiral)"


@dataclass(frozen=True)
class Option:
    """One setting: `--spiral-<name>`, the short alias `--<name>`, and the ini key `spiral_<name>`.

    kind: "many" options may be repeated; a "flag" takes no value.
    """

    name: str
    help: str
    kind: Literal["text", "int", "float", "many", "flag"] = "text"
    default: Any = None
    choices: Sequence[str] = ()
    metavar: str | None = None

    @property
    def key(self) -> str:
        """Name in the settings."""
        return self.name.replace("-", "_")

    @property
    def dest(self) -> str:
        return "spiral_" + self.key.removeprefix("spiral_")

    @property
    def flag(self) -> str:
        return f"--spiral-{self.name.removeprefix('spiral-')}"

    @property
    def alias(self) -> str:
        return f"--{self.name}"

    def described(self) -> str:
        """Help text with the default, percent signs escaped for argparse."""
        shown = self.default
        if self.kind == "many":
            shown = ", ".join(self.default or ()) or None
        if "(default:" in self.help:
            return self.help.replace("%", "%%")
        note = "off" if self.kind == "flag" else shown
        return f"{self.help} (default: {note if note is not None else 'none'})".replace("%", "%%")


OPTIONS: tuple[Option, ...] = (
    Option(
        "model",
        "Evaluated model: dry/NAME, local/NAME, local/FILE.gguf, or a model id of the endpoint. Without it this plugin "
        "does nothing",
        kind="many",
        metavar="SPEC",
    ),
    Option(
        "user-model",
        "Model that plays the seeker in conversations (default: that of the published leaderboard, or a built-in one "
        "where the evaluated model is dry or local)",
        metavar="SPEC",
    ),
    Option(
        "judge-model",
        "Model that judges conversations; repeat for an ensemble (default: that of the published leaderboard, or a "
        "built-in one where the evaluated model is dry or local)",
        kind="many",
        metavar="SPEC",
    ),
    Option(
        "suite",
        "Bundled suite to run",
        kind="many",
        default=("tempaffect", "spiral"),
        choices=("tempaffect", "spiral"),
    ),
    Option(
        "prompting",
        "TempAffect mode: JSON schema enforced by the endpoint, or prompt only",
        kind="many",
        default=("schema", "raw"),
        choices=("schema", "raw"),
    ),
    Option("epochs", "How often each scenario is asked", kind="int", default=1, metavar="N"),
    Option("num-turns", "Replies of the evaluated model in a conversation", kind="int", default=20, metavar="N"),
    Option("convos-per-prompt", "Conversations on each opening", kind="int", default=1, metavar="N"),
    Option("protocol", "Scoring protocol of conversations", default="per-10k-chars", metavar="NAME"),
    Option("tempaffect-scenarios", "Scenario file instead of the bundled 75", metavar="FILE"),
    Option("spiral-prompts", "Prompt file in upstream's format instead of the bundled openings", metavar="FILE"),
    Option("system-prompt", "File with a system prompt for the evaluated model in conversations", metavar="FILE"),
    Option("seed", "Seed of injection schedules and bootstrap intervals", kind="int", default=1, metavar="N"),
    Option("concurrency", "Most requests in flight over all workers together", kind="int", default=64, metavar="N"),
    Option("run-id", "Name of the run; giving an existing one resumes it (default: time and model)", metavar="ID"),
    Option("report-dir", "Folder of the reports", default="reports", metavar="DIR"),
    Option(
        "replay",
        "Score what a run folder, report.json or upstream result file recorded, without calling the evaluated model",
        metavar="PATH",
    ),
    Option(
        "redo-judging",
        "With --replay: have the judges judge the recorded conversations again",
        kind="flag",
        default=False,
    ),
    Option(
        "retest-share",
        "Percent of the chunks that judges judge once more, in the same and in another order of behaviours",
        kind="int",
        default=0,
        metavar="PERCENT",
    ),
    Option(
        "benign-twins",
        "Also hold conversations on the innocent twins of twelve openings, and report over-correction",
        kind="flag",
        default=False,
    ),
    Option(
        "calibrate",
        "Have the judges label the shipped calibration turns as well, and say how far they may decide",
        kind="flag",
        default=False,
    ),
    Option(
        "gate",
        "Release condition on a metric, such as 'tempaffect.ubr_rate_deduped >= 0.70' or 'spiral.score >= baseline - "
        "5'; the metrics are listed at the end of this help",
        kind="many",
        metavar="EXPR",
    ),
    Option(
        "baseline",
        "Run folder, report.json or upstream result file that gates may name as `baseline`",
        metavar="PATH",
    ),
    Option(
        "gate-policy",
        "Decide gates on one-sided 95 % bounds, or on point estimates (the report says so)",
        default="bound",
        choices=("bound", "point"),
    ),
    Option(
        "shard",
        "Run every N-th item from the K-th on; `pytest-spiral merge` makes one run of all N shards",
        metavar="K/N",
    ),
    Option(
        "plan",
        "Print calls, tokens and estimated cost by role, and run nothing; given the --run-id of an existing run, for "
        "what is left of it",
        kind="flag",
        default=False,
    ),
    Option(
        "max-cost",
        "Stop before the run may have cost more than this; what is left is not run, and resuming with a higher limit "
        "runs it",
        kind="float",
        metavar="USD",
    ),
    Option(
        "strict-items",
        "Fail the test of every TempAffect item whose answer is not useful and bounded",
        kind="flag",
        default=False,
    ),
)

_INI_TYPES: dict[str, Any] = {"text": "string", "int": "int", "float": "float", "many": "linelist", "flag": "bool"}


def add_options(parser: pytest.Parser) -> None:
    """Register the prefixed options and their ini keys."""
    group = parser.getgroup(GROUP, TITLE)
    for option in OPTIONS:
        group.addoption(option.flag, help=option.described(), **_argparse_keywords(option))
        # An absent key must be told from one set to the default, so the registered default is empty.
        empty: Any = [] if option.kind == "many" else None
        parser.addini(option.dest, option.described().replace("%%", "%"), type=_INI_TYPES[option.kind], default=empty)


def add_aliases(parser: pytest.Parser) -> None:
    """Register the short names that nobody else has taken. To be called once all other options are known."""
    group = parser.getgroup(GROUP, TITLE)
    for option in OPTIONS:
        if option.alias == option.flag:
            continue
        try:
            group.addoption(option.alias, help=f"Short for {option.flag}", **_argparse_keywords(option))
        except (argparse.ArgumentError, ValueError):
            continue


def free_aliases(parser: pytest.Parser) -> None:
    """Give the short names up once the command line is read: pytest loads the conftest of a deep folder only when it
    gets there, and that conftest may want one of them."""
    ours = {option.dest: option.alias for option in OPTIONS}
    for name, dest in list(parser._opt2dest.items()):
        if ours.get(dest) == name:
            del parser._opt2dest[name]
            del parser.optparser._option_string_actions[name]


def _argparse_keywords(option: Option) -> dict[str, Any]:
    keywords: dict[str, Any] = {"dest": option.dest, "default": None}
    if option.kind == "flag":
        return {**keywords, "action": "store_true"}
    keywords["action"] = "append" if option.kind == "many" else "store"
    if option.kind in ("int", "float"):
        keywords["type"] = {"int": int, "float": float}[option.kind]
    if option.choices:
        keywords["choices"] = list(option.choices)
    if option.metavar:
        keywords["metavar"] = option.metavar
    return keywords


def read_options(config: pytest.Config) -> dict[str, Any]:
    """All settings: command line first, then ini, then the default. Raises `ValueError` naming a wrong ini key."""
    found: dict[str, Any] = {}
    for option in OPTIONS:
        value = config.getoption(option.dest)
        if value is None:
            value = _from_ini(config, option)
        found[option.key] = list(value or ()) if option.kind == "many" else value
    return found


def _from_ini(config: pytest.Config, option: Option) -> Any:
    try:
        value = config.getini(option.dest)
    except (TypeError, ValueError, pytest.UsageError) as error:
        raise ValueError(f"ini key {option.dest}: {error}") from None
    if value is None or value == [] or (value == "" and option.kind == "text"):
        return option.default
    entries = value if option.kind == "many" else [value]
    for entry in entries:
        if option.choices and entry not in option.choices:
            raise ValueError(f"ini key {option.dest}: {entry!r} is not one of {', '.join(option.choices)}")
    return value
