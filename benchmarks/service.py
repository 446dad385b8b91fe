"""The service under load: requests of 100 rows at a steady rate, with questions in between.

    python benchmarks/service.py [--rate 200] [--seconds 60] [--rows 100] [--columns 10] [--quick]

Starts `everlearn serve` in a process of its own, sends rows at the given rate whatever the answers take (so that a slow
service is not spared), asks a question for every twentieth request, and reports latencies, the rate that was reached,
the rows still waiting at the end, and the memory of the process over time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from _page import parser, write_page

CONNECTIONS = 32
RESULT = Path(__file__).parent / "results" / "service.md"


def parsed() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--rate", type=float, default=200.0, help="requests a second")
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument("--rows", type=int, default=100)
    made.add_argument("--columns", type=int, default=10)
    options = made.parse_args()
    if options.quick:
        options.seconds = 3.0
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

    def __init__(self, state: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "everlearn.cli",
            "serve",
            "--state",
            str(state),
            "--port",
            "0",
            "--rate",
            "100000",
        ]
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


def main() -> None:
    options = parsed()
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder) / "run.db")
        try:
            asyncio.run(Load(service, options).run(3.0))
            caught_up(service)
            load, cpu, started = Load(service, options), service.cpu_seconds(), time.perf_counter()
            asyncio.run(load.run(options.seconds))
            wall = time.perf_counter() - started
            waiting, seconds, summary = caught_up(service)
            cpu = service.cpu_seconds() - cpu
            size = (Path(folder) / "run.db").stat().st_size / 2**20
        finally:
            service.process.terminate()
            service.process.wait()
    text = report(options, load, wall, cpu, waiting, seconds, summary, size)
    write_page("service", text, quick=options.quick)


def report(options, load, wall, cpu, waiting, seconds, summary, size) -> str:
    n, memory, third = len(load.learn), load.memory, max(1, len(load.memory) // 3)
    early, late = np.mean(memory[:third]), np.mean(memory[-third:])
    wanted = f"{options.rate:g} requests a second of {options.rows} rows x {options.columns} columns"
    rates = f"{n / wall:.0f} requests a second, {n * options.rows / wall:,.0f} rows a second"
    lines = {
        "asked for": f"{wanted} for {options.seconds:g} s",
        "acknowledged": f"{rates}; {load.failures} failures of {n:,}",
        "waiting at the end": f"{waiting:,} rows, learned {seconds:.2f} s later; {summary['rows']:,} learned in all",
        "processor": f"{cpu / wall:.2f} cores for the service, learning included",
        "memory": f"{early:.0f} MiB in the first third, {late:.0f} MiB in the last, {max(memory):.0f} MiB at most",
        "state file": f"{size:.1f} MiB at the end",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in lines.items())
    return f"""# The service under load

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
