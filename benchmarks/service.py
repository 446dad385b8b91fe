"""The service under load, with 1 and 10,000 models, and through kills.

    python benchmarks/service.py [load models kills] [--rate 200] [--seconds 30] [--rows 100] [--columns 10]
        [--models 10000] [--batches 3600] [--kills 20] [--quick]

Each part starts `everlearn serve` in a process of its own.

Load: rows are sent at the given rate whatever the answers take (so that a slow service is not spared), with a question
for every twentieth request: latencies, the rate that was reached, the rows still waiting at the end, memory over time.

Models: as many requests as sixteen connections can make, of one row each, to models chosen at random: learn, then
score; requests a second and memory with one model and with many.

Kills: an hour's worth of batches, one row a second, sent by `everlearn.Client` one after the other as fast as it goes,
while the service is killed (SIGKILL) and started again; every row must be learned once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
from _page import others_at_work, parser, write_page_of_parts, write_part

import everlearn
from everlearn.streams.store.store import Store

CONNECTIONS = 32
CLOSED_CONNECTIONS = 16


def parsed() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("parts", nargs="*", choices=[*PARTS, "all", "page"], default="all", help="page: of what is there")
    made.add_argument("--rate", type=float, default=200.0, help="requests a second")
    made.add_argument("--seconds", type=float, default=30.0)
    made.add_argument("--rows", type=int, default=100)
    made.add_argument("--columns", type=int, default=10)
    made.add_argument("--models", type=int, default=10_000, help="models beside which one is measured")
    made.add_argument("--model-seconds", type=float, default=10.0, help="of requests of each kind")
    made.add_argument("--batches", type=int, default=3600)
    made.add_argument("--kills", type=int, default=20)
    options = made.parse_args()
    if options.quick:
        options.seconds, options.model_seconds, options.models = 3.0, 1.0, 100
        options.batches, options.kills = 60, 1
    return options


def bodies(n_rows: int, n_columns: int, n_bodies: int = 50) -> list[bytes]:
    """Requests with rows of four regimes, as JSON."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, n_columns)) * 5
    mixing = rng.normal(size=(4, n_columns, n_columns)) / np.sqrt(n_columns)
    found = []
    for i in range(n_bodies):
        k = i % 4
        X = centres[k] + rng.normal(size=(n_rows, n_columns)) @ mixing[k]
        found.append(json.dumps({"rows": X.round(5).tolist()}).encode())
    return found


class Service:
    """`everlearn serve` in a process of its own."""

    def __init__(self, state: Path, port: int = 0, *options: str) -> None:
        program = [sys.executable, "-m", "everlearn", "serve", "--state", str(state)]
        command = [*program, "--port", str(port), "--rate", "100000", *options]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[2].rstrip("/")
        while True:
            try:
                httpx.get(f"{self.url}/health")
                return
            except httpx.TransportError:
                time.sleep(0.1)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load:
    """Requests at a steady rate; latencies count from the moment at which a request was due."""

    def __init__(self, service: Service, options: argparse.Namespace) -> None:
        self.service, self.options = service, options
        self.host, _, port = service.url.removeprefix("http://").partition(":")
        self.port = int(port)
        self.learn: list[float] = []
        self.ask: list[float] = []
        self.memory: list[float] = []
        self.failures = 0

    async def run(self, seconds: float) -> None:
        rows = [self._request("/models/m/learn", body) for body in bodies(self.options.rows, self.options.columns)]
        question = self._request("/models/m/predict", b'{"rows": [{"x0": 1.0}], "target": ["x1"]}')
        due: asyncio.Queue[tuple[float, bytes, list[float]] | None] = asyncio.Queue()
        senders = [asyncio.create_task(self._send(due)) for _ in range(CONNECTIONS)]
        start = time.perf_counter()
        for i in range(int(seconds * self.options.rate)):
            at = start + i / self.options.rate
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            due.put_nowait((at, rows[i % len(rows)], self.learn))
            if i % 20 == 19:
                due.put_nowait((at, question, self.ask))
            if i % int(self.options.rate) == 0:
                self.memory.append(self.service.resident_mib())
        for _ in senders:
            due.put_nowait(None)
        await asyncio.gather(*senders)

    def _request(self, path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def _send(self, due: asyncio.Queue[tuple[float, bytes, list[float]] | None]) -> None:
        """One connection, kept open: the next request that is due, its answer, and so on."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        while (item := await due.get()) is not None:
            at, request, times = item
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
            times.append(time.perf_counter() - at)
            self.failures += head[9:12] not in ("200", "202")
        writer.close()


def caught_up(service: Service) -> tuple[int, float, dict]:
    """Rows that waited at the end of the load, and the seconds until they were learned."""
    started = time.perf_counter()
    first = summary = httpx.get(f"{service.url}/models/m", timeout=60.0).json()
    while summary["waiting"]:
        time.sleep(0.05)
        summary = httpx.get(f"{service.url}/models/m", timeout=60.0).json()
    return first["waiting"], time.perf_counter() - started, summary


def quantiles(values: list[float]) -> str:
    ms = 1000 * np.quantile(values, [0.5, 0.95, 0.99, 1.0])
    return " | ".join(f"{value:.0f}" for value in ms)


# -- many models -----------------------------------------------------------------------------------


class Answers(NamedTuple):
    """What a number of models could do."""

    n_models: int
    quick: bool
    started: float
    learn: list[float]
    learn_wall: float
    learned_rate: float
    learn_cpu: float  # of the service, until all is learned
    score: list[float]
    score_wall: float
    score_cpu: float
    memory: tuple[float, float, float]
    state_mib: float


def many_models(folder: Path, n_models: int, n_columns: int, seconds: float, *, quick: bool) -> Answers:
    """Requests a second of one row each, to models chosen at random; `quick` answers come without a search."""
    state = folder / f"models{n_models}{quick}.db"
    copy_models(state, n_models, n_columns)
    began = time.perf_counter()
    service = Service(state, 0, *(["--quick-answers"] if quick else []))
    started = time.perf_counter() - began
    try:
        empty = service.resident_mib()
        # Loops that a first question loads, or compiles, are not what is measured.
        asyncio.run(as_many_as_possible(service, "score", 1, n_columns, 0.01))
        cpu = [service.cpu_seconds()]
        learn, learn_wall = asyncio.run(as_many_as_possible(service, "learn", n_models, n_columns, seconds))
        caught_up_seconds = wait_for_all(state)
        learned = service.resident_mib()
        cpu.append(service.cpu_seconds())
        score, score_wall = asyncio.run(as_many_as_possible(service, "score", n_models, n_columns, seconds))
        cpu.append(service.cpu_seconds())
        memory = (empty, learned, service.resident_mib())
    finally:
        service.stop()
    rate = len(learn) / (learn_wall + caught_up_seconds)
    size = state.stat().st_size / 2**20
    learn_cpu, score_cpu = np.diff(cpu)
    return Answers(
        n_models, quick, started, learn, learn_wall, rate, learn_cpu, score, score_wall, score_cpu, memory, size
    )


def copy_models(state: Path, n_models: int, n_columns: int) -> None:
    """A state file with copies of one model that has learned 600 rows, written by SQLite itself."""
    rng = np.random.default_rng(0)
    model = everlearn.IncrementalGaussianMixture().partial_fit(rng.normal(size=(600, n_columns)))
    with Store(state) as store:
        store.commit("m0", model, 0, position={"inbox": {"columns": [f"x{j}" for j in range(n_columns)]}})
    connection = sqlite3.connect(state)
    with connection:
        for table, fields in (
            ("model", "version, kind, n_rows, columns, position, memory, updated"),
            ("model_file", "data"),
        ):
            connection.execute(
                f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
                f"INSERT INTO {table} (name, {fields}) SELECT 'm' || i, {fields} FROM n, {table} "
                f"WHERE name = 'm0' AND ? > 1",
                (n_models, n_models),
            )
    connection.close()


async def as_many_as_possible(
    service: Service, path: str, n_models: int, n_columns: int, seconds: float
) -> tuple[list[float], float]:
    """Latencies of requests that each of several connections makes one after the other, and the time they took."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def ask(number: int) -> None:
        rng = np.random.default_rng(number)
        reader, writer = await asyncio.open_connection(host, int(port))
        while (started := time.perf_counter()) < end:
            body = json.dumps({"rows": [rng.normal(size=n_columns).round(5).tolist()]})
            head = f"POST /models/m{rng.integers(n_models)}/{path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            fields = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write((head + fields + body).encode())
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            await reader.readexactly(int(answer.partition("content-length: ")[2].partition("\r\n")[0]))
            assert answer[9:12] in ("200", "202"), answer
            times.append(time.perf_counter() - started)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*[ask(number) for number in range(CLOSED_CONNECTIONS)])
    return times, time.perf_counter() - began


def wait_for_all(state: Path) -> float:
    """Seconds until no rows wait in a state file."""
    began = time.perf_counter()
    with Store(state) as store:
        while store.all_waiting():
            time.sleep(0.1)
    return time.perf_counter() - began


# -- kills -----------------------------------------------------------------------------------------


class Killed(NamedTuple):
    """What came of the rows that were sent while the service was killed."""

    n_batches: int
    n_kills: int
    wall: float
    longest: float
    n_rows: int
    lost: int
    doubled: int
    same_model: bool


def through_kills(folder: Path, n_batches: int, n_kills: int) -> Killed:
    """Send batches of one row while the service is killed and started again."""
    state, port = folder / "kills.db", _free_port()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_batches, 3)) + 5.0 * rng.integers(0, 3, size=(n_batches, 1))
    service, sent, done = [Service(state, port)], [0], threading.Event()

    def kill_now_and_then() -> None:
        # At row numbers, so that every kill falls into the sending, and a moment later: anywhere within a request.
        for at in np.sort(rng.choice(np.arange(5, n_batches - 5), n_kills, replace=False)):
            while sent[0] < at and not done.is_set():
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.05))
            service[0].kill()
            service[0] = Service(state, port)

    killer = threading.Thread(target=kill_now_and_then)
    began, longest = time.perf_counter(), 0.0
    killer.start()
    with everlearn.Client(f"http://127.0.0.1:{port}", patience=600.0) as client:
        for i in range(n_batches):
            started = time.perf_counter()
            client.learn("hour", rows[i : i + 1], columns=["u", "v", "w"])
            longest, sent[0] = max(longest, time.perf_counter() - started), i + 1
        wall = time.perf_counter() - began
        done.set()
        killer.join()
        n_rows = client.wait("hour")["rows"]
        learned = client.model("hour")
    service[0].stop()
    # Order matters, packaging does not: a row that was lost, doubled or moved would make another model.
    direct = everlearn.IncrementalGaussianMixture().partial_fit(rows)
    same = np.allclose(learned.means_, direct.means_, rtol=1e-9) and np.allclose(
        learned.covariances_, direct.covariances_, rtol=1e-9
    )
    lost, doubled = max(n_batches - n_rows, 0), max(n_rows - n_batches, 0)
    return Killed(n_batches, n_kills, wall, longest, n_rows, lost, doubled, same)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- all of it -------------------------------------------------------------------------------------


def load_part(folder: Path, options: argparse.Namespace) -> str:
    return under_load(folder, options)


def models_part(folder: Path, options: argparse.Namespace) -> str:
    runs = [(n, quick) for n in (1, options.models) for quick in (False, True)]
    return models_table(
        [many_models(folder, n, options.columns, options.model_seconds, quick=quick) for n, quick in runs]
    )


def kills_part(folder: Path, options: argparse.Namespace) -> str:
    return kills_table(through_kills(folder, options.batches, options.kills))


PARTS = {"load": load_part, "models": models_part, "kills": kills_part}


def main() -> None:
    options = parsed()
    for part in PARTS if "all" in options.parts else [each for each in options.parts if each != "page"]:
        others = others_at_work()
        with tempfile.TemporaryDirectory() as folder:
            text = PARTS[part](Path(folder), options)
        write_part("service", part, text + others, quick=options.quick)
    if not options.quick:
        write_page_of_parts("service", "The service under load", tuple(PARTS))


def under_load(folder: Path, options: argparse.Namespace) -> str:
    service = Service(folder / "run.db")
    try:
        asyncio.run(Load(service, options).run(3.0))
        caught_up(service)
        load, cpu, started = Load(service, options), service.cpu_seconds(), time.perf_counter()
        asyncio.run(load.run(options.seconds))
        wall = time.perf_counter() - started
        waiting, seconds, summary = caught_up(service)
        cpu = service.cpu_seconds() - cpu
        size = (folder / "run.db").stat().st_size / 2**20
    finally:
        service.stop()
    return report(options, load, wall, cpu, waiting, seconds, summary, size)


def models_table(answers: list[Answers]) -> str:
    def row(name: str, *cells: str) -> str:
        return f"| {name} | " + " | ".join(cells) + " |"

    def each(show: str, value: Callable[[Answers], object]) -> list[str]:
        return [show.format(value(a)) for a in answers]

    lines = [
        row("models", *each("{:,}", lambda a: a.n_models)),
        "|---|" + "---|" * len(answers),
        row("`--quick-answers`", *each("{}", lambda a: "yes" if a.quick else "no")),
        row("learn, requests a second acknowledged", *each("{:,.0f}", lambda a: len(a.learn) / a.learn_wall)),
        row("learn, rows a second learned and committed", *each("{:,.0f}", lambda a: a.learned_rate)),
        row("learn, median and 99 % in ms", *each("{}", lambda a: two_quantiles(a.learn))),
        row("learn, ms of the processor a request", *each("{:.1f}", lambda a: 1e3 * a.learn_cpu / len(a.learn))),
        row("score, requests a second", *each("{:,.0f}", lambda a: len(a.score) / a.score_wall)),
        row("score, median and 99 % in ms", *each("{}", lambda a: two_quantiles(a.score))),
        row("score, ms of the processor a request", *each("{:.1f}", lambda a: 1e3 * a.score_cpu / len(a.score))),
        row("memory at the start, MiB", *each("{:.0f}", lambda a: a.memory[0])),
        row("memory after learning, MiB", *each("{:.0f}", lambda a: a.memory[1])),
        row("memory after scoring, MiB", *each("{:.0f}", lambda a: a.memory[2])),
        row("state file, MiB", *each("{:.1f}", lambda a: a.state_mib)),
        row("seconds until it answers", *each("{:.1f}", lambda a: a.started)),
    ]
    return f"""## Many models

Requests of one row, to models chosen at random, from {CLOSED_CONNECTIONS} connections, each with one request at a
time. 256 models stay in memory for learning and as many for questions; the others lie in the state file. Each model
has learned 600 rows, so that the first question to it is preceded by a search, unless answers are to be quick. The
processor's time is that of the service alone: what other programs take from the clock is not in it.

{chr(10).join(lines)}
"""


def two_quantiles(values: list[float]) -> str:
    median, high = 1000 * np.quantile(values, [0.5, 0.99])
    return f"{median:.1f}, {high:.0f}"


def kills_table(killed: Killed) -> str:
    same = "the one that learned the same rows in one call, without kills" if killed.same_model else "ANOTHER ONE"
    return f"""## An hour of rows through kills

`everlearn.Client` sends batches of one row, one after the other, as many as an hour at one a second has, as fast as
it goes; meanwhile the service is killed (SIGKILL) at random moments and started again on the same state file.

| | |
|---|---|
| batches sent and acknowledged | {killed.n_batches:,} |
| kills | {killed.n_kills} |
| rows learned | {killed.n_rows:,} |
| lost | {killed.lost:,} |
| learned twice | {killed.doubled:,} |
| the model at the end | {same} |
| time for all | {killed.wall:.0f} s, restarts included |
| longest wait for one acknowledgement | {killed.longest:.1f} s |
"""


def report(options, load, wall, cpu, waiting, seconds, summary, size) -> str:
    n, memory, third = len(load.learn), load.memory, max(1, len(load.memory) // 3)
    early, late = np.mean(memory[:third]), np.mean(memory[-third:])
    wanted = f"{options.rate:g} requests a second of {options.rows} rows x {options.columns} columns"
    rates = f"{n / wall:.0f} requests a second, {n * options.rows / wall:,.0f} rows a second"
    lines = {
        "asked for": f"{wanted} for {options.seconds:g} s",
        "acknowledged": f"{rates}; {load.failures} failures of {n:,}",
        "waiting at the end": f"{waiting:,} rows, learned {seconds:.2f} s later; {summary['rows']:,} learned in all",
        "processor": f"{cpu / wall:.2f} cores for the service, learning included: {1e3 * cpu / n:.1f} ms a request",
        "memory": f"{early:.0f} MiB in the first third, {late:.0f} MiB in the last, {max(memory):.0f} MiB at most",
        "state file": f"{size:.1f} MiB at the end",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in lines.items())
    return f"""## Rows at a steady rate

On {os.cpu_count()} cores that the service shares with the program that sends. Requests are sent when they are due,
whatever the answers take;
rows are acknowledged when they are on the disk.

| | |
|---|---|
{table}

| milliseconds until | median | 95% | 99% | most |
|---|---|---|---|---|
| rows are acknowledged | {quantiles(load.learn)} |
| a prediction is answered, meanwhile | {quantiles(load.ask)} |
"""


if __name__ == "__main__":
    main()
