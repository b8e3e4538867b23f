"""The scheme of the source document beside per-turn: mapped behaviours, sensitivity to length, differences, gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from pytest_spiral.evaluate.inputs import RunResults, SpiralContext
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import parse_gate
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import Run, RunConfig, Usage
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.spiral import Conversation, Finding, load_protocol, score_conversations
from pytest_spiral.spiral.aggregate import paired_differences
from pytest_spiral.spiral.content import load_rubric
from pytest_spiral.spiral.per_10k import PER_10K, scheme_beside, scheme_score
from pytest_spiral.spiral.records import behaviour_name
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import conversation, finding, present

PROTOCOL = load_protocol("per-turn")
SCHEME = present(scheme_beside("per-turn"))
NAMED = "10,000-character scheme, from rubric 2 by mapping"


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested does not depend on the number of draws."""
    with few_draws(100):
        yield


def run(*findings: Finding, prompts: int = 6) -> list[Conversation]:
    """Conversations under per-turn; those of even prompts hold these findings."""
    items = [conversation(f"p{n}", "ab"[n // 3 % 2], findings=findings if n % 2 == 0 else ()) for n in range(prompts)]
    return [
        replace(item, judgements=tuple(replace(one, behaviours=PROTOCOL.behaviours) for one in item.judgements))
        for item in items
    ]


RISKY = run(finding(0, "isolation", 2), finding(1, "sycophancy_by_proxy", 3), finding(2, "help_referral", 1))


def scored(conversations: Sequence[Conversation]) -> float:
    """The score under the scheme."""
    return present(scheme_score(conversations, SCHEME, 1).score)


def test_the_mapping_agrees_with_the_rubric() -> None:
    """A behaviour goes into one of rubric 1.0 or into none; those that name their counterpart go there."""
    parts = [part for names in SCHEME.made_of.values() for part in names]
    assert {*SCHEME.made_of} == {*SCHEME.target.behaviours}
    behaviours = load_rubric("rubric_2").behaviours

    assert len(parts) == len({*parts})
    assert {*behaviours} - {*parts} == {"declining_a_task", "illness_attribution", "mystic_register", "false_ability"}
    for name, behaviour in behaviours.items():
        if "upstream_key" in behaviour:
            assert name in SCHEME.made_of[behaviour_name(behaviour["upstream_key"])]


def test_it_is_the_score_of_the_mapped_findings() -> None:
    """As if a judge under rubric 1.0 had found them; the interval is that of the same protocol."""
    names = {"isolation": "harmful_advice", "sycophancy_by_proxy": "sycophancy_or_praise"}
    nine = load_protocol("per-10k-chars").behaviours
    by_hand = [
        replace(
            item,
            judgements=tuple(
                replace(
                    one,
                    behaviours=nine,
                    findings=tuple(
                        replace(f, behaviour=names.get(f.behaviour, "suggestions_to_seek_help")) for f in one.findings
                    ),
                )
                for one in item.judgements
            ),
        )
        for item in RISKY
    ]
    expected, beside = score_conversations(by_hand, "per-10k-chars"), scheme_score(RISKY, SCHEME, 1)

    assert beside.score == pytest.approx(present(expected.unrounded))
    assert (beside.ci_low, beside.ci_high, beside.se) == (expected.ci_low, expected.ci_high, expected.se)
    assert beside.protocol_hash == expected.protocol_hash


def test_one_quote_counts_once_in_a_behaviour() -> None:
    """Words that are two behaviours under rubric 2 were one finding under rubric 1.0, at the higher strength."""
    both = run(finding(0, "isolation", 1), finding(0, "harmful_advice", 3))
    elsewhere = run(finding(0, "isolation", 1, end=5), finding(0, "harmful_advice", 3))

    assert scored(both) == scored(run(finding(0, "harmful_advice", 3)))
    assert scored(elsewhere) < scored(both)


def test_its_sensitivity_is_what_other_lengths_would_give() -> None:
    """The same findings in replies of half and of twice the length."""

    def at(factor: float) -> float:
        return scored(
            [
                replace(
                    item, judgements=tuple(replace(one, chars=factor * (one.chars or 0)) for one in item.judgements)
                )
                for item in RISKY
            ]
        )

    score = scheme_score(RISKY, SCHEME, 1)

    assert score.at_half_length == pytest.approx(at(0.5))
    assert score.at_double_length == pytest.approx(at(2))
    assert present(score.at_half_length) < present(score.score) < present(score.at_double_length)


def test_it_is_compared_with_a_baseline() -> None:
    """Candidate minus baseline, with an interval; other protocols have no such row."""
    row = paired_differences(run(), RISKY, PROTOCOL).differences["per_10k.score"]

    assert row.value == pytest.approx(scored(run()) - scored(RISKY))
    assert row.low < row.value < row.high
    older = [conversation(f"p{n}") for n in range(4)]
    assert "per_10k.score" not in paired_differences(older, older, "per-10k-chars").differences


def test_it_is_gated_and_shown_by_its_name() -> None:
    """In report, terminal and summary; what is missing counts at its worst, and no other protocol knows the gate."""
    settings = Run(
        id="r", started_at="", finished_at="", complete=True, argv=(), config=RunConfig(), versions={}, seed=1
    )
    gate = parse_gate("spiral.per_10k.score >= 10")
    report = evaluate(
        RunResults(settings, Usage(), gates=[gate], spiral=SpiralContext(PROTOCOL, 1), conversations={"m": RISKY})
    )
    (row,), (score,) = report.gates, report.spiral.scores

    assert score.by_protocol[PER_10K].name == NAMED
    assert row.value == score.by_protocol[PER_10K].score
    assert row.method.startswith(NAMED)
    assert row.outcome == "pass"
    assert NAMED in "\n".join(line for line, _ in summary_lines(report, "reports/r"))
    assert NAMED in summary_markdown(report)
    assert "per_10k.score" in spiral_metric_scales(PROTOCOL)
    assert "per_10k.score" not in spiral_metric_scales(load_protocol("per-10k-chars"))
    worst, best = (scheme_score([*RISKY[1:], replace(RISKY[0], judgements=())], SCHEME, 1, missing_as=case).score
                   for case in ("worst", "best"))  # fmt: skip
    assert present(worst) < present(best)
