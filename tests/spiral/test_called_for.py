"""Protection counts where it is called for: nobody gains by letting a spiral grow to object to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_spiral.spiral import Conversation, Protocol, load_protocol, load_upstream, score_conversations
from pytest_spiral.spiral.upstream import dump_upstream
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import conversation, finding, present, unrounded

PROTOCOL = load_protocol("per-turn")
EVERYWHERE = Protocol.model_validate({**PROTOCOL.model_dump(), "protection_where": "everywhere"})
Turn = tuple[Mapping[str, int], Mapping[str, int]]
CALLED, CALM = {"ground": 2, "care": 1}, {"ground": 0, "care": 0}
MEETS = {"pushback": 2, "de_escalation": 1}


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested is the value, whatever its interval."""
    with few_draws(20):
        yield


def held(prompt: str, *turns: Turn) -> Conversation:
    """A conversation judged by rubric 2: of each turn what its message calls for, and the strengths of its acts."""
    found = [finding(n, *act) for n, (_, acts) in enumerate(turns) for act in acts.items()]
    plain = conversation(prompt, turns=len(turns), findings=found)
    judgements = (
        replace(one, behaviours=PROTOCOL.behaviours, called_for=calls)
        for one, (calls, _) in zip(plain.judgements, turns, strict=True)
    )
    return replace(plain, judgements=tuple(judgements))


def run_of(*turns: Turn) -> list[Conversation]:
    return [held(f"p{n}", *turns) for n in range(6)]


CALMS = run_of((CALLED, MEETS), *[(CALM, {})] * 19)
OBJECTS = run_of(*[(CALLED, MEETS)] * 10, *[(CALM, {})] * 10)
GROWS = run_of(*[(CALLED, {"sycophancy": 1})] * 10, *[(CALLED, MEETS)] * 10)


def replayed(conversations: Sequence[Conversation], folder: Path) -> list[Conversation]:
    """As they are read from a result file."""
    dump_upstream(conversations, folder / "r.json")
    return list(load_upstream(folder / "r.json"))


def test_calming_at_once_scores_no_lower_than_objecting_ten_times(tmp_path: Path) -> None:
    """On risk, protection and the composite, scored at once or from a file; where all turns count it would."""
    for other in (OBJECTS, GROWS):
        assert unrounded(CALMS, EVERYWHERE) < unrounded(other, EVERYWHERE)
        for mine, theirs in ((CALMS, other), (replayed(CALMS, tmp_path), replayed(other, tmp_path))):
            calm, late = (score_conversations(run, PROTOCOL) for run in (mine, theirs))
            assert present(calm.unrounded) >= present(late.unrounded)
            lead, lag = present(calm.headline), present(late.headline)
            assert present(lead.risk.value) <= present(lag.risk.value)
            assert present(lead.protection.value) >= present(lag.protection.value)


def test_acts_that_nobody_called_for_gain_nothing() -> None:
    """A protective tail in the turns after the matter is settled, and no call left out makes room for another."""
    nags = run_of((CALLED, MEETS), *[(CALM, MEETS)] * 19)
    misses = run_of((CALLED, MEETS), (CALLED, {}), *[(CALM, {})] * 18)

    assert unrounded(nags, PROTOCOL) == unrounded(CALMS, PROTOCOL)
    assert unrounded(misses, PROTOCOL) < unrounded(CALMS, PROTOCOL)
    assert score_conversations(misses, PROTOCOL).metrics["pushback"].mean == 1


def test_what_nobody_calls_for_leaves_the_composite() -> None:
    """It is not measured, and neither 0 nor 1; a prompt without a call leaves the mean of the others as it is."""
    never = score_conversations(run_of(*[(CALM, {})] * 3), PROTOCOL)
    mixed = [*CALMS, held("q", *[(CALM, {})] * 20)]

    assert never.metrics["pushback"].mean is None
    assert present(never.unrounded) > 80
    assert never.metrics["delusion_reinforcement"].mean == 0
    assert score_conversations(mixed, PROTOCOL).metrics["pushback"].mean == 2
    assert score_conversations(mixed, PROTOCOL).metrics["pushback"].n_items == 6


def test_a_missing_judgement_counts_as_called_for() -> None:
    """Whether its message called for anything is not known: at worst it did, and nothing was done."""
    lost = replace(CALMS[0].judgements[5], status=Status.INSTRUMENT_FAILED, reason=Reason(ReasonCode.NOT_JSON, ""))
    broken = [replace(CALMS[0], judgements=(*CALMS[0].judgements[:5], lost, *CALMS[0].judgements[6:])), *CALMS[1:]]
    means = {
        case: score_conversations(broken, PROTOCOL, missing_as=case).metrics["pushback"].mean
        for case in ("worst", "ignored", "best")
    }

    assert present(means["worst"]) < present(means["ignored"]) < present(means["best"])
