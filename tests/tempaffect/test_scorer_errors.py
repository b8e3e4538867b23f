"""The scorer's own errors beside a useful-and-bounded rate."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reply_labels import by_writer, read
from pytest_spiral.errors import DataError
from pytest_spiral.resources import data_root
from pytest_spiral.tempaffect import scorer_errors
from pytest_spiral.tempaffect.scorer_errors import WriterErrors, published_errors, range_of

STRICT = WriterErrors(writer="one", good=10, lost=2, bad=10, passed=0)
LENIENT = WriterErrors(writer="other", good=10, lost=0, bad=10, passed=2)
BLIND = WriterErrors(writer="third", good=10, lost=5, bad=10, passed=5)


def test_the_published_errors_are_those_of_replies_that_no_rule_was_made_with() -> None:
    """`python -m benchmarks.reply_labels --by-writer > data/tempaffect/scorer_errors.toml` brings them in step."""
    published = (data_root() / "tempaffect" / "scorer_errors.toml").read_text(encoding="utf-8")

    assert published == "\n".join(by_writer(read("validation"))) + "\n"


def test_a_writer_whose_good_replies_are_lost_raises_the_rate_and_one_whose_bad_ones_pass_lowers_it() -> None:
    """By hand: .6 / .8, and (.6 - .2) / .8; a writer on whom the scorer guesses tells nothing."""
    assert STRICT.corrected(0.6) == pytest.approx(0.75)
    assert LENIENT.corrected(0.6) == pytest.approx(0.5)
    assert BLIND.corrected(0.6) is None
    found = range_of(0.6, (STRICT, LENIENT, BLIND))
    assert (found.low, found.high) == pytest.approx((0.5, 0.75))


@given(st.floats(0, 1))
def test_the_range_encloses_the_rate(rate: float) -> None:
    """And is a range of rates."""
    found = range_of(rate, published_errors())

    assert 0 <= found.low <= rate <= found.high <= 1


def test_one_writer_makes_no_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The published errors are data, and checked like data."""
    row = "".join(f"{key} = {value!r}\n" for key, value in STRICT.model_dump().items())
    (tmp_path / "tempaffect").mkdir()
    (tmp_path / "tempaffect" / "scorer_errors.toml").write_text(f"[[writers]]\n{row}")
    monkeypatch.setattr(scorer_errors, "data_root", lambda: tmp_path)

    with pytest.raises(DataError, match="at least 2 items"):
        published_errors.__wrapped__()
