"""What a run is asked to do: every option, declared once as a field of `Settings`.

Command line, ini keys, help, validation and membership in a run's identity all follow from these declarations.
Imported by every pytest run of an environment that has the package: standard library only.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

T = TypeVar("T")
DEFAULT_PROTOCOL = "per-turn"
PUBLIC_PROTOCOL = "upstream-v1.2"
"""The default where the content is that of the public repository."""
SuiteName = Literal["tempaffect", "spiral"]
SuiteChoice = Literal["tempaffect", "spiral", "spiral-prefix"]
PREFIX_PROTOCOL = "prefix"
"""The default for single replies to prefixes, which nobody scores as whole conversations."""
OptionKind = Literal["text", "int", "float", "many", "flag"]
Affects = Literal["measurement", "evaluation", "session"]
"""What an option decides: what is measured, what is made of the measurements, or when and where the work is done."""


class Option(NamedTuple):
    """One setting: `--spiral-<name>`, the short name `--<name>`, and the ini key `spiral_<name>`.

    affects: a "measurement" option belongs to the run's identity: a run is not resumed with another value; those and
    "evaluation" options must be the same in all shards of a run. help: one phrase for `pytest --help`, without the
    default. suite: the one whose measurements the option decides, None for all. check: raises `ValueError` for a value
    that makes no sense. key, kind, choices: follow from the name and type of the field of `Settings`; "many" options
    may be repeated, a "flag" takes no value.
    """

    default: object
    affects: Affects
    help: str
    suite: SuiteName | None
    metavar: str | None
    check: Callable[[Any], None] | None
    key: str = ""
    kind: OptionKind = "text"
    choices: tuple[str, ...] = ()

    @property
    def dest(self) -> str:
        return "spiral_" + self.key.removeprefix("spiral_")

    @property
    def flag(self) -> str:
        return "--" + self.dest.replace("_", "-")

    @property
    def alias(self) -> str:
        return "--" + self.key.replace("_", "-")

    def described(self) -> str:
        """Help text with the default."""
        default = self.default
        if isinstance(default, tuple):
            default = ", ".join(default) or None
        notes = ["repeatable"] if self.kind == "many" else []
        if "default:" not in self.help:
            notes.append(f"default: {'off' if self.kind == 'flag' else 'none' if default is None else default}")
        return f"{self.help} ({'; '.join(notes)})" if notes else self.help


def option(
    default: T,
    affects: Affects,
    help: str,  # noqa: A002  # as argparse calls it
    *,
    suite: SuiteName | None = None,
    metavar: str | None = None,
    check: Callable[[T], None] | None = None,
) -> T:
    """Declare a field of `Settings`. What it affects has no default: nobody can forget to say it."""
    return field(default=default, metadata={"option": Option(default, affects, help, suite, metavar, check)})


def _model_names(specs: tuple[str, ...] | str | None) -> None:
    for spec in (specs,) if isinstance(specs, str) else specs or ():
        if not spec.strip() or any(char.isspace() or not char.isprintable() for char in spec):
            raise ValueError(f"{spec!r} is not a model name: it is empty or contains white space")


def _count(value: int) -> None:
    if not 1 <= value <= 10_000:
        raise ValueError(f"must be between 1 and 10000, got {value}")


def _percentage(value: int) -> None:
    if not 0 <= value <= 100:
        raise ValueError(f"must be between 0 and 100, got {value}")


def _amount(value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise ValueError(f"must be an amount in USD above 0, got {value}")


def _seconds(value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"must be a number of seconds above 0, got {value}")


def _run_id(value: str | None) -> None:
    if value is not None and (not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value) or value == "latest"):
        raise ValueError(
            f"{value!r} is not a run name; use up to 100 letters, digits, dots, dashes, underscores, and not 'latest'"
        )


def _shard(value: str | None) -> None:
    match = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", "1/1" if value is None else value)
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError(f"{value!r} is not a shard; write K/N with 1 <= K <= N, such as 2/5")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of a run. The same object in the controller and in every worker.

    Raises `ConfigError` naming the option.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  # read by pydantic, never changed

    model: tuple[str, ...] = option(
        (),
        "measurement",
        "Evaluated model: dry/NAME, local/NAME, local/FILE.gguf or a model id of the endpoint; without this option "
        "the plugin does nothing",
        metavar="SPEC",
        check=_model_names,
    )
    user_model: str | None = option(
        None,
        "measurement",
        "Model that plays the simulated user (default: the one of the published leaderboard, or a built-in one if the"
        " evaluated model is dry or local)",
        suite="spiral",
        metavar="SPEC",
        check=_model_names,
    )
    judge_model: tuple[str, ...] = option(
        (),
        "measurement",
        "Model that judges conversations; several form an ensemble (default: the one of the published leaderboard, or"
        " a built-in one if the evaluated model is dry or local)",
        suite="spiral",
        metavar="SPEC",
        check=_model_names,
    )
    reply_judge: tuple[str, ...] = option(
        (),
        "measurement",
        "Model that answers the labelling pages' questions about each TempAffect reply, beside the scorer; no part of "
        "any score",
        suite="tempaffect",
        metavar="SPEC",
        check=_model_names,
    )
    suite: tuple[SuiteChoice, ...] = option(
        ("tempaffect", "spiral"),
        "measurement",
        "Bundled suite to run; spiral-prefix is Spiral-Bench in single replies to frozen beginnings of conversations",
    )
    prompting: tuple[Literal["schema", "raw"], ...] = option(
        ("schema", "raw"),
        "measurement",
        "TempAffect prompting mode: JSON schema enforced by the endpoint, or prompt only",
        suite="tempaffect",
    )
    think_tags: Literal["separate", "fail"] = option(
        "separate",
        "measurement",
        "Reasoning in tags inside the text of a TempAffect answer: taken out of it, or a failure of the model",
        suite="tempaffect",
    )
    epochs: int = option(
        1, "measurement", "Number of answers to each TempAffect scenario", suite="tempaffect", check=_count
    )
    num_turns: int = option(
        20, "measurement", "Number of replies of the evaluated model in each conversation", suite="spiral", check=_count
    )
    convos_per_prompt: int = option(
        1, "measurement", "Number of conversations for each opening prompt", suite="spiral", check=_count
    )
    protocol: str = option(
        "",
        "measurement",
        f"Protocol for judging and scoring conversations (default: {DEFAULT_PROTOCOL}, or {PUBLIC_PROTOCOL} with"
        " --spiral-upstream)",
        suite="spiral",
        metavar="NAME",
    )
    tempaffect_scenarios: str | None = option(
        None,
        "measurement",
        "Scenario file to use instead of the 75 bundled scenarios",
        suite="tempaffect",
        metavar="FILE",
    )
    spiral_prompts: str | None = option(
        None,
        "measurement",
        "Prompt file in the public Spiral-Bench format to use instead of the bundled openings",
        suite="spiral",
        metavar="FILE",
    )
    spiral_upstream: str | None = option(
        None,
        "measurement",
        "Clone of the public Spiral-Bench repository whose prompts, persona and rubric to use, as its v1.2 does",
        suite="spiral",
        metavar="DIR",
    )
    system_prompt: str | None = option(
        None,
        "measurement",
        "File with a system prompt for the evaluated model: it is sent before each conversation and scenario",
        metavar="FILE",
    )
    seed: int = option(1, "measurement", "Seed of injection schedules and bootstrap intervals")
    concurrency: int = option(64, "session", "Maximum number of requests in flight, over all workers", check=_count)
    patience: float = option(
        600.0,
        "session",
        "Time that calls wait for an endpoint that does not respond before they fail",
        metavar="SECONDS",
        check=_seconds,
    )
    run_id: str | None = option(
        None,
        "session",
        "Id of the run; the id of an existing run resumes it (default: time and model)",
        metavar="ID",
        check=_run_id,
    )
    report_dir: str = option("reports", "session", "Directory in which run directories are created", metavar="DIR")
    trust_env: bool = option(
        False,
        "session",
        "Let base URLs from a .env file have API keys from the environment; without it they have only keys from the "
        "file",
    )
    replay: str | None = option(
        None,
        "measurement",
        "Score the outputs and conversations recorded in a run directory, report.json or Spiral-Bench result file "
        "without calling the evaluated model",
        metavar="PATH",
    )
    redo_judging: bool = option(
        False, "measurement", "With --replay: judge the recorded conversations again", suite="spiral"
    )
    retest_share: int = option(
        0,
        # Adds judgements that measure the judge; those that are scored stay the same.
        "evaluation",
        "Percentage of chunks to judge two more times, once in the same and once in another order of behaviours",
        metavar="PERCENT",
        check=_percentage,
    )
    benign_twins: Literal["short", "full", "off"] = option(
        "short",
        "measurement",
        "Conversations that start from harmless twins of twelve openings, for over-correction: of a few turns, of"
        " --num-turns, or none",
        suite="spiral",
    )
    floors: bool = option(
        False,
        # Adds conversations of stand-ins; those that are scored stay the same.
        "evaluation",
        "Also hold the conversations with two models that do nothing, once for each set of judges, and report how far "
        "a score is above theirs",
    )
    calibrate: bool = option(
        False,
        "evaluation",
        "Also have the judges label the shipped calibration turns, or those that people labelled in --labels, and "
        "report which behaviours a judge may gate",
    )
    gate: tuple[str, ...] = option(
        (),
        "evaluation",
        "Release condition on a metric, such as 'tempaffect.ubr_rate_deduped >= 0.70' or 'spiral.score >= baseline - "
        "5'; the metrics are listed at the end of this help",
        metavar="EXPR",
    )
    gate_recipe: str | None = option(
        None,
        "evaluation",
        "Use the gates of a bundled recipe, release or pull-request, beside those of --gate",
        metavar="NAME",
    )
    baseline: str | None = option(
        None,
        "evaluation",
        "Run directory, report.json or Spiral-Bench result file that gates refer to as `baseline`",
        metavar="PATH",
    )
    labels: tuple[str, ...] = option(
        (),
        "evaluation",
        "Label file of replies that exist (--run-id of a finished run, or --replay): the report then also has the "
        "numbers that they correct, which gates name as 'tempaffect.corrected.useful_bounded'",
        metavar="FILE",
    )
    gate_policy: Literal["bound", "point"] = option(
        "bound", "evaluation", "Decide gates by one-sided 95 % confidence bounds or by point estimates"
    )
    shard: str | None = option(
        None,
        "session",
        "Run every N-th item, starting with the K-th; `pytest-spiral merge` combines the N shards into one run",
        metavar="K/N",
        check=_shard,
    )
    plan: bool = option(
        False,
        "session",
        "Print the calls, tokens and estimated cost of each role and run nothing; with the --run-id of an existing "
        "run, only for the remaining calls",
    )
    no_preflight: bool = option(
        False,
        "session",
        "Do not ask each model a few questions before the first item; what a model does not accept is found out later",
    )
    max_cost: float | None = option(
        None,
        "session",
        "Stop the run before its cost can exceed this amount; resume it with a higher limit to run the rest",
        metavar="USD",
        check=_amount,
    )
    strict_items: bool = option(
        False,
        "evaluation",
        "Fail the test of each TempAffect answer that is not useful and bounded, and of each conversation with "
        "harmful advice of strength 3",
    )

    def __post_init__(self) -> None:
        # Not light: an environment that merely has the package never gets here.
        from pytest_spiral.errors import ConfigError

        for each in OPTIONS:
            value = getattr(self, each.key)
            try:
                if each.check is not None:
                    each.check(value)
            except ValueError as error:
                raise ConfigError(f"{each.alias}: {error}") from None
            if each.kind == "many":
                # What is named twice counts once.
                object.__setattr__(self, each.key, tuple(dict.fromkeys(value)))
        # What is replayed as it was judged takes the protocol of its judgements.
        if not self.protocol and not (self.replay and not self.redo_judging and not self.spiral_upstream):
            own = PREFIX_PROTOCOL if self.prefixes else DEFAULT_PROTOCOL
            object.__setattr__(self, "protocol", PUBLIC_PROTOCOL if self.spiral_upstream else own)
        if self.prefixes:
            self._check_prefixes()
        if self.spiral_upstream:
            for key in ("spiral_prompts", "system_prompt", "calibrate", "floors"):
                if getattr(self, key):
                    flag = "--" + key.replace("_", "-")
                    raise ConfigError(f"{flag}: no part of the public benchmark; leave it or --spiral-upstream out")
        if self.spiral_upstream or self.spiral_prompts:
            if self.benign_twins == "full":
                other = "--spiral-upstream" if self.spiral_upstream else "--spiral-prompts"
                raise ConfigError(f"--benign-twins full: only bundled openings have twins; leave it or {other} out")
            object.__setattr__(self, "benign_twins", "off")
        if self.gate_recipe and self.gate_policy == "point":
            raise ConfigError(
                f"--gate-policy point: the gates of --gate-recipe {self.gate_recipe} are made for bounds, and a point "
                "estimate says nothing about chance; leave one of the two out"
            )
        if self.redo_judging and not self.replay:
            raise ConfigError("--redo-judging: needs recorded conversations; name them with --replay=reports/RUN-ID")
        if self.labels and not (self.run_id or self.replay):
            raise ConfigError("--labels: labels are of a finished run; name it with --run-id ID or --replay=reports/ID")
        if self.floors and self.replay:
            raise ConfigError("--floors: in a replay nothing is held; leave it out: the report has the run's floor")
        if self.calibrate and self.replay and not self.redo_judging:
            raise ConfigError("--calibrate: a replay keeps the run's calibration; leave it out, or add --redo-judging")
        if self.system_prompt and self.replay:
            raise ConfigError("--system-prompt: what is replayed was answered without it; leave it out")

    def _check_prefixes(self) -> None:
        from pytest_spiral.errors import ConfigError

        if "spiral" in self.suite:
            raise ConfigError("--suite spiral-prefix: run it by itself; leave out --suite spiral")
        if self.spiral_upstream:
            raise ConfigError("--suite spiral-prefix: no part of the public benchmark; leave out --spiral-upstream")
        # A prefix has one reply, to which no simulated user answers, and benign prefixes of its own.
        object.__setattr__(self, "num_turns", 1)
        object.__setattr__(self, "benign_twins", "off")

    @property
    def prefixes(self) -> bool:
        """Whether Spiral-Bench consists of single replies to prefixes."""
        return "spiral-prefix" in self.suite

    @property
    def suites(self) -> tuple[SuiteName, ...]:
        """The suites by what runs and scores them."""
        return tuple("tempaffect" if name == "tempaffect" else "spiral" for name in self.suite)

    @property
    def shard_number(self) -> tuple[int, int] | None:
        """Number and count of shards, None for a whole run."""
        if self.shard is None:
            return None
        k, _, n = self.shard.partition("/")
        return int(k), int(n)


def _options() -> tuple[Option, ...]:
    """The declared options, with kind and choices as the types of their fields say."""
    kinds: dict[type, OptionKind] = {bool: "flag", int: "int", float: "float"}
    options = []
    for each in fields(Settings):
        hint: Any = each.type
        kind: OptionKind = next((name for type_, name in kinds.items() if type_ in (hint, *get_args(hint))), "text")
        if get_origin(hint) is tuple:
            kind, hint = "many", get_args(hint)[0]
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        declared: Option = each.metadata["option"]
        metavar = declared.metavar or ("N" if kind == "int" else None)
        options.append(declared._replace(key=each.name, kind=kind, choices=choices, metavar=metavar))
    return tuple(options)


OPTIONS = _options()
"""Every option, in the order of the help."""
