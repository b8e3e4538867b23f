"""Making the parts of a report one by one, so that one which fails costs no other."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from pytest_spiral.report.lines import plain
from pytest_spiral.report.model.parts import Attempt, FailedPart, PartCode

P = ParamSpec("P")
T = TypeVar("T")

_LOG = logging.getLogger("pytest_spiral")
_MOST_CHARS = 300


class Parts:
    """Makes parts and remembers those that failed.

    Attributes:
        failed: In the order of the attempts.
    """

    def __init__(self, code: PartCode = PartCode.ERROR) -> None:
        """code: of everything that fails here but time limits."""
        self.failed: list[FailedPart] = []
        self._code = code

    def attempt(self, part: str, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `make` returns; None where it fails, which is then in `failed` and logged with its traceback.

        The only place that stops every exception: what is wrong in one part is not known in advance, and the
        measurements behind the others are paid for.
        """
        try:
            return make(*args, **kwargs)
        except Exception as error:
            late = isinstance(error, TimeoutError) and self._code is PartCode.ERROR
            code = PartCode.TIMEOUT if late else self._code
            self.failed.append(FailedPart(part=part, code=code, detail=describe(error)))
            _LOG.debug("%s could not be made", part, exc_info=True)
            return None

    def below(self, part: str) -> Attempt:
        """Attempts at parts of a part, named by their place in it."""

        def attempt(name: str, make: Callable[[], T]) -> T | None:
            return self.attempt(f"{part}.{name}", make)

        return attempt


def describe(error: BaseException) -> str:
    """An error on one line, with the place that raised it."""
    text = plain(str(error))
    shown = text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {shown}{where}" if shown else f"{type(error).__name__}{where}"


@contextmanager
def tracebacks(shown: bool) -> Iterator[None]:
    """Within the block, write the tracebacks of failed parts to stderr, if they are to be shown."""
    if not shown:
        yield
        return
    handler, level = logging.StreamHandler(), _LOG.level
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        _LOG.removeHandler(handler)
        _LOG.setLevel(level)
