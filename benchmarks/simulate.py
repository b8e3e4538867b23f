"""Simulated whole runs, each from one seed: any combination of faults of network, disk and processes over both suites.

    python -m benchmarks.simulate [--runs 1000 | --seconds 3600] [--first 1]
    python -m benchmarks.simulate --seed 17
    python -m benchmarks.simulate --mutations

A run that breaks a promise prints its seed and the promise. --seed: tell the whole story of one run. --mutations: put
earlier faults back, one at a time, and count the seeds until each is noticed. Exit code 1 if a promise was broken, or a
mutation was not noticed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from tests.simulation.mutations import MUTATIONS, find
from tests.simulation.play import installed, play


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutations", action="store_true")
    options = parser.parse_args(arguments)
    # Bound before the simulated machine replaces it.
    real_time, cpu_time = time.monotonic, time.process_time
    with installed():
        if options.seed is not None:
            outcome = play(options.seed)
            print("\n".join(outcome.trace))
            return 1 if outcome.violation else 0
        if options.mutations:
            return _mutations(options.first)
        began, cpu = real_time(), cpu_time()
        seeds = itertools.count(options.first) if options.seconds else itertools.count(options.first, 1)
        totals: Counter[str] = Counter()
        faults: Counter[str] = Counter()
        for seed in seeds:
            if real_time() - began >= options.seconds if options.seconds else totals["runs"] >= options.runs:
                break
            outcome = play(seed)
            totals += Counter(runs=1, sessions=outcome.sessions, requests=outcome.requests, hours=0)
            totals["virtual seconds"] += int(outcome.seconds)
            faults += outcome.faults
            if outcome.violation:
                totals["violations"] += 1
                print(f"seed {seed}: {outcome.violation[:300]}", flush=True)
            if totals["runs"] % 100 == 0:
                print(f"{totals['runs']} runs, {totals['violations']} violations", file=sys.stderr, flush=True)
        took = cpu_time() - cpu
    print(", ".join(f"{count} {name}" for name, count in totals.items()))
    print(f"{took / max(totals['runs'], 1) * 1000:.0f} ms of processor time a run; {totals['violations']} violations")
    for name, count in faults.most_common():
        print(f"{count:8} {name}")
    return 1 if totals["violations"] else 0


def _mutations(first: int) -> int:
    """The table of mutations."""
    print("| mutation | seeds needed | noticed as |\n|---|---|---|")
    missed = 0
    for name in MUTATIONS:
        found = find(name, first)
        missed += not found.seeds
        print(f"| {name} | {found.seeds or 'not found in 200'} | {found.violation[:100]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
