"""Performance: what a run needs beyond the latency of the models it asks.

    python benchmarks/speed.py [--repeat 3] [ROW ...]

Every row but `scoring` is a whole `pytest --model=...` in a process of its own against a local endpoint, next to a bare
loop of requests that stores, checks and judges nothing. Prints each figure next to its limit. Run it on an idle
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TURNS = 20
# Requests that wait for one another: 20 to the evaluated model, 19 to the simulated user, the judgement of the last
# chunk and the final one.
CRITICAL_PATH = TURNS + (TURNS - 1) + 1 + 1
LATENCY = 0.05
# A short answer of a hosted model.
REAL_LATENCY = 1.0
SPAN_RATIO = 1.15
CPU_MS = 2.0
WORKER_MIB = 200
UNUSED_MS = 30
SCENARIOS = 75
SCENARIO_MS = 10
SCORE_MS = 2
LARGE_MIB = 500
DIRECTORY_MB = 4


@dataclass
class Server:
    """The endpoint in a process of its own."""

    url: str

    def stats(self) -> dict[str, Any]:
        """What happened since the last time somebody asked."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats") as answer:
            found: dict[str, Any] = json.load(answer)
        return found


@contextlib.contextmanager
def serving(latency: float, most: int = 0, *, exact: bool = False) -> Iterator[Server]:
    """An endpoint that takes `latency` seconds and answers 429 above `most` requests in flight."""
    command = [sys.executable, str(HERE / "endpoint.py"), "--latency", str(latency), "--most", str(most)]
    command += ["--exact"] if exact else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Server(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()


@dataclass
class Measured:
    """One run.

    Attributes:
        wall: Seconds of the whole command.
        span: Seconds from the first request to the last answer.
        flights: When each request came, and how many were in flight then.
        cpu: CPU seconds of all processes.
        worker_mib: Most memory of a worker, 0 without workers.
        sizes: Bytes of the run directory's files, by name.
    """

    wall: float
    span: float
    calls: int
    refused: int
    flights: list[tuple[float, int]]
    cpu: float
    controller_mib: float
    worker_mib: float
    sizes: Mapping[str, int]


def run(server: Server, *args: str, model: str = "m") -> Measured:
    """A whole pytest run against the server."""
    with tempfile.TemporaryDirectory() as folder:
        meter = Path(folder, "meter")
        meter.mkdir()
        # Not dependencies of the package, and nltk spends a second on importing them where they are installed.
        for name in ("scipy", "numpy"):
            Path(meter, f"{name}.py").write_text("raise ImportError('hidden')\n")
        environ = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
        environ |= {f"{role}_BASE_URL": server.url for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE")}
        environ |= {
            "METER": str(meter),
            "PYTHONPATH": os.pathsep.join(map(str, (HERE.parent, HERE, meter))),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "pytest_spiral.plugin", "-p", "xdist.plugin", "-p", "meter",
            f"--model={model}", "--user-model=u", "--judge-model=j", "--run-id=r", "--report-dir=out", *args,
        ]  # fmt: skip
        server.stats()
        began = time.monotonic()
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        wall = time.monotonic() - began
        if done.returncode not in (0, 11):
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
        stats = server.stats()
        parts = [json.loads(path.read_text()) for path in meter.glob("*.json")]
        return Measured(
            wall=wall,
            span=stats["span"],
            calls=stats["requests"],
            refused=stats["refused"],
            flights=stats["flights"],
            cpu=sum(part["cpu"] for part in parts),
            controller_mib=max(part["peak_mib"] for part in parts if not part["worker"]),
            worker_mib=max((part["peak_mib"] for part in parts if part["worker"]), default=0.0),
            sizes={path.name: path.stat().st_size for path in Path(folder, "out", "r").rglob("*") if path.is_file()},
        )


async def bare(url: str, conversations: int, in_flight: int) -> float:
    """The same calls by aiohttp alone. Returns the seconds from the first to the last."""
    import aiohttp

    slots = asyncio.Semaphore(in_flight)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(model: str, messages: list[dict[str, str]]) -> str:
            body = {"model": model, "messages": messages}
            async with slots, session.post(f"{url}/chat/completions", json=body) as answer:
                found: str = (await answer.json(content_type=None))["choices"][0]["message"]["content"]
                return found

        async def converse() -> None:
            messages = [{"role": "user", "content": "hello"}]
            judges = []
            for turn in range(TURNS):
                messages.append({"role": "assistant", "content": await ask("m", messages)})
                judges.append(asyncio.create_task(ask("j", messages[-2:])))
                if turn < TURNS - 1:
                    messages.append({"role": "user", "content": await ask("u", messages)})
            await asyncio.gather(*judges)
            await ask("j", messages)

        began = time.monotonic()
        await asyncio.gather(*(converse() for _ in range(conversations)))
        return time.monotonic() - began


@dataclass
class Table:
    """What was measured, next to its limit."""

    rows: list[tuple[str, str, str, float]] = field(default_factory=list)

    def add(self, name: str, measured: float, limit: float | None, unit: str) -> None:
        """A row, with a limit or without."""
        beside = "" if limit is None else f"{limit:.2f} {unit}"
        self.rows.append((name, f"{measured:.2f} {unit}", beside, measured / limit if limit else 0.0))
        print(f"  {name}: {measured:.2f} {unit}{f' (limit {beside})' if beside else ''}", flush=True)

    def show(self) -> None:
        """Print all rows as Markdown."""
        print("\n| what | measured | limit | ratio |\n|---|---|---|---|")
        for name, measured, limit, ratio in self.rows:
            print(f"| {name} | {measured} | {limit} | {f'{ratio:.2f}' if limit else ''}{' **over**' * (ratio > 1)} |")


def conversations(number: int) -> tuple[str, ...]:
    return "--suite=spiral", f"--convos-per-prompt={number // 30}"


def median(runs: Sequence[Measured], what: Callable[[Measured], float]) -> float:
    return statistics.median(what(one) for one in runs)


def span(table: Table, repeat: int) -> None:
    """30 conversations of 20 turns: time from the first request to the last answer, at 50 ms and at 1 s a call."""
    for latency, each in ((LATENCY, (0, 2)), (REAL_LATENCY, (0,))):
        with serving(latency, exact=True) as server:
            loop = statistics.median(asyncio.run(bare(server.url, 30, 1000)) for _ in range(repeat))
            at = f"at {latency * 1000:.0f} ms"
            table.add(f"bare loop {at}: span", loop, None, "s")
            for workers in each:
                runs = [run(server, *conversations(30), f"-n{workers}", "--concurrency=128") for _ in range(repeat)]
                found = median(runs, lambda one: one.span)
                table.add(f"30 x 20 {at}, -n {workers}: span against a bare loop", found / loop, SPAN_RATIO, "times")
                rest = median(runs, lambda one: one.wall - one.span)
                table.add(f"30 x 20 {at}, -n {workers}: command beyond the span", rest, None, "s")


def cpu(table: Table, repeat: int) -> None:
    """CPU a call with everything but start-up: storing, checking, judging, the report."""
    with serving(LATENCY) as server:
        for number in (30, 120):
            short = [run(server, *conversations(number), "-n0", "--num-turns=1") for _ in range(repeat)]
            whole = [run(server, *conversations(number), "-n0", "--concurrency=256") for _ in range(repeat)]
            calls = median(whole, lambda one: one.calls) - median(short, lambda one: one.calls)
            used = median(whole, lambda one: one.cpu) - median(short, lambda one: one.cpu)
            table.add(f"{number} x 20: CPU a call, report included", used / calls * 1000, CPU_MS, "ms")


def memory(table: Table, repeat: int) -> None:
    """300 conversations of 20 turns: memory of a worker."""
    with serving(0.5) as server:
        runs = [run(server, *conversations(300), "-n2", "--concurrency=1000") for _ in range(repeat)]
        table.add("300 x 20 at 500 ms, -n 2: a worker", median(runs, lambda one: one.worker_mib), WORKER_MIB, "MiB")
        table.add("  the controller", median(runs, lambda one: one.controller_mib), None, "MiB")
        ratio = median(runs, lambda one: one.span) / (CRITICAL_PATH * 0.5)
        table.add("  span against the critical path", ratio, None, "times")


def directory(table: Table, repeat: int) -> None:
    """30 conversations of 20 turns: size of the run directory."""
    with serving(0.0) as server:
        sizes = run(server, *conversations(30), "-n0").sizes
        table.add("30 x 20: run directory", sum(sizes.values()) / 1e6, DIRECTORY_MB, "MB")
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:4]:
            table.add(f"  {name}", size / 1e6, None, "MB")


def throttled(table: Table, repeat: int) -> None:
    """120 conversations against an endpoint that answers 429 above 40 requests in flight."""
    with serving(0.1, most=40) as server:
        runs = [run(server, *conversations(120), "-n2", "--concurrency=128") for _ in range(repeat)]

        def settled(one: Measured) -> float:
            begin, end = one.flights[0][0] + one.span * 0.25, one.flights[0][0] + one.span * 0.75
            return statistics.fmean(number for at, number in one.flights if begin <= at <= end)

        table.add("429 above 40: in flight, middle half", median(runs, settled), None, "requests")
        ideal = max(runs[0].calls * 0.1 / 40, CRITICAL_PATH * 0.1)
        table.add("  span against the ideal", median(runs, lambda one: one.span / ideal), 1.3, "times")
        table.add("  refused of all", median(runs, lambda one: one.refused / one.calls), 0.1, "")


def own_scenarios(folder: Path, number: int) -> Path:
    """A file of the bundled scenarios under new names, each with a message of its own."""
    bundled = sorted((HERE.parent / "scenarios" / "tempaffect").glob("*.json"))
    known = [scenario for path in bundled for scenario in json.loads(path.read_text(encoding="utf-8"))]
    scenarios = []
    for n in range(number):
        scenario = known[n % len(known)]
        message = f"{scenario['user_message']} This is case {n}."
        scenarios.append({**scenario, "id": f"own-{n:05}", "user_message": message})
    path = folder / f"own-{number}.json"
    path.write_text(json.dumps(scenarios), encoding="utf-8")
    return path


def large(table: Table, repeat: int) -> None:
    """1,000 to 10,000 own scenarios in both modes: CPU from collection to report, and memory of the controller."""
    with serving(0.0) as server, tempfile.TemporaryDirectory() as folder:
        for model in ("dry/perfect", "m"):
            start = run(server, "--suite=tempaffect", "-n0", model=model).cpu
            for number in (1_000, 4_000, 10_000):
                file = own_scenarios(Path(folder), number)
                one = run(server, "--suite=tempaffect", f"--tempaffect-scenarios={file}", "-n0", model=model)
                used = (one.cpu - start) / (number - SCENARIOS) * 1000
                table.add(f"{number:,} own scenarios, {model}: CPU each", used, SCENARIO_MS, "ms")
                table.add("  the controller", one.controller_mib, LARGE_MIB, "MiB")


def scoring(table: Table, repeat: int) -> None:
    """The labelled replies: CPU of scoring one, its scenario compiled before."""
    from pytest_spiral.tempaffect.checks import check_reply
    from pytest_spiral.tempaffect.suite import load_suite

    scenarios = load_suite().by_id
    files = sorted((HERE / "labelled_replies").glob("*.jsonl"))
    rows = [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    for scenario in scenarios.values():
        check_reply(scenario, scenario.reference_reply)

    def milliseconds(row: Mapping[str, str]) -> float:
        began = time.process_time_ns()
        check_reply(scenarios[row["scenario"]], row["reply"])
        return (time.process_time_ns() - began) / 1e6

    rounds = [[milliseconds(row) for row in rows] for _ in range(repeat)]
    least = [min(each) for each in zip(*rounds, strict=True)]
    table.add("a TempAffect reply: CPU of scoring it, median", statistics.median(least), SCORE_MS, "ms")
    table.add("  mean", statistics.fmean(least), SCORE_MS, "ms")
    table.add("  mean, each scored for the first time", statistics.fmean(rounds[0]), SCORE_MS, "ms")


def unused(table: Table, repeat: int) -> None:
    """A pytest run that does not use the plugin, with and without it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_one.py").write_text("def test_one(): pass\n")
        environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(HERE.parent)}

        def seconds(*args: str) -> float:
            began = time.monotonic()
            command = [sys.executable, "-m", "pytest", "-q", *args]
            subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=True)
            return time.monotonic() - began

        with_it, without = [], []
        # In turns, so that other work on the machine meets both.
        for _ in range(6 * repeat):
            with_it.append(seconds("-p", "pytest_spiral.plugin"))
            without.append(seconds())
        table.add("unused plugin: more time", (min(with_it) - min(without)) * 1000, UNUSED_MS, "ms")


ROWS = {
    "span": span, "cpu": cpu, "memory": memory, "directory": directory, "throttled": throttled,
    "large": large, "scoring": scoring, "unused": unused,
}  # fmt: skip


def main() -> None:
    """Measure the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(ROWS)}; all by default")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"unknown row {unknown[0]}; known are {', '.join(ROWS)}")
    table = Table()
    for name in options.rows or ROWS:
        print(f"{name}: {ROWS[name].__doc__}", flush=True)
        ROWS[name](table, options.repeat)
    table.show()


if __name__ == "__main__":
    main()
