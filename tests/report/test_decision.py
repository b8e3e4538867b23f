"""What somebody who has to decide reads: verdict in words, what would decide, causes, the next command."""

from __future__ import annotations

import html
import shlex
from itertools import cycle
from typing import Any

import pytest

from pytest_spiral.report.decision import decision_of
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import GateRow, Report
from pytest_spiral.report.next_step import again
from pytest_spiral.report.terminal import decision_lines, summary_lines
from pytest_spiral.report.what_decides import what_decides
from tests.html.reports import demo, demo_document, typed

ARGV = ["--model=m", "--run-id=demo"]


def changed(**run: Any) -> Report:
    """The demonstration with other values of its `run`."""
    document = demo_document()
    document["run"] |= {"argv": ARGV} | run
    document["run"]["config"] |= {"model": ["m"]}
    return typed(document)


def shown(report: Report) -> str:
    return "\n".join(line for line, _ in decision_lines(report))


def lost(report: Report, code: str, count: int, detail: str = "HTTP 401") -> Report:
    """A report in which so many items are missing, each with the same reason but for a number and attempts."""
    document = report.model_dump(mode="json")
    row = next(row for row in document["tempaffect"]["items"] if row["score"] is not None)
    empty = dict.fromkeys(("score", "useful_bounded", "recoverable", "answer", "checks", "output"))
    missing: dict[str, Any] = {"status": "instrument_failed", "points": {}, **empty}
    document["tempaffect"]["items"] = [
        {**row, **missing, "epoch": n, "reason": {"code": code, "detail": f"{detail}{tried} after {n} s"}}
        for n, tried in zip(range(count), cycle(("", " after 2 attempts")), strict=False)
    ]
    document["verdict"] = "incomplete"
    document["spiral"] |= {"conversations": [], "scores": [], "weights": None}
    document["tempaffect"]["cards"] = []
    return typed(document)


def test_equal_errors_are_one_line_with_a_count() -> None:
    """75 that differ in numbers and attempts only have one cause; in the terminal they take at most five lines."""
    report = lost(changed(), "auth", 75)
    decision = decision_of(report)

    assert [(cause.count, cause.what) for cause in decision.causes] == [(75, "items")]
    lines = shown(report).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("missing: "))
    last = next(number for number, line in enumerate(lines) if line.startswith("next: "))
    assert 1 <= last - first <= 5


def test_what_is_missing_of_twins_is_counted_by_itself() -> None:
    """The score and its own counts leave them out, so the causes would not add up."""
    document = failed("instrument_failed", "empty_reply").model_dump(mode="json")
    rows = [row for row in document["spiral"]["conversations"] if row["status"] != "measured"]
    rows[0]["twin_of"] = "bt-01"
    causes = decision_of(typed(document)).causes

    assert [(one.count, one.what) for one in causes] == [
        (len(rows) - 1, "conversations"),
        (1, "benign-twin conversation"),
    ]


def test_a_reason_without_a_detail_is_told_in_words() -> None:
    """As of conversations after Ctrl-C."""
    document = failed("not_run", "not_started").model_dump(mode="json")
    for row in document["spiral"]["conversations"]:
        row["reason"] = row["reason"] and row["reason"] | {"detail": ""}
    causes = decision_of(typed(document)).causes

    assert [one.text for one in causes] == ["Not selected, or the run ended before it had a result."]


def test_one_is_not_named_in_the_plural() -> None:
    """Where one item has a reason of its own, as "missing: 1 item"."""
    (cause,) = decision_of(lost(changed(), "auth", 1)).causes

    assert (cause.count, cause.what) == (1, "item")


@pytest.mark.parametrize(
    ("code", "why", "options"),
    [
        ("auth", "mend the API key", ["--run-id=demo"]),
        ("timeout", "resume", ["--run-id=demo"]),
        ("token_limit", "raise most_tokens in spiral.toml", ["--run-id=demo"]),
        ("budget", "raise the cost limit", ["--run-id=demo", "--max-cost=30"]),
    ],
)
def test_the_next_command_resumes(code: str, why: str, options: list[str]) -> None:
    """The last line is the command line of the run with its id, and with more money where that was used up."""
    report = lost(changed(argv=["--model=m", "--max-cost", "3"]), code, 4)
    report = report.model_copy(update={"usage": report.usage.model_copy(update={"max_cost_usd": 3.0})})
    step = decision_of(report).next

    assert step is not None
    assert step.why.startswith(why)
    kept = ["--model=m"] if code == "budget" else ["--model=m", "--max-cost", "3"]
    assert shlex.split(step.command) == ["pytest", *kept, *options]
    assert shown(report).splitlines()[-1] == f"  {step.command}"


def test_an_interrupted_run_is_resumed() -> None:
    """Even where every started item was measured."""
    step = decision_of(changed(complete=False)).next

    assert step is not None
    assert step.command == "pytest --model=m --run-id=demo"


def failed(status: str, code: str) -> Report:
    """The demonstration in which all conversations that were not measured have this status."""
    document = changed().model_dump(mode="json")
    for row in document["spiral"]["conversations"]:
        if row["status"] != "measured":
            row |= {"status": status, "reason": {"code": code, "detail": "turn 1: the reply is empty"}}
    for score in document["spiral"]["scores"]:
        counts = score["counts"]
        broken = sum(counts.values()) - counts["measured"]
        score["counts"] = {**dict.fromkeys(counts, 0), "measured": counts["measured"], status: broken}
    document |= {"verdict": "incomplete"}
    document["usage"] |= {"max_cost_usd": 1.0, "cost_usd": 3.0}
    return typed(document)


def test_what_the_model_failed_is_a_cause_and_is_not_asked_again() -> None:
    """A conversation without a reply is missing, the decision says why, and resuming, which would ask for nothing new,
    is not proposed."""
    decision = decision_of(failed("model_failed", "empty_reply"))
    other = decision_of(failed("instrument_failed", "timeout"))

    assert [(cause.what, cause.text[:11]) for cause in decision.causes] == [("conversations", "empty_reply")]
    assert 'A test that "passed" was answered and scored, or broken off by the model; ' in decision.tests
    assert "broken off" not in other.tests
    assert decision.next is not None
    assert decision.next.command.startswith("pytest-spiral report")
    assert other.next is not None
    assert other.next.why.startswith("resume")


def test_what_is_missing_for_good_is_not_to_be_got() -> None:
    """A gate that depends on what is missing refers to the next command only where that gets something."""
    row = gate(reason={"code": "missing_decides", "detail": ""})

    assert what_decides(failed("instrument_failed", "timeout"), row).endswith("get it by the command below")
    assert what_decides(failed("model_failed", "empty_reply"), row).endswith("resuming the run gets none of it")


def test_what_the_model_failed_was_paid_for() -> None:
    """A limit on the cost has to hold what is missing, which a model's failure is not."""
    budget = {"code": "budget", "detail": ""}
    limits = []
    for status in ("model_failed", "not_run"):
        document = failed(status, "empty_reply").model_dump(mode="json")
        document["tempaffect"]["cards"][0]["missing"] |= {"n": 1}
        item = document["tempaffect"]["items"][0]
        empty = dict.fromkeys(("score", "useful_bounded", "recoverable", "answer", "checks", "output"))
        document["tempaffect"]["items"][0] = {**item, **empty, "points": {}, "status": "not_run", "reason": budget}
        step = decision_of(typed(document)).next
        assert step is not None
        limits.append(float(step.command.rpartition("=")[2]))

    assert limits[0] < limits[1]


@pytest.mark.parametrize("words", ["-k ps", "-kps", "-mspiral", "--deselect=x", "--lf", "--stepwise"])
def test_a_selection_is_left_out_to_run_the_rest(words: str) -> None:
    """With it, the command would select the same again."""
    selected = changed(argv=["--model=m", *words.split(), "-q"]).model_dump(mode="json")
    for row in selected["spiral"]["conversations"]:
        if row["status"] != "measured":
            row |= {"status": "not_run", "reason": {"code": "not_started", "detail": ""}}
    step = decision_of(typed(selected)).next

    assert step is not None
    assert step.why.startswith("run the rest")
    assert step.command == "pytest --model=m -q --run-id=demo"


@pytest.mark.parametrize("words", ["-x", "--exitfirst", "--maxfail=2", "--maxfail 2"])
def test_a_resumed_run_does_not_stop_where_it_stopped(words: str) -> None:
    """An item that fails again, or that --strict-items fails by its stored answer, would end it in the same place."""
    step = decision_of(changed(complete=False, argv=["--model=m", *words.split(), "-q"])).next

    assert step is not None
    assert step.command == "pytest --model=m -q --run-id=demo"


def test_options_are_replaced_by_either_name() -> None:
    """A second value of a repeatable option would be added; names of other options that begin alike stay."""
    argv = ["--spiral-gate", "a.b >= 1", "--gate=c.d >= 2", "--gate-policy=point", "--redo-judging", "x.py"]

    assert again(argv, "--gate=e.f <= 3", "--redo-judging") == (
        "pytest --gate-policy=point x.py '--gate=e.f <= 3' --redo-judging"
    )


def test_imported_results_have_no_command() -> None:
    """Nothing is known of how they were made."""
    assert decision_of(changed(argv=[])).next is None


@pytest.mark.parametrize("missing", ["nothing", "a conversation", "another shard"])
def test_useless_judges_are_replaced_once_all_is_held(missing: str) -> None:
    """Where anything else is missing, the run is resumed first, and shards are merged first."""
    document = changed(argv=[*ARGV, "-k", "ac"]).model_dump(mode="json")
    rows = document["spiral"]["conversations"]
    broken = {"status": "instrument_failed", "reason": {"code": "timeout", "detail": ""}}
    rows[:] = [row for row in rows if row["status"] == "measured"]
    rows[0] |= broken if missing == "a conversation" else {}
    document["run"]["config"] |= {"shard": "1/2" if missing == "another shard" else None, "gate": ["spiral.risk <= 20"]}
    document["spiral"]["scores"][0]["judges"]["health"]["no_verdict"] = ["the judges of the shards differ"]
    step = decision_of(typed(document)).next

    assert step is not None
    if missing == "nothing":
        own = ["--judge-model=NAME", "--replay=reports/demo", "--redo-judging", "--gate=spiral.risk <= 20"]
        assert [word for word in shlex.split(step.command) if word in own] == own
        assert "-k" not in step.command
    else:
        assert "NAME" not in step.command


def gate(**values: Any) -> GateRow:
    """An open gate on a share of 75 scenarios: .80, at least .72, at most .87."""
    row = demo().gates[0].model_dump(mode="json")
    open_ = {"code": "threshold_between", "detail": ""}
    measured = {"value": 0.8, "ci_low": 0.72, "ci_high": 0.87, "n": 75, "unit": "scenario", "threshold": 0.7}
    changes = {"outcome": "inconclusive", "reason": open_, "at_least": True, "baseline": None, "metric": "tempaffect.x"}
    return GateRow.model_validate({**row, **measured, **changes, "policy": "bound", **values})


@pytest.mark.parametrize(
    ("threshold", "says"),
    [
        (0.74, "305 scenarios instead of 75 let it pass in 4 of 5 runs"),
        (0.86, "234 scenarios instead of 75 let it fail in 4 of 5 runs"),
        (0.79, "nothing in reach would decide it: it takes more than 10 times the scenarios"),
        (0.8, "nothing in reach would decide it: the value is the threshold"),
    ],
)
def test_an_open_gate_says_what_would_decide_it(threshold: float, says: str) -> None:
    """By the distance to the bound that must move: its width falls with the root of the number of prompts.

    For a pass (.80 - .72) * 1.512 = .121 must become .06, which takes 4.06 times as many.
    """
    text = what_decides(demo(), gate(threshold=threshold))

    assert says in text
    assert "these data would pass a threshold >= 0.72 and fail one beyond >= 0.87" in text


@pytest.mark.parametrize(("outcome", "place"), [("pass", 1), ("fail", 0)])
def test_a_count_tells_of_a_pass_only_where_nothing_has_bounds(outcome: str, place: int) -> None:
    """Without bounds it says nothing of how sure a pass is; a failure is explained by the first gate that failed."""
    rows = [gate(outcome=outcome, policy="point"), gate(outcome=outcome)]
    document = demo_document()
    document["verdict"] = outcome
    document["gates"] = [row.model_dump(mode="json") for row in rows]

    assert decision_of(typed(document)).decisive == place
    document["gates"] = document["gates"][:1]
    assert decision_of(typed(document)).decisive == 0


def test_a_decided_gate_needs_nothing() -> None:
    """Only open gates have advice; where a judge is the reason, no number of prompts helps."""
    assert what_decides(demo(), gate(outcome="pass")) == ""
    below = gate(reason={"code": "judge_below_bar", "detail": ""})
    assert what_decides(demo(), below) == "no number of prompts decides it: name a judge that is above the bar"


def test_the_rest_of_the_cost_is_named() -> None:
    """In proportion to the prompts, where the cost of the run is known."""
    report = demo()
    report = report.model_copy(update={"usage": report.usage.model_copy(update={"cost_usd": 2.0})})

    assert "(about 8.1 USD instead of 2)" in what_decides(report, gate(threshold=0.74))


def test_every_form_says_the_same_in_the_same_order() -> None:
    """Verdict, what passed means, gates with what is missing, worst items, the next command, the pressured rate."""
    document = changed().model_dump(mode="json")
    document["gates"][0] |= {"worst_case": "fail", "best_case": "inconclusive"}
    card = document["tempaffect"]["cards"][0]
    document["tempaffect"]["cards"][0] = card | {"useful_bounded_range": {"low": 0.6, "high": 0.7, "writers": 10}}
    report = typed(document)
    decision = decision_of(report)
    missing = "with what is missing: fail at worst, inconclusive at best, so what is missing cannot let it pass"
    numbers = " ".join(line for line, _ in summary_lines(report, "reports/demo"))
    between = "with the scorer's own errors, useful and bounded lies between 0.60 and 0.70 over 10 writers"
    terminal = " ".join(shown(report).split())
    summary = summary_markdown(report).replace("\\", "")

    assert decision.next is not None
    assert missing in decision.gates[0].why
    assert "  raw without a valid reply: leading_text 9" in numbers
    for text, marks in (
        (
            terminal,
            [
                decision.words,
                decision.tests,
                f"gate {decision.gates[0].row.outcome.upper()} ",
                missing,
                "worst items",
                decision.worst[0].where,
                decision.next.command,
            ],
        ),
        (
            summary,
            [
                "Do not ship",
                decision.tests,
                "| Gate | Model | Mode | Value (one-sided 95 % bounds) |",
                missing,
                "### Worst items",
                "### Next",
                html.escape(decision.next.command, quote=False),
                "### TempAffect 1",
                "Pressured: boundary held",
                ", 0.60 to 0.70 with the scorer's errors",
                between,
            ],
        ),
        (" ".join(numbers.split()), ["useful and bounded", "pressured: boundary held", between]),
    ):
        places = [text.index(mark) for mark in marks]
        assert places == sorted(places)


def test_long_replies_end_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """And every form says where the rest is."""
    report = changed()
    whole = decision_of(report).worst[0]
    assert not whole.is_cut
    assert "in full" not in shown(report)

    monkeypatch.setattr("pytest_spiral.report.worst._QUOTE_CHARS", len(whole.quote) - 1)
    worst = decision_of(report).worst[0]

    assert worst.is_cut
    assert whole.quote.startswith(worst.quote.removesuffix(" \u2026"))
    assert "  in full: report.html in reports/demo" in shown(report).splitlines()
    assert f"\u2026 [in full](report.html#{worst.link})" in summary_markdown(report)
    assert "\u2026 (in full: report.html)" in summary_markdown(report, None)


@pytest.mark.parametrize("argv", [[], ["merge", "a"]])
def test_passed_needs_no_word_elsewhere(argv: list[str]) -> None:
    """Where no tests ran."""
    assert decision_of(changed(argv=argv)).tests == ""


def test_a_failed_item_may_stand_beside_a_pass() -> None:
    """With --strict-items the exit code is not the verdict's."""
    tests = decision_of(changed(argv=["--model=m", "--strict-items"])).tests

    assert tests == "With --strict-items the run exits with 1 where a test has failed, whatever the gates say."


def test_every_behaviour_that_counts_is_shown() -> None:
    """By the report's own names, so that a new rubric needs no list: those of one value in one line."""
    document = demo_document()
    for score in document["spiral"]["scores"]:
        metrics = score["metrics"]
        for row in metrics.values():
            row |= {"mean": 0.0, "ci_low": 0.0, "ci_high": 0.25} if row["kind"] == "behaviour" else {}
        metrics["new_habit"] = metrics["harmful_advice"] | {"mean": 4.5, "ci_low": 4.0, "ci_high": 5.0}
        metrics["newer_habit"] = metrics["harmful_advice"] | {"mean": None, "ci_low": None, "ci_high": None}
        weighted = [name for name, row in metrics.items() if row["kind"] == "behaviour" and row["weight"]]
    text = " ".join(" ".join(line for line, _ in summary_lines(typed(document), "reports/demo")).split())

    none = ", ".join(name.replace("_", " ") for name in weighted if not name.startswith("new"))
    assert text.count(f"0.00 [0.00, 0.25]: {none}") == len(document["spiral"]["scores"])
    assert "new habit 4.50 [4.00, 5.00]" in text
    assert "newer habit not measured" in text
    assert "mystic register" not in text


def test_a_score_without_an_interval_is_measured() -> None:
    """As of a single prompt: every form shows the number."""
    document = demo_document()
    for score in document["spiral"]["scores"]:
        score |= {"score": 61.25, "ci_low": None, "ci_high": None}
    report = typed(document)

    assert "| 61.2 (no interval) |" in summary_markdown(report)
    assert any(line.split() == ["score", "(0-100)", "61.25"] for line, _ in summary_lines(report, "reports/demo"))


def test_the_bound_of_the_worst_is_not_rounded_onto_a_threshold() -> None:
    """Of 28 conversations without one up to 10.1 % may have one: more than the 10 % of a gate."""
    document = demo_document()
    for score in document["spiral"]["scores"]:
        score["headline"]["worst"] |= {"ci_high": 0.10147}

    text = " ".join(" ".join(line for line, _ in summary_lines(typed(document), "reports/demo")).split())
    assert "at most 10.1 % of all" in text
