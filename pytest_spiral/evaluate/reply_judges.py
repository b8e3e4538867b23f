"""What judge models say of TempAffect replies, beside what the scorer says. Pure, and no part of any score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pytest_spiral.labelling.agreement import rater_agreement
from pytest_spiral.labelling.files import TEMPAFFECT_QUESTIONS, value_of
from pytest_spiral.labelling.reply_judge import disputed, scorer_answers
from pytest_spiral.report.model.reply_judges import Disagreement, QuestionAgreement, ReplyJudge, ReplyJudges
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item

# No model has a name with a blank.
_SCORER = "the scorer"


def reply_judges(items: Iterable[Item]) -> ReplyJudges | None:
    """Agreement and disagreements over all replies of a run; None where nobody judged them."""
    rows = [item for item in items if item.judged]
    if not (names := list(dict.fromkeys(judged.judge for item in rows for judged in item.judged))):
        return None
    most_first = sorted(rows, key=lambda item: -len(disputed(item)))
    return ReplyJudges(
        judges=tuple(_judge(name, rows) for name in names),
        among=_agreement(rows, names) if len(names) > 1 else {},
        disagreements=tuple(row for item in most_first for row in _disagreements(item)),
    )


def _judge(name: str, items: Sequence[Item]) -> ReplyJudge:
    own = [judged for item in items for judged in item.judged if judged.judge == name]
    states = Counter(judged.status for judged in own)
    answers = [(question, row) for judged in own for question, row in judged.answers.items()]
    return ReplyJudge(
        judge=name,
        replies=len(items),
        measured=states[Status.MEASURED],
        failed=states[Status.INSTRUMENT_FAILED],
        not_run=states[Status.NOT_RUN],
        cannot_tell=Counter(question for question, row in answers if row.answer == "cannot tell"),
        unlocated=sum(row.evidence == "unlocated" and bool(row.quote) for _, row in answers),
        repairs=Counter(repair for judged in own for repair in judged.repairs),
        with_scorer=_agreement(items, [_SCORER, name]),
    )


def _agreement(items: Sequence[Item], raters: Sequence[str]) -> dict[str, QuestionAgreement]:
    """How far these raters agree, by question."""

    def given(item: Item, question: str) -> dict[str, int]:
        said = {j.judge: value_of(j.answers[question].answer) for j in item.judged if question in j.answers}
        said[_SCORER] = scorer_answers(item).get(question)
        return {name: int(value) for name in raters if (value := said.get(name)) is not None}

    return {
        question: rater_agreement(question, "tempaffect", raters, [(item.id, given(item, question)) for item in items])
        for question in TEMPAFFECT_QUESTIONS
    }


def _disagreements(item: Item) -> Iterator[Disagreement]:
    own = scorer_answers(item)
    for question in disputed(item):
        reasons = item.checks.reasons.get(question, ()) if item.checks else ()
        yield Disagreement(
            model=item.model,
            prompting_mode=item.prompting_mode,
            id=item.id,
            epoch=item.epoch,
            question=question,
            scorer=None if question not in own else "yes" if own[question] else "no",
            scorer_evidence=reasons,
            judges={judged.judge: judged.answers[question] for judged in item.judged if question in judged.answers},
        )
