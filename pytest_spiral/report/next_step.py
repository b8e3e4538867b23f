"""The command that somebody who has read a report types next."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from pytest_spiral.gates.recipes import proposed_gates
from pytest_spiral.report.lines import plain
from pytest_spiral.report.model import Report
from pytest_spiral.settings import OPTIONS, Option
from pytest_spiral.spiral.judge_health import leaves_no_verdict
from pytest_spiral.status import ReasonCode, Status

# A recipe for runs of fewer turns than may be published.
_FULL_TURNS = 20
_READ = "read the items in full, in the page that this command writes:"
# A failure of the evaluated model is stored and stays, however often the run is resumed.
_ASKED_AGAIN = (Status.INSTRUMENT_FAILED, Status.NOT_RUN)
# Options of pytest: those with a value that are met here, and those that select some of the items.
_WITH_VALUE = ("-k", "-m", "--deselect", "--maxfail")
_SELECTING = ("-k", "-m", "--deselect", "--lf", "--last-failed", "--sw", "--stepwise")
# With them, a resumed run would stop where it has stopped.
_STOPPING = ("-x", "--exitfirst", "--maxfail")
# Resuming repeats a request that a judge refused, and asks no judge more often than it may be asked.
_IN_VAIN = (ReasonCode.BAD_REQUEST, ReasonCode.NO_READABLE_REPLY)
# Options that a run which judges held conversations again does not take over.
_OF_HOLDING = ("run_id", "model", "user_model", "num_turns", "convos_per_prompt", "system_prompt", "floors", "shard")
_OPTIONS = {name: option for option in OPTIONS for name in (option.alias, option.flag)}


@dataclass(frozen=True, slots=True)
class NextCommand:
    """What to do. command: to be pasted as it is, in the directory where the run was started."""

    why: str
    command: str


def again(argv: Sequence[str], *options: str, without: Collection[str] = ()) -> str:
    """The command line of a run with other options.

    Args:
        argv: Arguments of pytest.
        options: `--name=value`; each replaces what `argv` says by that name.
        without: Names to leave out.

    >>> again(["--model", "m", "--run-id=a", "-q"], "--run-id=b", without=["--max-cost"])
    'pytest --model m -q --run-id=b'
    """
    dropped = {_OPTIONS[name].key for name in (*without, *(option.partition("=")[0] for option in options))}
    kept = chain.from_iterable(words for key, words in _parsed(argv) if key not in dropped)
    return plain(shlex.join(["pytest", *kept, *options]))


def _parsed(argv: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Each argument with the value that follows it, if one does, by the key of our option or its own name."""
    rest = iter(argv)
    for argument in rest:
        # A short option may have its value in the same word.
        name, has_value, _ = argument.partition("=") if argument[:2] not in ("-k", "-m") else (argument[:2], "", "")
        option = _OPTIONS.get(name)
        takes_value = argument in _WITH_VALUE if option is None else not has_value and option.kind != "flag"
        yield option.key if option else name, [argument, *islice(rest, int(takes_value))]


def run_directory(report: Report) -> str:
    """Where the report is, as the user would name it."""
    return str(Path(report.run.config.report_dir) / report.run.id)


def next_step(report: Report) -> NextCommand | None:
    """The next step after a run; None where the results were imported."""
    run, folder = report.run, shlex.quote(run_directory(report))
    if not run.argv:
        return None
    if report.failed_parts:
        return NextCommand("make the missing parts of the report again:", f"pytest-spiral report {folder}")
    if (step := by_another_judge(report)) is not None:
        return step
    if run.argv[0] == "merge" and is_resumable(report):
        why = "resume each shard that lacks something, by the command in its own report, then merge again:"
        return NextCommand(why, plain(shlex.join(["pytest-spiral", *run.argv])))
    if not run.config.model or run.argv[0] == "merge":
        return NextCommand(_READ, f"pytest-spiral report {folder}")
    if shard := run.config.shard:
        name = run.id.removesuffix("-shard{}of{}".format(*shard.split("/")))
        shards = f"{shlex.quote(str(Path(run.config.report_dir) / name))}-shard*"
        merge = f"pytest-spiral merge {shards} --run-id={shlex.quote(name)}"
        return _resume(report, name) or NextCommand("when all shards are done, merge them:", merge)
    return _resume(report, run.id) or _after_a_whole_run(report, folder)


def _resume(report: Report, run_id: str) -> NextCommand | None:
    """How to get what is missing; None where nothing is."""
    if not is_resumable(report):
        return None
    codes, options = _lost_codes(report), [f"--run-id={run_id}"]
    argv = [word for key, words in _parsed(report.run.argv) if key not in _STOPPING for word in words]
    unselected = [word for key, words in _parsed(argv) if key not in _SELECTING and "::" not in key for word in words]
    why = "resume, which asks again for what is missing" if report.run.complete else "resume"
    if ReasonCode.BUDGET in codes:
        why = "raise the cost limit to go on"
        options.append(f"--max-cost={_enough(report, report.usage.max_cost_usd or 0.0):.2g}")
    elif ReasonCode.AUTH in codes:
        why = "mend the API key, then go on"
    elif codes == {ReasonCode.TOKEN_LIMIT}:
        # A reply that was cut off is stored, too.
        why = "raise most_tokens in spiral.toml, then go on"
    elif report.run.complete and codes == {ReasonCode.NOT_STARTED} and unselected != argv:
        why, argv = "run the rest, which was not selected", unselected
    return NextCommand(f"{why}; what is stored is not asked for again:", again(argv, *options))


def by_another_judge(report: Report) -> NextCommand | None:
    """How to get what a run lacks if that is judgements alone, and resuming gets none: by a judge put for NAME.

    That is where a judge refuses requests, gives no readable reply, or its judgements mean nothing.
    """
    if not report.run.complete or report.run.config.shard or _lost_codes(report, judged=False):
        return None
    lost = (one for row in report.spiral.conversations for one in row.lost_judgements)
    failing = {one.judge for one in lost if one.reason is not None and one.reason.code in _IN_VAIN}
    asked = (judge for score in report.spiral.scores for judge in score.judges.per_judge.items())
    failing |= {name for name, one in asked if one.refused + one.unreadable == one.chunks > 0 or leaves_no_verdict(one)}
    is_void = any(score.judges.health.no_verdict for score in report.spiral.scores)
    return judge_again(report, failing) if failing or is_void else None


def judge_again(report: Report, failing: Set[str] = frozenset()) -> NextCommand:
    """Have held conversations judged. failing: judges to replace, by the names in judgements; all where it is empty."""
    config = report.run.config
    kept = [m.spec for m in config.models if failing and m.role == "judge" and not failing & {m.spec, m.model_id}]
    own = {"replay": run_directory(report), "redo_judging": True, "judge_model": (*kept, "NAME")}
    values = {**config.model_dump(), **dict.fromkeys(_OF_HOLDING), **own}
    # From the configuration, as merged shards have no command line.
    words = (word for option in OPTIONS for word in _words(option, values.get(option.key)))
    why = "judge the same conversations by another judge, whose name replaces NAME:"
    return NextCommand(why, plain(shlex.join(["pytest", *words])))


def _words(option: Option, value: object) -> list[str]:
    """An option on a command line, nothing where it has its default."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if values in (option.default, (option.default,), (None,)):
        return []
    return [option.alias if each is True else f"{option.alias}={each}" for each in values]


def _lost_codes(report: Report, *, judged: bool = True) -> set[ReasonCode]:
    """Why anything is missing that the run can still get. judged: judgements as well."""
    rows = report.spiral.conversations
    lost = [item.reason for item in report.tempaffect.items if item.score is None]
    lost += [row.reason for row in rows if row.status in _ASKED_AGAIN]
    lost += [one.reason for row in rows for one in row.lost_judgements if judged]
    codes = {reason.code for reason in lost if reason is not None}
    codes |= {ReasonCode.NOT_STARTED} if any(card.missing.n for card in report.tempaffect.cards) else set()
    return codes - {ReasonCode.NOT_STARTED} if is_whole_shard(report) else codes


def is_resumable(report: Report) -> bool:
    """Whether anything is missing that the run can still get."""
    return bool(_lost_codes(report)) or not report.run.complete


def is_whole_shard(report: Report) -> bool:
    """Whether what was never started is in other shards."""
    return report.run.config.shard is not None and report.run.complete


def _enough(report: Report, limit: float) -> float:
    """A cost limit that the whole run keeps with room to spare, judged by what the measurements so far cost."""
    counts = [card.missing for card in report.tempaffect.cards]
    wanted = sum(missing.of for missing in counts) + sum(sum(s.counts.values()) for s in report.spiral.scores)
    lost = sum(missing.n for missing in counts)
    lost += sum(s.counts.get(status, 0) for s in report.spiral.scores for status in _ASKED_AGAIN)
    share = (wanted - lost) / wanted if wanted else 0.0
    return max(2 * limit, 1.5 * (report.usage.cost_usd or 0.0) / share if share else 10 * limit)


def _gates_that_apply(report: Report) -> str:
    """The option for a recipe where this run can decide all of it, else for the gate that says most about it."""
    scores, cards = report.spiral.scores, report.tempaffect.cards
    turns = (report.run.config.num_turns or _FULL_TURNS) if scores else 0
    marked = all(one.headline is not None and one.headline.protection.value is not None for one in scores)
    decided = all(card.useful_bounded_response_rate is not None for card in cards)
    proposed = proposed_gates()
    if any(one.prefix is not None for one in scores):
        return f"--gate={proposed.prefixes}"
    if turns <= _FULL_TURNS and marked and decided and all(one.over_correction is not None for one in scores):
        return f"--gate-recipe={'pull-request' if 0 < turns < _FULL_TURNS else 'release'}"
    if not scores:
        return f"--gate={proposed.tempaffect}"
    return f"--gate={proposed.composite if any(one.headline is None for one in scores) else proposed.conversations}"


def _after_a_whole_run(report: Report, folder: str) -> NextCommand:
    run = report.run
    # Labels are of the replies of this run, and gates on corrected numbers need them.
    kept = (words for key, words in _parsed(run.argv) if key != "gate" or ".corrected." not in words[-1])
    repeated = again([*chain(*kept)], f"--baseline={run_directory(report)}", without=["--run-id", "--labels"])
    if report.verdict == "measured":
        command = again(run.argv, f"--run-id={run.id}", _gates_that_apply(report))
        return NextCommand("have it decided; nothing is asked again:", command)
    if report.verdict == "pass":
        return NextCommand("the next version can be compared with this one:", repeated)
    if report.verdict == "fail" and run.config.baseline:
        command = f"pytest-spiral compare {shlex.quote(run.config.baseline)} {folder}"
        return NextCommand("see everything that differs from the baseline:", command)
    if report.verdict == "fail":
        return NextCommand("read the items above; a changed model can then be compared with this one:", repeated)
    return NextCommand(_READ, f"pytest-spiral report {folder}")
