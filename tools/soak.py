"""Learn and serve under load for a while, with kills, full disks and a lost broker; then count every row.

    python tools/soak.py [--minutes 30] [--seed 0]

Four programs run on one small disk: `serve`, to which clients send rows and repeat them until they are acknowledged;
`learn` and `watch` over files that grow; and `learn` over a Redis stream, where redis-server is installed. Every second
or so one of them is killed (SIGKILL, SIGTERM, SIGINT), the disk is filled to its last byte for a moment, or the broker
is killed. Hostile requests come in between. In the last part nothing is disturbed any more, and the memory of the
service is measured at its beginning and at its end. The status is 1 if a row was lost or learned twice, or something
else than our own messages was said.

Programs are forked from a process that has imported everything, so that a kill may fall anywhere and not only into the
start. A disk of its own (tmpfs) needs the right to mount; elsewhere the limit on the size of files stands in for it.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

COLUMNS = ("number", "noise")
DISK_BYTES = 48 << 20
_CALM_SHARE = 0.12  # of the time, at the end, in which nothing is disturbed
_BATCH = 20
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Part(NamedTuple):
    """What became of the rows of one program."""

    name: str
    rows: int  # sent, and acknowledged where somebody acknowledges
    learned: int
    refused: int  # bad rows, as many as were sent on purpose
    lost: int
    doubled: int
    kills: int


class Outcome(NamedTuple):
    """What a soak has shown."""

    parts: list[Part]
    full_disks: int
    lost_brokers: int
    hostile: int
    memory: tuple[int, int]  # MiB of the service at the beginning and end of its last part
    complaints: list[str]

    @property
    def kills(self) -> int:
        """Programs that were killed or stopped by a signal."""
        return sum(part.kills for part in self.parts)

    @property
    def passed(self) -> bool:
        """Whether every row was learned once, and nothing unexpected was said."""
        return not self.complaints and not any(part.lost or part.doubled for part in self.parts)


# -- programs --------------------------------------------------------------------------------------


def fork_programs() -> None:
    """The process that forks: a line of JSON for each program to start, or to ask for its end."""
    import numpy as np

    from everlearn import IncrementalGaussianMixture
    from everlearn.cli import learn_run, main, watch_run  # noqa: F401  loads what a run needs
    from everlearn.service import app, server  # noqa: F401
    from everlearn.streams import runner

    model = IncrementalGaussianMixture()
    model.prequential(np.random.default_rng(0).normal(size=(1500, 2)))
    assert model.n_components_
    runner.COMMIT_SECONDS = 0.1  # more commits, more moments to be killed in
    _audit()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "arguments" in asked:
            pid = os.fork()
            if pid == 0:
                _become(asked["arguments"], asked["log"], main)
            print(pid, flush=True)
        else:
            found, status = os.waitpid(asked["ended"], os.WNOHANG)
            print(json.dumps(os.waitstatus_to_exitcode(status) if found else None), flush=True)


def _audit() -> None:
    """Let sessions keep sums of the numbers that they have learned, exact ones, in the transaction of the model.

    The mean of a model could tell as much, but rounds; here a lost row and a doubled one cannot cancel out.
    """
    from everlearn.streams.session import Session
    from everlearn.watch.session import WatchSession

    for cls in (Session, WatchSession):
        _audit_class(cls)


def _audit_class(cls: Any) -> None:
    learn, memory, restore = cls.learn, cls._memory, cls._restore

    def learn_and_add(self: Any, X: Any, *rest: Any) -> Any:
        result = learn(self, X, *rest)
        numbers = [int(value) for value in X[:, 0] if value == value]  # hostile requests have gaps
        old = getattr(self, "audit", [0, 0, 0])
        self.audit = [old[0] + len(X), old[1] + sum(numbers), old[2] + sum(n * n for n in numbers)]
        return result

    def memory_with_sums(self: Any) -> Any:
        return {**memory(self), "audit": getattr(self, "audit", [0, 0, 0])}

    def restore_with_sums(self: Any, *kept: Any) -> None:
        restore(self, *kept)
        self.audit = kept[-1].get("audit", [0, 0, 0])

    cls.learn, cls._memory, cls._restore = learn_and_add, memory_with_sums, restore_with_sums


def _become(arguments: list[str], log: str, main: Callable[..., Any]) -> None:
    """Be one of the programs, in a child."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Shells let what they start in the background ignore Ctrl-C, and a child would inherit that until it has begun.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 99
    try:
        main(arguments, standalone_mode=True)
    except SystemExit as end:
        status = int(end.code or 0) if not isinstance(end.code, str) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


class Forks:
    """The process that forks programs, as seen from outside."""

    def __init__(self) -> None:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--forks"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._lock = threading.Lock()
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit("The programs cannot be imported.")

    def ask(self, **asked: Any) -> Any:
        """Send a line, read the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()


class Program:
    """One of the programs, started again whenever it has ended."""

    def __init__(self, name: str, arguments: list[str], forks: Forks, folder: Path) -> None:
        self.name, self.kills = name, 0
        self.log = folder / f"{name.replace(' ', '-')}.log"
        self._arguments, self._forks = arguments, forks
        self.endings: Counter[int] = Counter()
        self.start()

    def start(self) -> None:
        """Fork it."""
        self.pid = self._forks.ask(arguments=self._arguments, log=str(self.log))

    def keep_alive(self) -> None:
        """Start it again if it has ended by itself: a disk that is full ends a run with status 4."""
        status = self._forks.ask(ended=self.pid)
        if status is not None:
            self.endings[status] += 1
            self.start()

    def disturb(self, rng: random.Random) -> None:
        """Send a signal; wait for the end; start again."""
        number = rng.choice(_SIGNALS)
        self.kills += 1
        self.stop(number)
        self.start()

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> None:
        """End it, by force if it does not listen."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        end = time.monotonic() + seconds
        while (status := self._forks.ask(ended=self.pid)) is None:
            if time.monotonic() > end:
                self.endings[-1000 - number] += 1  # did not end when told to
                os.kill(self.pid, signal.SIGKILL)
                end = float("inf")
            time.sleep(0.01)
        # Ctrl-C while it starts: click says "Aborted!" and ends with 1.
        self.endings[130 if number == signal.SIGINT and status == 1 else status] += 1

    def memory(self) -> int:
        """MiB that it holds."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) >> 10

    def complaints(self) -> list[str]:
        """What a program must neither say nor end with."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        found = []
        if "Traceback (most recent" in text:
            at = text.index("Traceback (most recent")
            found.append(f"{self.name} printed a traceback: {text[at : at + 2000]}")
        # 0: stopped by a signal that asks; 4: no room; 130: interrupted; negative: killed by us.
        odd = {status for status in self.endings if status not in (0, 4, 130, 143, -9, -2, -15)}
        return found + ([f"{self.name} ended with {sorted(odd)}: {text[-1000:]}"] if odd else [])


# -- the disk --------------------------------------------------------------------------------------


class Disk:
    """A small disk that can be filled to its last byte, or limits on the size of files in its place."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "disk"
        self.path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self.path)]
        self.mounted = shutil.which("mount") is not None and (
            subprocess.run(command, capture_output=True, check=False).returncode == 0
        )

    @contextlib.contextmanager
    def full(self, pids: list[int]) -> Iterator[None]:
        """Fill it as long as the block lasts."""
        if not self.mounted:
            with self._limited(pids):
                yield
            return
        filler = self.path / "filler"
        try:
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
            yield
        finally:
            filler.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _limited(self, pids: list[int]) -> Iterator[None]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 12, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def close(self) -> None:
        """Give it back."""
        if self.mounted:
            subprocess.run(["umount", str(self.path)], capture_output=True, check=False)


# -- load ------------------------------------------------------------------------------------------


class Sender:
    """A thread that makes rows until told to stop; each row has a number of its own."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = random.Random(seed)
        self.rows = self.bad = 0
        self.sums = [0, 0]  # of the numbers and their squares
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """Send what is begun, and end."""
        self.stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self.stop.is_set():
            first = self.rows
            rows = [(first + i, round(self.rng.gauss(0.0, 1.0), 6)) for i in range(self.rng.randint(1, 2 * _BATCH))]
            self.send(rows)
            self.rows += len(rows)
            self.sums = [self.sums[k] + sum(number ** (k + 1) for number, _ in rows) for k in range(2)]
            time.sleep(self.rng.uniform(0.02, 0.1))

    def send(self, rows: list[tuple[int, float]]) -> None:
        """Send rows, until they are safe."""
        raise NotImplementedError


class HttpSender(Sender):
    """Sends rows to the service, with a key, until they are acknowledged; some it sends again all the same."""

    def __init__(self, name: str, seed: int, port: int, bad: list[str]) -> None:
        super().__init__(name, seed)
        self.port, self.hostile, self.unexpected = port, 0, bad
        self._attacks = _attacks(self.rng)

    def send(self, rows: list[tuple[int, float]]) -> None:
        """POST until 202; between two tries, a hostile request now and then."""
        body = json.dumps({"columns": COLUMNS, "rows": rows}).encode()
        key = {"Idempotency-Key": f"{self.name} {rows[0][0]}", "Content-Type": "application/json"}
        repeats = 2 if self.rng.random() < 0.2 else 1
        while repeats:
            status = self._post("POST", f"/models/{self.name}/learn", body, key)
            if status == 202:
                repeats -= 1
                continue
            if status not in (None, 429, 503, 507):
                self.unexpected.append(f"rows were answered with status {status}")
                return
            time.sleep(self.rng.uniform(0.02, 0.2))
        if self.rng.random() < 0.5:
            status = self._post(*next(self._attacks))
            self.hostile += 1
            if status == 500:
                self.unexpected.append("a hostile request was answered with 500")

    def _post(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> int | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30.0)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def _attacks(rng: random.Random) -> Iterator[tuple[str, str, bytes, dict[str, str]]]:
    """Requests that nobody should send, mutated like those of the fuzzer."""
    from fuzz import mutated
    from fuzz_targets import Requests, _scope

    target = Requests.__new__(Requests)  # for its seeds and mutations; it needs no application
    target.folder = ""
    corpus = target.seeds()
    while True:
        scope, body = _scope(mutated(target, corpus, rng))
        path = scope["raw_path"].decode("latin-1") or "/"
        # Models of the soak itself are left alone, and streams that never end are not opened.
        if not path.isascii() or not path.isprintable() or " " in path or not path.startswith("/"):
            continue
        if "/events" in path or path.startswith("/models/s"):
            continue
        headers = {"Content-Type": "application/json"}
        yield scope["method"], path, body, headers


class FileSender(Sender):
    """Appends rows to files, begins a new one now and then, and puts a bad line among them here and there."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        super().__init__(name, seed)
        self._folder, self._n_files = folder, 0
        # Columns are judged by the first rows of the first file: a bad line must not be a tenth of them.
        self._next_file(n_rows=30)

    def _next_file(self, n_rows: int = 1) -> None:
        self._path = self._folder / f"rows-{self._n_files:05d}.csv"
        self._path.write_text(f"{','.join(COLUMNS)}\n" + "0,0\n" * n_rows, encoding="utf-8")
        self.rows += n_rows  # of number 0: a file needs a row to be recognised
        self._n_files += 1

    def send(self, rows: list[tuple[int, float]]) -> None:
        """Append."""
        lines = [f"{number},{noise}\n" for number, noise in rows]
        if self.rng.random() < 0.1:
            lines.insert(self.rng.randrange(len(lines) + 1), "bad,row\n")
            self.bad += 1
        with open(self._path, "a", encoding="utf-8") as file:
            file.write("".join(lines))
        if self.rng.random() < 0.01:
            self._next_file()


class RedisSender(Sender):
    """Adds rows to a stream; an entry counts when the broker, which keeps it on the disk, has said its id."""

    def __init__(self, name: str, seed: int, port: int) -> None:
        super().__init__(name, seed)
        self._port = port

    def send(self, rows: list[tuple[int, float]]) -> None:
        """XADD each row until it is there; its id is its number, so that a second try cannot add it again."""
        import redis

        while True:
            try:
                with redis.Redis(port=self._port, socket_timeout=5.0) as client:
                    for number, noise in rows:
                        with contextlib.suppress(redis.ResponseError):  # there already
                            client.xadd("rows", {"number": number, "noise": noise}, id=f"1-{number + 1}")
                return
            except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
                time.sleep(0.1)


class Broker:
    """redis-server, which writes every entry to the disk before it says so."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port, self.losses = folder, _free_port(), 0
        self._folder.mkdir()
        self.start()

    def start(self) -> None:
        """Start it, on the files of the one before."""
        options = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--dir", str(self._folder), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def lose(self, seconds: float) -> None:
        """Kill it, and start it again after a while."""
        self.losses += 1
        self.close()
        time.sleep(seconds)
        self.start()

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- the run ---------------------------------------------------------------------------------------


class Soak:
    """Everything that runs.

    Parameters
    ----------
    minutes : float
        How long.
    seed : int
        Of all randomness but the scheduling of the machine.
    folder : Path
        A folder of its own.
    """

    def __init__(self, minutes: float, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.seconds = 60.0 * minutes
        self.unexpected: list[str] = []
        self.full_disks = 0
        self.programs: dict[str, Program] = {}
        self.forks = Forks()
        self.disk = Disk(folder)
        try:
            self._start(seed)
        except BaseException:  # SIGTERM included
            self.close()
            raise

    def _start(self, seed: int) -> None:
        """Start all programs and those who send to them."""
        self.broker: Broker | None = None
        port = _free_port()
        rows = self.folder / "files"
        rows.mkdir()
        files = FileSender("files", seed + 10, rows)
        self.senders: dict[str, list[Sender]] = {
            "serve": [HttpSender(f"s{i % 2}", seed + i, port, self.unexpected) for i in range(2)],
            "learn, files": [files],
            "watch, files": [files],
        }
        learn, watch = (["--state", str(self.disk.path / f"{name}.db"), "--follow"] for name in ("learn", "watch"))
        served = ["--state", str(self.disk.path / "serve.db"), "--port", str(port), "--rate", "1e6"]
        watched = [*watch, "--quiet", "--false-alarms", "1/10000rows"]
        self._program("serve", ["serve", *served])
        self._program("learn, files", ["learn", str(rows / "rows-*.csv"), *learn, "--quiet"])
        self._program("watch, files", ["watch", str(rows / "rows-*.csv"), *watched])
        self.broker = Broker(self.folder / "redis") if shutil.which("redis-server") else None
        if self.broker is not None:
            where = f"redis://127.0.0.1:{self.broker.port}/rows"
            sender = RedisSender("redis", seed + 20, self.broker.port)
            self.senders["learn, Redis"] = [sender]
            sender.send([(0, 0.0)])  # the columns are found from the first entry
            sender.rows = 1
            options = ["--state", str(self.disk.path / "redis.db"), "--columns", ",".join(COLUMNS), "--quiet"]
            self._program("learn, Redis", ["learn", where, *options])

    def _program(self, name: str, arguments: list[str]) -> None:
        self.programs[name] = Program(name, arguments, self.forks, self.folder)

    def run(self) -> Outcome:
        """Disturb, then let everything come to rest, then count."""
        end = time.monotonic() + self.seconds
        rough = end - _CALM_SHARE * self.seconds
        for sender in self._all_senders():
            sender.start()
        while time.monotonic() < rough:
            self._disturb()
        for program in self.programs.values():
            program.keep_alive()
        time.sleep(min(5.0, 0.2 * _CALM_SHARE * self.seconds))
        before = self.programs["serve"].memory()
        while time.monotonic() < end:
            time.sleep(0.5)
            for program in self.programs.values():
                program.keep_alive()
        for sender in self._all_senders():
            sender.finish()
        parts = self._counted()
        after = self.programs["serve"].memory()
        for program in self.programs.values():
            program.stop()
        complaints = [each for program in self.programs.values() for each in program.complaints()]
        hostile = sum(sender.hostile for sender in self.senders["serve"] if isinstance(sender, HttpSender))
        losses = 0 if self.broker is None else self.broker.losses
        unexpected = sorted(set(self.unexpected))
        return Outcome(parts, self.full_disks, losses, hostile, (before, after), complaints + unexpected)

    def _all_senders(self) -> list[Sender]:
        return list(dict.fromkeys(sender for senders in self.senders.values() for sender in senders))

    def _disturb(self) -> None:
        """One disturbance, after a pause in which something gets done."""
        time.sleep(self.rng.uniform(0.05, 0.8))
        for program in self.programs.values():
            program.keep_alive()
        kind = self.rng.random()
        if kind < 0.8:
            self.rng.choice(list(self.programs.values())).disturb(self.rng)
        elif kind < 0.92 or self.broker is None:
            self.full_disks += 1
            with self.disk.full([program.pid for program in self.programs.values()]):
                time.sleep(self.rng.uniform(0.2, 1.5))
                if self.rng.random() < 0.3:  # killed while the disk is full
                    self.rng.choice(list(self.programs.values())).disturb(self.rng)
        else:
            self.broker.lose(self.rng.uniform(0.0, 1.0))

    # -- counting ----------------------------------------------------------------------------------

    def _counted(self) -> list[Part]:
        """Wait until everything is learned, and compare it with what was sent."""
        parts = []
        for name, senders in self.senders.items():
            file = {"serve": "serve", "learn, files": "learn", "watch, files": "watch", "learn, Redis": "redis"}[name]
            models = sorted({sender.name for sender in senders}) if name == "serve" else ["model"]
            rows = sum(sender.rows for sender in senders)
            learned, sums, bad = self._wait_for(self.disk.path / f"{file}.db", models, rows, self.programs[name])
            lost, doubled = max(0, rows - learned), max(0, learned - rows)
            if learned == rows and sums != [sum(sender.sums[k] for sender in senders) for k in range(2)]:
                lost = doubled = 1  # at least: the numbers of the rows do not add up
            meant = sum(sender.bad for sender in senders)
            if bad != meant:
                self.unexpected.append(f"{name}: {bad} bad rows were counted, {meant} were sent")
            parts.append(Part(name, rows, learned, bad, lost, doubled, self.programs[name].kills))
        return parts

    def _wait_for(self, path: Path, models: list[str], rows: int, program: Program) -> tuple[int, list[int], int]:
        """Rows learned, sums of their numbers, and bad rows, once all are learned or nothing moves any more."""
        from everlearn.streams.store.store import Store

        seen, since = -1, time.monotonic()
        with Store(path) as store:
            while True:
                program.keep_alive()
                learned = sum(store.totals(name).get("rows", 0) for name in models)
                if learned != seen:
                    seen, since = learned, time.monotonic()
                if learned >= rows or time.monotonic() - since > 60.0:
                    time.sleep(1.0)  # for rows too many
                    kept = [(store.memory(name) or {})["audit"] for name in models]
                    learned = sum(each[0] for each in kept)
                    counted = sum(store.load(name).n_samples_seen_ for name in models)
                    # A detector holds rows back that do not fit.
                    if counted != learned and path.name != "watch.db":
                        self.unexpected.append(f"{path.name}: a model counts {counted} rows and was given {learned}")
                    sums = [sum(each[k] for each in kept) for k in (1, 2)]
                    return learned, sums, sum(store.totals(name).get("bad rows", 0) for name in models)
                time.sleep(0.1)

    def close(self) -> None:
        """End all that was started."""
        for program in self.programs.values():
            with contextlib.suppress(OSError, ValueError):
                os.kill(program.pid, signal.SIGKILL)
        self.forks.close()
        if self.broker is not None:
            self.broker.close()
        self.disk.close()


def soak(minutes: float, seed: int = 0) -> Outcome:
    """Run for some minutes; see the head of this file."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that programs and disk are given back all the same
    with tempfile.TemporaryDirectory(prefix="everlearn-soak-") as folder:
        run = Soak(minutes, seed, Path(folder))
        try:
            return run.run()
        finally:
            run.close()


def table(outcome: Outcome) -> str:
    """The counts as a table in Markdown."""
    lines = ["| program | rows in | learned | refused | lost | doubled | kills |", "|---|" + "---:|" * 6]
    total = Part("all", *(sum(part[i] for part in outcome.parts) for i in range(1, len(Part._fields))))
    lines += [f"| {part.name} | {' | '.join(f'{n:,}' for n in part[1:])} |" for part in (*outcome.parts, total)]
    before, after = outcome.memory
    lines += [
        "",
        f"The disk was full {outcome.full_disks} times, the broker was lost {outcome.lost_brokers} times, and "
        f"{outcome.hostile:,} hostile requests came in between. Memory of the service over the undisturbed last part: "
        f"{before} MiB at its beginning, {after} MiB at its end.",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Learn and serve under load, kills, full disks and a lost broker.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forks", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.forks:
        fork_programs()
        return 0
    outcome = soak(asked.minutes, asked.seed)
    print(table(outcome))
    for each in outcome.complaints:
        print(each, file=sys.stderr)
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.exit(main())
