"""The fault matrix: every fault x every role x both suites, once and on every call.

    python -m benchmarks.fault_matrix [--markdown] [--write] [NAME ...]

NAME: only faults whose name holds it. --markdown: only the table. --write: put the rows that were played into
docs/validation/faults.md. Exit code 1 if a cell does not hold.
"""

from __future__ import annotations

import sys
import time

from tests.faults.catalogue import CATALOGUE
from tests.faults.matrix import markdown, outcomes, play_all, write_docs


def main(arguments: list[str]) -> int:
    names = [argument for argument in arguments if not argument.startswith("--")]
    cases = [case for case in CATALOGUE if not names or any(name in case.name for name in names)]
    started, cells = time.monotonic(), []
    for cell in play_all(cases):
        cells.append(cell)
        if "--markdown" not in arguments:
            print(
                f"{'FAILED' if cell.problems else 'ok':6} {cell.seconds:6.2f} s  {cell.name}: {cell.says}", flush=True
            )
        for problem in cell.problems:
            print(f"       {cell.name}: {problem}", file=sys.stderr)
    bad = sum(bool(cell.problems) for cell in cells)
    rows = outcomes(cells)
    print(markdown(rows), end="")
    if "--write" in arguments and not bad:
        write_docs(rows)
    print(f"{len(cells)} cells, {bad} failed, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
