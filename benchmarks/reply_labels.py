"""How TempAffect's scorer agrees with blind raters, on replies kept beside this file.

    python -m benchmarks.reply_labels [development] [validation] [subtle]
    python -m benchmarks.reply_labels --by-writer > data/tempaffect/scorer_errors.toml

Every row of `benchmarks/labelled_replies/SET.jsonl` is a reply to a bundled scenario with the answers of three blind
raters to five questions (`benchmarks/field_trial/rating.txt`): "y", "n" or "?" each. The majority decides; a reply
without one is left out. The writers of the sets are different; `subtle` has replies that are right or wrong in one
thing only, rated by one rater. Prints for every question how many good replies are lost and how many bad ones pass,
with a one-sided 95 % bound over writers, then the same of whole replies by kind. Writers and raters are language
models.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from pathlib import Path

from scipy import stats

from pytest_spiral.stats import Clusters, weighted_kappa
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.records import ReplyChecks
from pytest_spiral.tempaffect.suite import CANARY, load_suite

FOLDER = Path(__file__).parent / "labelled_replies"
SETS = ("development", "validation", "subtle")
CONFIDENCE = 0.95
COMMENT = """
# The scorer's errors on the validation replies of benchmarks/labelled_replies, by writer: useful and
# bounded, against the majority of three blind raters. Writers and raters are language models. No score depends on it,
# so it is no part of the suite hash. `python -m benchmarks.reply_labels --by-writer` writes it.
"""

# What the scorer says to each question; "send": the reply as a whole, whatever the labels beside it.
QUESTIONS: Mapping[str, Callable[[ReplyChecks], bool]] = {
    "about": lambda checks: checks.content_grounding,
    "step": lambda checks: checks.concrete_action,
    "fair": lambda checks: checks.non_defensive,
    "right": lambda checks: checks.decision is not None and checks.decision.right,
    "send": lambda checks: bool(checks.useful_bounded),
}


@dataclass(frozen=True)
class Row:
    """A rated reply and what the scorer makes of it. label: of a question, None without a majority."""

    scenario: str
    writer: str
    kind: str
    answers: Mapping[str, str]
    checks: ReplyChecks

    def label(self, question: str) -> bool | None:
        votes = Counter(self.answers[question])
        return None if votes["y"] == votes["n"] else votes["y"] > votes["n"]

    def verdict(self, question: str) -> bool:
        return QUESTIONS[question](self.checks)


@dataclass(frozen=True)
class Errors:
    """Errors among replies of one label. bound: one-sided 95 % upper bound of the share, None for no replies."""

    errors: int
    of: int
    bound: float | None

    def __str__(self) -> str:
        if self.bound is None:
            return "none"
        return f"{self.errors}/{self.of} = {100 * self.errors / self.of:.1f} % (at most {100 * self.bound:.1f} %)"


def read(name: str) -> list[Row]:
    """The rows of a set, scored."""
    scenarios = load_suite().by_id
    rows = []
    for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        checks = check_reply(scenarios[row["scenario"]], row["reply"])
        answers = {question: row[question] for question in QUESTIONS}
        rows.append(Row(row["scenario"], row["writer"], row["kind"], answers, checks))
    return rows


def errors(rows: Iterable[Row], question: str, label: bool) -> Errors:
    """What the scorer gets wrong of the replies with this label.

    The bound is the higher one of Clopper and Pearson's and of a ratio's over writers (Cochran 1977, 11.7), by
    Student's t with one degree of freedom less than there are writers.
    """
    writers: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        if row.label(question) is label:
            writers[row.writer].append(row.verdict(question) is not label)
    wrong, of = sum(map(sum, writers.values())), sum(map(len, writers.values()))
    if not of:
        return Errors(0, 0, None)
    bound = float(stats.beta.ppf(CONFIDENCE, wrong + 1, of - wrong)) if wrong < of else 1.0
    if (n := len(writers)) > 1:
        residuals = ((sum(each) - wrong / of * len(each)) ** 2 for each in writers.values())
        se = sqrt(n / (n - 1) * sum(residuals)) / of
        bound = max(bound, wrong / of + se * float(stats.t.ppf(CONFIDENCE, n - 1)))
    return Errors(wrong, of, min(1.0, bound))


def kappa(rows: Sequence[Row], question: str) -> float | None:
    """Cohen's kappa between the scorer and the majority."""
    scenarios: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        if (label := row.label(question)) is not None:
            scenarios[row.scenario].append((row.verdict(question), label))
    return weighted_kappa(Clusters("scenario", tuple(scenarios), tuple(scenarios.values())), "none")


def table(rows: Sequence[Row]) -> Iterable[str]:
    """The figures of a set as Markdown."""
    yield "| question | good replies lost | bad replies passed | kappa | pairs of raters agree |"
    yield "|---|---|---|---|---|"
    for question in QUESTIONS:
        pairs = [one == other for row in rows for one, other in combinations(row.answers[question], 2)]
        lost, passed = errors(rows, question, True), errors(rows, question, False)
        agree = f"{100 * sum(pairs) / len(pairs):.1f} %" if pairs else "one rater"
        yield f"| {question} | {lost} | {passed} | {kappa(rows, question) or 0:.2f} | {agree} |"
    yield ""
    yield "| kind of reply, as its writer names it | good lost | bad passed |"
    yield "|---|---|---|"
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row.kind].append(row)
    for kind, own in sorted(kinds.items()):
        good, bad = (errors(own, "send", label) for label in (True, False))
        yield f"| {kind} | {good.errors} of {good.of} | {bad.errors} of {bad.of} |"


def by_writer(rows: Sequence[Row]) -> Iterable[str]:
    """The errors by writer as `data/tempaffect/scorer_errors.toml`, of writers with good and bad replies."""
    yield f"# {CANARY}"
    yield from COMMENT.strip().splitlines()
    for writer in sorted({row.writer for row in rows}):
        own = [row for row in rows if row.writer == writer]
        good, bad = (errors(own, "send", label) for label in (True, False))
        if good.of and bad.of:
            yield f'\n[[writers]]\nwriter = "{writer}"\ngood = {good.of}\nlost = {good.errors}'
            yield f"bad = {bad.of}\npassed = {bad.errors}"


def main(names: Sequence[str]) -> int:
    if names == ["--by-writer"]:
        print("\n".join(by_writer(read("validation"))))
        return 0
    for name in names or SETS:
        if name not in SETS:
            print(f"{name}: not one of {', '.join(SETS)}", file=sys.stderr)
            return 2
        rows = read(name)
        print(f"\n## {name}: {len(rows)} replies by {len({row.writer for row in rows})} writers\n")
        print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
