"""A fuzz campaign on everything that reads foreign text.

    pip install atheris
    python -m benchmarks.fuzz [--inputs 1000000] [--seed 1] [--only NAME]

Guided by coverage (libFuzzer through atheris), starting from good examples, spoiling JSON trees as well as characters.
A reader fails that raises what it does not promise, takes more than a second of processor time for one input, or lets
its process grow beyond 1 GB. Each reader runs in a process of its own; failing inputs are kept in `fuzz-findings/`.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.mutation import mutate

if TYPE_CHECKING:
    from tests.faults.targets import Target

MAX_SECONDS = 1.0
MAX_MEGABYTES = 1_024
LONGEST = 60_000


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _fuzz(options.child, options.inputs, options.seed)
    from tests.faults.targets import TARGETS

    print(f"{'reader':22} {'inputs':>10} {'seconds':>8} {'slowest':>9} {'memory':>9}  outcome")
    total, failed = 0, 0
    for target in TARGETS:
        if options.only in target.name:
            inputs, outcome = _campaign(target, options.inputs * target.share // 100, options.seed)
            total, failed = total + inputs, failed + (outcome != "ok")
    print(f"{'all':22} {total:>10,}  {failed} readers failed")
    return 1 if failed else 0


def _campaign(target: Target, inputs: int, seed: int) -> tuple[int, str]:
    started = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.fuzz", "--child", target.name, f"--inputs={inputs}", f"--seed={seed}"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    ran = re.search(r"^ran (\d+), slowest ([\d.]+) s, (\d+) MB$", done.stdout, re.MULTILINE)
    count = int(ran[1]) if ran else 0
    outcome = "ok" if done.returncode == 0 and count >= inputs else f"FAILED (exit {done.returncode})"
    slowest, memory = (f"{float(ran[2]):.3f} s", f"{ran[3]} MB") if ran else ("?", "?")
    seconds = time.monotonic() - started
    print(f"{target.name:22} {count:>10,} {seconds:>8.0f} {slowest:>9} {memory:>9}  {outcome}", flush=True)
    if outcome != "ok":
        print(done.stdout[-1_500:] + done.stderr[-3_000:])
    return count, outcome


def _fuzz(name: str, inputs: int, seed: int) -> None:
    """Runs in a process of its own, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["pytest_spiral"]):
        from tests.faults.targets import TARGETS
    target = next(target for target in TARGETS if target.name == name)
    examples = target.examples()
    ran, slowest = 0, 0.0

    def one(data: bytes) -> None:
        nonlocal ran, slowest
        started = time.process_time()
        with contextlib.suppress(*target.allowed):
            target.read(data.decode("utf-8", "surrogatepass" if _decodes(data) else "replace"))
        took = time.process_time() - started
        ran, slowest = ran + 1, max(slowest, took)
        if took > MAX_SECONDS:
            raise TimeoutError(f"{took:.2f} s for one input")
        if ran == inputs:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"ran {ran}, slowest {slowest:.3f} s, {memory} MB", flush=True)
            if memory > MAX_MEGABYTES:
                raise MemoryError(f"{memory} MB")

    def spoil(data: bytes, size: int, number: int) -> bytes:
        rng = random.Random(number)
        text = rng.choice(examples) if rng.random() < 0.3 else data.decode("utf-8", "replace")
        return mutate(text, rng).encode("utf-8", "surrogatepass")[:size]

    findings = Path("fuzz-findings")
    findings.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, example in enumerate(examples):
            (Path(corpus) / str(number)).write_bytes(example.encode("utf-8", "surrogatepass"))
        flags = [f"-runs={inputs}", f"-seed={seed}", f"-max_len={LONGEST}", f"-rss_limit_mb={MAX_MEGABYTES}"]
        flags += ["-timeout=60", "-len_control=0", f"-artifact_prefix={findings}/{target.name.replace(' ', '-')}-"]
        atheris.Setup([sys.argv[0], *flags, corpus], one, custom_mutator=spoil)
        atheris.Fuzz()


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
