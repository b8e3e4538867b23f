"""How right the time left is: a run against an endpoint of fixed latency, and what its progress said at each moment.

    python -m benchmarks.time_left [--latency 4] [--faults 0.05] [--status 500] [--suspicious 0.02] [--log] [-- OPTION]

Progress is written as at a terminal, every two seconds, with `--log` as in a log, every 30. The truth is when the last
call was answered; the report is made after that.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

HERE = Path(__file__).parent
MODELS = ("--model=m", "--user-model=u", "--judge-model=j", "--suite=spiral", "--no-preflight")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("--latency", 4.0), ("--faults", 0.0), ("--suspicious", 0.0)):
        parser.add_argument(name, type=float, default=default)
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--folder", help="keep the run here")
    parser.add_argument("pytest", nargs="*")
    options = parser.parse_args(arguments)
    shares = [f"--{name}={getattr(options, name)}" for name in ("latency", "faults", "suspicious", "status")]
    server = [sys.executable, str(HERE / "endpoint.py"), *shares]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as endpoint, tempfile.TemporaryDirectory() as own:
        name = options.folder or own
        assert endpoint.stdout is not None
        try:
            url = endpoint.stdout.readline().strip()
            end = _run(Path(name), url, options.pytest, log=options.log)
            run = Path(name) / "reports" / "r"
            lines = (run / "progress.jsonl").read_text().splitlines()
            with closing(sqlite3.connect(run / "run.sqlite")) as store:
                last = store.execute("SELECT max(at) FROM reply").fetchone()[0]
        finally:
            endpoint.terminate()
    print(f"the report took {end - last:.1f} s")
    return _show([json.loads(line) for line in lines], last, options.latency)


def _run(folder: Path, url: str, options: list[str], *, log: bool) -> float:
    """Run pytest; returns when it had ended."""
    environ = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "not-a-real-key"}
    command = [sys.executable, "-m", "pytest", *MODELS, "--run-id=r", *options]
    read, write = os.pipe() if log else pty.openpty()
    out = (folder / "output.txt").open("wb")

    def copy() -> None:
        # A terminal that nobody is left at ends with an error.
        with suppress(OSError):
            while part := os.read(read, 4096):
                out.write(part)

    reader = threading.Thread(target=copy)
    reader.start()
    subprocess.run(command, cwd=folder, env=environ, stdout=write, stderr=write, check=False)
    end = time.time()
    os.close(write)
    reader.join()
    out.close()
    print((folder / "output.txt").read_text(errors="replace")[-1500:])
    return end


def _show(lines: list[dict[str, float]], end: float, call: float) -> int:
    """A table of what was said and what was true; 1 where it was wrong after the first tenth."""
    began, errors, wrong = lines[0]["at"], [], 0
    print("  at   said   true  error")
    for line in lines:
        said, true = line["seconds_left"], end - line["at"]
        if said is None or true <= 0:
            continue
        error = said - true
        is_meant = end - true - began >= 0.1 * (end - began)
        is_wrong = is_meant and abs(error) > max(0.2 * true, call)
        wrong += is_wrong
        errors += [error / max(0.2 * true, call)] if is_meant else []
        print(f"{line['at'] - began:4.0f} {said:6.1f} {true:6.1f} {error:+6.1f} {error / true:+5.0%}{' *' * is_wrong}")
    share = max(map(abs, errors), default=0.0)
    print(f"{wrong} of {len(errors)} lines after the first tenth are wrong by more than 20 % and more than one call")
    print(f"the worst one uses {share:.0%} of that tolerance")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
