"""What judge models say of TempAffect replies, for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from pytest_spiral.report.lines import Line, between, plain, wrapped
from pytest_spiral.report.model.reply_judges import Coefficient, QuestionAgreement, ReplyJudge, ReplyJudges
from pytest_spiral.tempaffect.records import MODES

DISAGREEMENT_NAMES = ("Item", "Question", "Scorer", "Judges")
_MOST = 5
AGREEMENT_NAMES = ("Raters", "Question", "Replies", "They differ on", "Kappa (95 % interval)", "AC1 (95 % interval)")


def judge_lines(found: ReplyJudges, run_dir: str) -> Iterator[Line]:
    """One sentence for each judge, and what people should label first."""
    for judge in found.judges:
        useful = judge.with_scorer["useful_bounded"]
        agreement = f"kappa {coefficient_text(useful.kappa)}, AC1 {coefficient_text(useful.ac1)}"
        differs = f"differs from the scorer on useful_bounded in {useful.differing} of {useful.shared} replies"
        lost = f"; {lost_text(judge)}" if judge.failed or judge.not_run else ""
        yield from wrapped(f"reply judge {plain(judge.judge)} ({found.whose}): {differs}, {agreement}{lost}", "plain")
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
    for judge in found.judges:
        yield from _rows(f"the scorer and {judge.judge}", judge.with_scorer)
    yield from _rows("the judges among each other", found.among)


def _rows(who: str, questions: Mapping[str, QuestionAgreement]) -> Iterator[Sequence[str]]:
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
