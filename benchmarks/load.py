"""Load with faults: 300 conversations of 20 turns, then 10,000 TempAffect items, 5 % of all answers faulty.

    python -m benchmarks.load [--share 1.0] [spiral] [tempaffect]

The accounts must agree to the request: what the server answered is what the store holds, as replies, as their retries
or as failed calls. A run that lost calls is resumed until nothing is missing. Exit code 1 where the accounts differ or
a worker needs more than 400 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fakes.openai_server import FakeOpenAI, Fault, Handler, Reply
from tests.fakes.script import Rule, Script
from tests.faults.catalogue import KEY
from tests.faults.runs import MODELS, cast, remains

HERE = Path(__file__).parent
MIXED = (
    Fault.status_code(429, "slow down", retry_after=0.05),
    Fault.status_code(500, f"key {KEY}"),
    Fault.status_code(503),
    Fault.html(502),
    Fault.reset(),
    Fault.drop(),
    Fault.broken_json(),
    Fault.empty_choices(),
    Fault.html(200),
)
RATE = 0.05
LIMIT_MIB = 400
# Both sizes of a whole run, scaled by --share.
SIZES = {"spiral": 300, "tempaffect": 10_050}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", nargs="*", default=["spiral", "tempaffect"])
    parser.add_argument("--share", type=float, default=1.0)
    options = parser.parse_args(arguments)
    print(f"{'suite':11} {'units':>7} {'served':>7} {'faults':>7} {'replies':>8} {'retries':>8} {'failed':>7} "
          f"{'in vain':>8} {'seconds':>8} {'MiB':>7} {'lead':>5} {'sessions':>9}  accounts")  # fmt: skip
    return max(_load(suite, options.share) for suite in options.suites)


def _load(suite: str, share: float) -> int:
    # Each fault takes an equal part of the rate of what the rules before it left.
    rules, left = [], 1.0
    for fault in MIXED:
        rules.append(Rule(fault, rate=RATE / len(MIXED) / left))
        left -= RATE / len(MIXED)
    script = Script(_varied(cast()), rules)
    with tempfile.TemporaryDirectory() as name, FakeOpenAI(script, key=KEY, record=False) as server:
        folder = Path(name)
        environ = {**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}"}
        for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE"):
            environ |= {f"{role}_BASE_URL": server.base_url, f"{role}_API_KEY": KEY}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "meter", "-n", "2", f"--suite={suite}", "--run-id=r",
                   "--model=m", "--user-model=u", "--judge-model=j", *_size(suite, share)]  # fmt: skip
        started, sessions, done = time.monotonic(), 0, None
        environ["METER"] = str(folder / "meter")
        (folder / "meter").mkdir()
        while done is None or (done.returncode == 11 and sessions < 4):
            done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
            sessions += 1
        seconds = time.monotonic() - started
        text = done.stdout + done.stderr
        report = json.loads((folder / "reports/r/report.json").read_text())
        parts = (*report["tempaffect"]["items"], *report["spiral"]["conversations"])
        units, missing = len(parts), sum(part["status"] != "measured" for part in parts)
        with sqlite3.connect(folder / "reports/r/run.sqlite") as store:
            replies, attempts = store.execute("SELECT count(*), sum(attempts) FROM reply").fetchone()
            failures, vain = store.execute("SELECT count(*), coalesce(sum(attempts), 0) FROM failure").fetchone()
        used = [json.loads(path.read_text()) for path in (folder / "meter").iterdir()]
        most, lead = (
            max((each["peak_mib"] for each in used if each["worker"] is worker), default=0) for worker in (True, False)
        )
        faults = sum(script.faults.values())
        agree = server.served == attempts + vain and server.served - faults == replies
        leaks = remains(folder, KEY) + (["terminal"] if KEY[8:24] in text else [])
        print(f"{suite:11} {units:>7,} {server.served:>7,} {faults:>7,} {replies:>8,} {attempts - replies:>8,} "
              f"{failures:>7,} {vain:>8,} {seconds:>8.0f} {most:>7.0f} {lead:>5.0f} {sessions:>9}  "
              f"{'exact' if agree else 'DIFFER'}",
              flush=True)  # fmt: skip
    good = agree and most < LIMIT_MIB and done.returncode in (0, 10) and not missing and not leaks
    if not good:
        print(f"exit {done.returncode}, {missing} not measured, key in {leaks}\n{text[-3000:]}")
    return 0 if good else 1


def _varied(answer: Handler) -> Handler:
    """Assistants that never say the same twice, as real ones do: otherwise ten conversations on a prompt are one."""

    def varied(body: dict[str, Any], number: int) -> str | Reply | Fault:
        found = answer(body, number)
        bare = body["model"] == MODELS["evaluated"] and isinstance(found, str) and not found.startswith("{")
        return f"{found} ({number})" if bare else found

    return varied


def _size(suite: str, share: float) -> tuple[str, ...]:
    if suite == "spiral":
        return ("--num-turns=20", f"--convos-per-prompt={max(1, round(SIZES[suite] * share / 30))}")
    return (f"--epochs={max(1, round(SIZES[suite] * share / 150))}",)


if __name__ == "__main__":
    assert MODELS == {"evaluated": "m", "user": "u", "judge": "j"}
    sys.exit(main(sys.argv[1:]))
