"""Kill and resume: runs of both suites killed at random moments, resumed, killed again, and completed.

    python -m benchmarks.kill_resume [--kills 200] [--seed 1]

Nothing that was committed may be lost or asked for again, a request sent twice must have been under way at a kill
(open: sent, its reply not committed), and the report at the end must be that of an undisturbed run. Exit code 1 where
one of these does not hold.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.kills import kill_and_resume

KILLS_PER_RUN = 8


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    started, kills, number, held = time.monotonic(), 0, 0, True
    print(f"{'run':16} {'kills':>5} {'requests':>8} {'lost':>5} {'again':>6} {'repeated':>8} {'most open':>9}  report")
    while kills < options.kills:
        suite = ("spiral", "tempaffect")[number % 2]
        found = kill_and_resume(suite, KILLS_PER_RUN, options.seed + number)
        ok = found.lost == found.again == 0 and found.repeated <= sum(found.open) and found.identical
        kills, number, held = kills + found.kills, number + 1, held and ok
        report = "identical" if found.identical else "DIFFERS"
        print(
            f"{suite + ' ' + str(options.seed + number - 1):16} {found.kills:>5} {found.requests:>8} {found.lost:>5} "
            f"{found.again:>6} {found.repeated:>8} {max(found.open):>9}  {report}",
            flush=True,
        )
    print(f"{kills} kills in {number} runs, {time.monotonic() - started:.0f} s: {'all held' if held else 'FAILED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
