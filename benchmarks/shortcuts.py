"""What models that take a shortcut reach on the bundled suite.

    python -m benchmarks.shortcuts > data/tempaffect/dry/shortcuts.json

Pins the results that reports show as baselines; a test compares. To be run after a change of the suite or the scorer.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.self_check import ShortcutResult
from pytest_spiral.tempaffect.shortcuts import SHORTCUTS, shortcut_reply
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import Suite, load_suite


def shortcut_result(name: str, suite: Suite) -> ShortcutResult:
    """The results of a shortcut in the scenarios in which its reply is not the reference reply."""
    asked = [scenario for scenario in suite.scenarios if shortcut_reply(name, scenario)]
    scores = [score_output(scenario, dry_output(name, suite, scenario)) for scenario in asked]
    return ShortcutResult(
        scenarios=len(scores),
        right_decision=sum(bool(s.checks and s.checks.decision and s.checks.decision.right) for s in scores),
        useful_bounded=sum(bool(score.useful_bounded) for score in scores),
        score=round(sum(score.score for score in scores) / len(scores), 4),
    )


if __name__ == "__main__":
    print(json.dumps({name: asdict(shortcut_result(name, load_suite())) for name in SHORTCUTS}, indent=2))
