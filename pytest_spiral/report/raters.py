"""What people's labels correct, and what judge models say of TempAffect replies, for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from shlex import quote

from pytest_spiral.report.lines import Line, between, plain, wrapped
from pytest_spiral.report.model.corrected import CorrectedFigure, Corrections, LabelSource
from pytest_spiral.report.model.reply_judges import Coefficient, ReplyJudge, ReplyJudges
from pytest_spiral.tempaffect.records import MODES

CORRECTED_NAMES = (
    *("Model", "Number", "By the scorer or the judges"),
    *("By the labels (95 % interval)", "Labels with, without"),
)
AGREEMENT_NAMES = ("Raters", "Question", "Replies", "They differ on", "Kappa (95 % interval)", "AC1 (95 % interval)")
DISAGREEMENT_NAMES = ("Item", "Question", "Scorer", "Judges")
_MOST = 5


def corrected_lines(corrections: Corrections) -> Iterator[Line]:
    """The section in a terminal: whose labels, then every number as it was measured and as it is corrected."""
    for source in corrections.sources:
        yield from wrapped(f"{source.suite}: {source_text(source)}", "plain")
        own = (row for row in corrections.figures if row.suite == source.suite)
        for who, rows in groupby(own, key=who_text):
            yield f"  {plain(who)}"[:80], "plain"
            yield f"    {'':<32}{'measured':>10}  {'corrected':<20}{'labels':>8}", "dim"
            for row in rows:
                yield from _row(row)


def _row(row: CorrectedFigure) -> Iterator[Line]:
    value = "refused" if row.refused else between(row.value, row.low, row.high)
    yield f"    {row.metric:<32}{between(row.raw, None, None):>10}  {value:<20}{row.labels:>8}", "plain"
    if row.refused:
        yield from wrapped(f"      {row.refused.detail}", "doubt")
    if row.unsettled:
        why = "the raters differ, cannot tell or did not answer"
        yield from wrapped(f"      {row.unsettled} drawn without a label: {why}", "doubt")


def source_text(source: LabelSource) -> str:
    """Whose labels correct the numbers, and from which file."""
    adjudicator = f"; settled by {source.adjudicator}" if source.adjudicator else ""
    who = f"{source.whose} ({', '.join(source.raters)}{adjudicator})"
    return plain(f"corrected by labels of {who}: {source.file}, {source.items} items; {source.design}")


def who_text(row: CorrectedFigure) -> str:
    """Model and mode of a number."""
    return f"{row.model}, {MODES[row.prompting_mode]}" if row.prompting_mode else row.model


def corrected_cells(row: CorrectedFigure) -> Sequence[str]:
    """A number in a Markdown table, unescaped."""
    value = f"refused: {row.refused.detail}" if row.refused else between(row.value, row.low, row.high)
    open_ = f"; {row.unsettled} drawn without" if row.unsettled else ""
    counts = f"{row.positives}, {row.negatives}{open_}"
    return who_text(row), f"{row.suite}.{row.metric}", between(row.raw, None, None), value, counts


def judge_lines(found: ReplyJudges, run_dir: str) -> Iterator[Line]:
    """One sentence for each judge, and what people should label first."""
    for judge in found.judges:
        useful = judge.with_scorer["useful_bounded"]
        agreement = f"kappa {coefficient_text(useful.kappa)}, AC1 {coefficient_text(useful.ac1)}"
        differs = f"differs from the scorer on useful_bounded in {useful.differing} of {useful.shared} replies"
        lost = f"; {lost_text(judge)}" if judge.failed or judge.not_run else ""
        yield from wrapped(f"reply judge {judge.judge} ({found.whose}): {differs}, {agreement}{lost}", "plain")
    if found.disputed:
        yield from wrapped(hint_text(found), "plain")
        yield f"  {label_command(run_dir)}", "plain"


def lost_text(judge: ReplyJudge) -> str:
    """Replies without a judgement."""
    return f"{judge.failed} replies on which it failed, {judge.not_run} not asked"


def hint_text(found: ReplyJudges) -> str:
    """What people should label first."""
    return f"people should label these {found.disputed} replies first; a drawn sample holds more of them:"


def label_command(run_dir: str) -> str:
    """The command that writes pages on which disagreements are over-represented."""
    return f"pytest-spiral label {quote(run_dir)} -o labels --suite tempaffect"


def agreement_rows(found: ReplyJudges) -> Iterator[Sequence[str]]:
    """Rows of the table of agreement, unescaped."""
    pairs = [(f"the scorer and {judge.judge}", judge.with_scorer) for judge in found.judges]
    for who, questions in [*pairs, ("the judges among each other", found.among)]:
        for name, one in questions.items():
            yield who, name, str(one.shared), str(one.differing), coefficient_text(one.kappa), coefficient_text(one.ac1)


def disagreement_rows(found: ReplyJudges) -> Iterator[Sequence[str]]:
    """Rows of the first disagreements, each side with its evidence, unescaped."""
    for row in found.disagreements[:_MOST]:
        item = f"{row.model}, {MODES[row.prompting_mode]}, {row.id}{f', epoch {row.epoch + 1}' if row.epoch else ''}"
        own = f"{row.scorer or 'cannot tell'}: {'; '.join(row.scorer_evidence) or 'all conditions together'}"
        judges = "; ".join(f'{name}: {given.answer}, "{given.quote}"' for name, given in row.judges.items())
        yield item, row.question, own, judges


def coefficient_text(value: Coefficient | None) -> str:
    """With its interval."""
    return "none" if value is None else between(value.value, value.low, value.high)
