"""Speed and thrift: what a run needs beyond the latency of the models it asks.

    python benchmarks/speed.py [--quick] [--repeat 3] [ROW ...]

Every row is a whole `pytest --model=...` in a process of its own against the same local endpoint, beside a bare loop of
requests that stores, checks and judges nothing. Prints a table: what was measured, and its ratio to the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TURNS = 20
# Evaluated model and seeker by turns, then the last chunk's judge and the final one.
CRITICAL_PATH = TURNS + (TURNS - 1) + 1 + 1


@dataclass
class Server:
    """The endpoint in a process of its own."""

    url: str

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats") as answer:  # our own loopback
            return json.load(answer)


@contextlib.contextmanager
def serving(latency: float, most: int = 0, *, exact: bool = False) -> Iterator[Server]:
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
    """One run. Seconds, MiB, bytes."""

    wall: float
    span: float
    calls: int
    refused: int
    peak_in_flight: int
    flights: list[tuple[float, int]]
    cpu: float
    loop_cpu: float
    lead_mib: float
    worker_mib: float
    written: int
    texts: int

    @property
    def cpu_per_call(self) -> float:
        """Milliseconds."""
        return self.cpu / self.calls * 1000


def run(server: Server, *args: str) -> Measured:
    """A whole pytest run against the server."""
    with tempfile.TemporaryDirectory() as folder:
        meter = Path(folder, "meter")
        meter.mkdir()
        # No dependencies of the package, and nltk spends a second on them where they are there.
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
            "--model=m", "--user-model=u", "--judge-model=j", "--run-id=r", "--report-dir=out", *args,
        ]  # fmt: skip
        server.stats()
        began = time.monotonic()
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        wall = time.monotonic() - began
        if done.returncode not in (0, 11):
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
        stats = server.stats()
        parts = [json.loads(path.read_text()) for path in meter.glob("*.json")]
        workers = [part for part in parts if part["worker"]]
        reports = Path(folder, "out", "r")
        other = sum(path.stat().st_size for path in reports.rglob("*.*") if ".sqlite" not in path.name)
        with contextlib.closing(sqlite3.connect(reports / "run.sqlite")) as store:
            (texts,) = store.execute("SELECT sum(length(content)) FROM text").fetchone()
        return Measured(
            wall=wall,
            span=stats["span"],
            calls=stats["requests"],
            refused=stats["refused"],
            peak_in_flight=stats["peak"],
            flights=stats["flights"],
            cpu=sum(part["cpu"] for part in parts),
            loop_cpu=sum(part["loop_cpu"] for part in parts),
            lead_mib=max(part["peak_mib"] for part in parts if not part["worker"]),
            worker_mib=max((part["peak_mib"] for part in workers), default=0.0),
            written=sum(part["written"] for part in parts) - other,
            texts=texts,
        )


async def bare(url: str, conversations: int, in_flight: int) -> float:
    """The same calls by aiohttp alone; returns the seconds from the first to the last."""
    import aiohttp

    slots = asyncio.Semaphore(in_flight)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(messages: list[dict[str, str]]) -> str:
            async with slots, session.post(f"{url}/chat/completions", json={"model": "m", "messages": messages}) as got:
                return (await got.json(content_type=None))["choices"][0]["message"]["content"]

        async def talk() -> None:
            messages = [{"role": "user", "content": "hello"}]
            judges = []
            for turn in range(TURNS):
                messages.append({"role": "assistant", "content": await ask(messages)})
                judges.append(asyncio.create_task(ask(messages[-2:])))
                if turn < TURNS - 1:
                    messages.append({"role": "user", "content": await ask(messages)})
            await asyncio.gather(*judges)
            await ask(messages)

        began = time.monotonic()
        await asyncio.gather(*(talk() for _ in range(conversations)))
        return time.monotonic() - began


@dataclass
class Table:
    """Rows of what was measured against its limit."""

    rows: list[tuple[str, str, str, float]] = field(default_factory=list)

    def add(self, name: str, measured: float, limit: float, unit: str) -> None:
        self.rows.append((name, f"{measured:.2f} {unit}", f"{limit:.2f} {unit}", measured / limit))
        print(f"  {name}: {measured:.2f} of {limit:.2f} {unit}", flush=True)

    def tell(self, name: str, measured: float, unit: str) -> None:
        """A row without a limit."""
        self.rows.append((name, f"{measured:.2f} {unit}", "", 0.0))
        print(f"  {name}: {measured:.2f} {unit}", flush=True)

    def show(self) -> None:
        print("\n| what | measured | limit | ratio |\n|---|---|---|---|")
        for name, measured, limit, ratio in self.rows:
            beside = f"{ratio:.2f}{' **over**' if ratio > 1 else ''}" if limit else ""
            print(f"| {name} | {measured} | {limit} | {beside} |")


def conversations(number: int) -> tuple[str, ...]:
    return "--suite=spiral", f"--convos-per-prompt={number // 30}"


def median(runs: Sequence[Measured], what: Callable[[Measured], float]) -> float:
    return statistics.median(what(one) for one in runs)


def thirty(table: Table, repeat: int) -> None:
    """30 conversations at 50 ms."""
    ideal = CRITICAL_PATH * 0.05
    with serving(0.05, exact=True) as server:
        reference = statistics.median(asyncio.run(bare(server.url, 30, 1000)) for _ in range(repeat))
        table.add("30 x 20 at 50 ms: bare loop, span", reference, 1.10 * ideal, "s")
        for workers, extra in ((0, 1.5), (2, 2.5)):
            runs = [run(server, *conversations(30), "-n", str(workers), "--concurrency=128") for _ in range(repeat)]
            span = median(runs, lambda one: one.span)
            table.add(f"30 x 20 at 50 ms, -n {workers}: span", span, 1.10 * ideal, "s")
            beyond = median(runs, lambda one: one.wall - one.span)
            table.add(f"30 x 20 at 50 ms, -n {workers}: whole command beyond the span", beyond, extra, "s")


def three_hundred(table: Table, repeat: int) -> None:
    """300 conversations at 500 ms and at 50 ms."""
    ideal = CRITICAL_PATH * 0.5
    with serving(0.5) as server:
        table.add("300 x 20 at 500 ms: bare loop, span", asyncio.run(bare(server.url, 300, 1000)), 1.10 * ideal, "s")
        for workers in (0, 2):
            runs = [run(server, *conversations(300), "-n", str(workers), "--concurrency=1000") for _ in range(repeat)]
            table.add(f"300 x 20 at 500 ms, -n {workers}: span", median(runs, lambda one: one.span), 1.10 * ideal, "s")
            table.add(f"  lead at {runs[0].calls} calls", median(runs, lambda one: one.lead_mib), 200, "MiB")
            if workers:
                table.add("  a worker", median(runs, lambda one: one.worker_mib), 200, "MiB")
    with serving(0.05) as server:
        runs = [run(server, *conversations(300), "-n", "0", "--concurrency=1000") for _ in range(repeat)]
        engine = median(runs, lambda one: one.loop_cpu / one.calls * 1000)
        table.add("300 x 20 at 50 ms, -n 0: CPU a call, from the first item to the last", engine, 0.9, "ms")
        table.tell("  the same with start-up and report", median(runs, lambda one: one.cpu_per_call), "ms")


def growth(table: Table, repeat: int) -> None:
    """Cost per call at 30, 120 and 480 conversations, start-up left out."""
    with serving(0.05) as server:
        start = statistics.median(
            run(server, *conversations(30), "-n", "0", "--num-turns=1").cpu for _ in range(repeat)
        )
        found = {}
        for number in (30, 120, 480):
            runs = [run(server, *conversations(number), "-n", "0", "--concurrency=256") for _ in range(repeat)]
            cpu = median(runs, lambda one: (one.cpu - start) / one.calls * 1000)
            written = median(runs, lambda one: one.written / one.calls)
            found[number] = cpu, written
            table.add(f"{number} x 20: CPU a call", cpu, 1.10 * found[30][0], "ms")
            table.add(f"{number} x 20: bytes a call", written, 1.10 * found[30][1], "B")
            table.add(
                f"{number} x 20: store bytes per byte of text", median(runs, lambda one: one.written / one.texts), 4, ""
            )


def items(table: Table, repeat: int) -> None:
    """10,050 scenario items."""
    with serving(0.05) as server:
        runs = [run(server, "--suite=tempaffect", "--epochs=67", "-n", "2", "--concurrency=256") for _ in range(repeat)]
        table.add("10,050 items at 50 ms, -n 2: span", median(runs, lambda one: one.span), 10_050 / 256 * 0.05 * 4, "s")
        table.add("  CPU an item", median(runs, lambda one: one.cpu_per_call), 10, "ms")
        table.add("  a worker", median(runs, lambda one: one.worker_mib), 400, "MiB")


def throttled(table: Table, repeat: int) -> None:
    """An endpoint that answers 429 above 40 in flight."""
    with serving(0.1, most=40) as server:
        runs = [run(server, *conversations(120), "-n", "2", "--concurrency=128") for _ in range(repeat)]

        def settled(one: Measured) -> float:
            begin, end = one.flights[0][0] + one.span * 0.25, one.flights[0][0] + one.span * 0.75
            middle = [(at, number) for at, number in one.flights if begin <= at <= end]
            return statistics.fmean(number for _, number in middle)

        mean = median(runs, settled)
        table.add("429 above 40: 40 / requests in flight, middle half", 40 / mean, 1.25, "")
        ideal = max(runs[0].calls * 0.1 / 40, CRITICAL_PATH * 0.1)
        table.add("429 above 40: span", median(runs, lambda one: one.span), 1.3 * ideal, "s")
        table.add("  refused of all", median(runs, lambda one: one.refused / one.calls), 0.1, "")


def histories(table: Table, repeat: int) -> None:
    """CPU of one call by the length of its history, client, key and store included."""
    from pytest_spiral.chat import ChatRequest, Message
    from pytest_spiral.models.endpoint import Endpoint
    from pytest_spiral.models.limiter import Limiter
    from pytest_spiral.models.openai_compatible import OpenAICompatible
    from pytest_spiral.store import RunStore, StoredChat

    async def calls(url: str, turns: int, folder: str) -> float:
        store = RunStore.create_or_resume(Path(folder, f"{turns}.sqlite"), {})
        chat = StoredChat(OpenAICompatible(Endpoint("evaluated", url), limiter=Limiter(60)), store)
        text = "A message of some length, as people write them. " * 12
        past = [Message("user" if n % 2 == 0 else "assistant", f"{n} {text}") for n in range(2 * turns)]

        async def one(number: int) -> None:
            await chat.complete(ChatRequest("evaluated", "m", (*past, Message("user", str(number)))))

        await asyncio.gather(*(one(-number) for number in range(1, 61)))
        began = time.process_time()
        await asyncio.gather(*(one(number) for number in range(1000)))
        used = time.process_time() - began
        await chat.aclose()
        store.close()
        return used

    with serving(0.05) as server:
        for turns in (0, 10, 20):
            used = []
            for _ in range(repeat):
                with tempfile.TemporaryDirectory() as folder:
                    used.append(asyncio.run(calls(server.url, turns, folder)))
            table.add(f"one call after {turns} turns: CPU", statistics.median(used), 0.9, "ms")


def start_up(table: Table, repeat: int) -> None:
    """A pytest run that does not use the plugin, with and without it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_one.py").write_text("def test_one(): pass\n")

        def seconds(*args: str) -> float:
            began = time.monotonic()
            environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            command = [sys.executable, "-m", "pytest", "-q", *args]
            subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=True)
            return time.monotonic() - began

        with_it, without = [], []
        for _ in range(4 * repeat):
            with_it.append(seconds("-p", "pytest_spiral.plugin"))
            without.append(seconds())
        table.add("unused plugin, seconds a run against none", min(with_it) / min(without), 1.10, "")


ROWS = {
    "thirty": thirty, "three-hundred": three_hundred, "growth": growth, "items": items, "throttled": throttled,
    "histories": histories, "start-up": start_up,
}  # fmt: skip


def main() -> None:
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
