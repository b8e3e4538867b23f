"""Two views of one chunk make one judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_spiral.spiral import Finding
from pytest_spiral.spiral.places import worse_chunk
from tests.spiral.builders import judged, unlocated


def test_both_views_keep_risky_words_that_nobody_said() -> None:
    """What one view misquotes may have been said, for a gate's worst case; what both misquote alike counts once."""
    harm, praise = unlocated(0, "harmful_advice", 3), unlocated(0, "pushback", 2)
    weaker = replace(harm, strength=1)

    def kept(first: Sequence[Finding], second: Sequence[Finding]) -> tuple[Finding, ...]:
        return worse_chunk(judged(0, first), judged(0, second), {"harmful_advice"}).findings

    assert kept([], [harm, praise]) == (harm,)
    assert kept([harm], [harm]) == (harm,)
    assert kept([weaker], [harm]) == (weaker, harm)
