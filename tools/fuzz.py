"""Attack everything that takes bytes from strangers with inputs that nobody would send, guided by coverage.

    python tools/fuzz.py [--seconds 60] [--targets model state csv ...] [--jobs 2] [--seed 0]
    python tools/fuzz.py --replay FILE ...      attack with the inputs in these files, in tests/withstand/corpus say

A mutation is kept in the corpus if it reaches a line of everlearn that no input before it has reached. A finding is an
exception that is not ours, a broken promise (see fuzz_targets.py), an input that takes more than 5 s or 256 MiB, or the
end of the process. Findings are written to build/fuzz, each with its traceback; the status is 1 if there are any. Once
it is mended, an input goes to tests/withstand/corpus/TARGET/, which runs with the tests. SIGTERM and Ctrl-C end a run
early, with the counts so far.

atheris would be faster where it installs, but knows nothing of checksums, SQLite files and requests, without which
nearly every input is refused by its first bytes; so the loop is our own, and needs no compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import mmap
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FINDINGS = ROOT / "build" / "fuzz"
CORPUS = ROOT / "tests" / "withstand" / "corpus"
TARGETS = ("model", "state", "csv", "jsonl", "message", "http")
SOURCE = str(ROOT / "src" / "everlearn")
MOST_SECONDS, MOST_GROWTH = 5.0, 256 << 20
LONGEST = 1 << 17  # bytes of an input
_ENDLESS_SECONDS = 300.0
_STOP_SECONDS = 10.0  # that a worker has to stop in
_SLICE_SECONDS = 4.0  # for which a worker stays with one target
_SHARES = {"jsonl": 2, "message": 2}  # slices in a round, for those of which most inputs pass in a second
_TRACED_SHARE, _LATER_SHARE = 0.05, 0.01  # of the inputs, where tracing costs time; fewer when little is new
_INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff" * 4, b"\0\0\0\x80", b"9" * 20, b"-1", b"0", b"\n", b'"')


class Tally(NamedTuple):
    """What became of the inputs of one target."""

    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    lines: int = 0
    corpus: int = 0
    slowest: float = 0.0


class Outcome(NamedTuple):
    """What a run has shown."""

    tallies: dict[str, Tally]  # by target
    findings: set[str]  # their marks
    seconds: float  # that it took, fewer than asked for if it was stopped
    stopped: bool

    @property
    def inputs(self) -> int:
        """Inputs of all targets."""
        return sum(each.inputs for each in self.tallies.values())


# -- coverage --------------------------------------------------------------------------------------


class Coverage:
    """Lines of everlearn that were reached; `begin` and `end` are around each input."""

    def __init__(self, rng: random.Random) -> None:
        self.lines: set[tuple[CodeType, int]] = set()
        self._fresh = False
        self._offered = 0  # inputs that could be traced
        self._rng = rng
        self._monitoring = getattr(sys, "monitoring", None)
        if self._monitoring is not None:
            # Each line reports once and is then switched off, so that this costs next to nothing.
            tool = self._monitoring.COVERAGE_ID
            self._monitoring.use_tool_id(tool, "everlearn-fuzz")
            self._monitoring.register_callback(tool, self._monitoring.events.LINE, self._line_once)
            self._monitoring.set_events(tool, self._monitoring.events.LINE)

    def begin(self) -> None:
        """Watch, or do not: before Python 3.12 every line that is watched costs a call."""
        self._fresh = False
        if self._monitoring is None:
            self._offered, share = self._offered + 1, _TRACED_SHARE if self._offered < 20_000 else _LATER_SHARE
            if self._rng.random() < share:
                sys.settrace(self._trace)

    def end(self) -> bool:
        """Whether the input has reached a line for the first time."""
        if self._monitoring is None:
            sys.settrace(None)
        return self._fresh

    def _line_once(self, code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(SOURCE):
            self._note(code, line)
        return self._monitoring.DISABLE  # type: ignore[union-attr]

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._trace_lines if frame.f_code.co_filename.startswith(SOURCE) else None

    def _trace_lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._note(frame.f_code, frame.f_lineno)
        return self._trace_lines

    def _note(self, code: CodeType, line: int) -> None:
        if (code, line) not in self.lines:
            self.lines.add((code, line))
            self._fresh = True


# -- mutations -------------------------------------------------------------------------------------


def mutated(target: Any, corpus: list[bytes], rng: random.Random) -> bytes:
    """An input made from one of the corpus: inside of its outer form, or byte by byte."""
    data = rng.choice(corpus) if rng.random() < 0.7 else corpus[-1 - int(rng.random() ** 3 * len(corpus))]
    if rng.random() < 0.6:
        for _ in range(1 + int(rng.random() ** 2 * 3)):
            data = target.mutate(data, rng) or data
        if rng.random() < 0.7:
            return data[:LONGEST]
    for _ in range(1 + int(rng.random() ** 3 * 8)):
        data = _changed(data, corpus, target.tokens, rng)
    return data[:LONGEST]


def _changed(data: bytes, corpus: list[bytes], tokens: tuple[bytes, ...], rng: random.Random) -> bytes:
    """One change of some bytes."""
    i = rng.randrange(len(data) + 1)
    j = min(len(data), i + 1 + int(rng.random() ** 4 * 64))
    kind = rng.randrange(8)
    if kind == 0 and i < len(data):
        return data[:i] + bytes([data[i] ^ (1 << rng.randrange(8))]) + data[i + 1 :]
    if kind == 1:
        return data[:i] + rng.choice(_INTERESTING) + data[j:]
    if kind == 2:
        return data[:i] + data[j:]
    if kind == 3:
        return data[:j] + data[i:j] * rng.choice((1, 2, 7, 100)) + data[j:]
    if kind == 4:
        other = rng.choice(corpus)
        return data[:i] + other[rng.randrange(len(other) + 1) :]
    if kind == 5:
        return data[:i]
    word = rng.choice(tokens or _INTERESTING)
    return data[:i] + word + data[i if kind == 6 else min(len(data), i + len(word)) :]


# -- the loop --------------------------------------------------------------------------------------


class Attacker:
    """One target, its corpus and its counts."""

    def __init__(self, name: str, target: Any, rng: random.Random, last: Any) -> None:
        self.name, self.target, self._rng, self._last = name, target, rng, last
        self.corpus = target.seeds() + [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
        self.coverage: Coverage | None = None
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        self.findings: dict[str, bytes] = {}
        self._fresh = list(self.corpus)

    def attack(self) -> None:
        """Attack with one input, a seed as long as there are any left."""
        seed = bool(self._fresh)
        data = self._fresh.pop(0) if seed else mutated(self.target, self.corpus, self._rng)
        self._remember(data)
        before = _usage()
        assert self.coverage is not None
        self.coverage.begin()
        signal.setitimer(signal.ITIMER_REAL, _ENDLESS_SECONDS)  # begun anew by the next input
        try:
            self.counts[self.target.attack(data)] += 1
        except Exception as error:
            self._found(error, data)
        finally:
            if self.coverage.end() and not seed:
                self.corpus.append(data)
        growth, seconds = (now - then for now, then in zip(_usage(), before, strict=True))
        if seconds > MOST_SECONDS:
            # The first input that comes to a kernel has it compiled: only what is slow twice is slow.
            before = _usage()
            with contextlib.suppress(Exception):
                self.target.attack(data)
            growth, seconds = (now - then for now, then in zip(_usage(), before, strict=True))
        self.slowest = max(self.slowest, seconds)
        self.counts["inputs"] += 1
        if seconds > MOST_SECONDS:
            self._found(TimeoutError(f"{len(data)} bytes take {seconds:.1f} s"), data)
        if growth > MOST_GROWTH:
            self._found(MemoryError(f"{len(data)} bytes take {growth >> 20} MiB"), data)

    def warm_up(self) -> None:
        """Use all seeds, without limits: kernels are compiled."""
        for data in self.corpus:
            with contextlib.suppress(Exception):  # it will be found again
                self.target.attack(data)

    def _remember(self, data: bytes) -> None:
        """Write down the input, for the case that it ends the process."""
        record = f"{self.name}\n".encode() + data[:LONGEST]
        self._last[:8] = len(record).to_bytes(8, "little")
        self._last[8 : 8 + len(record)] = record

    def _found(self, error: Exception, data: bytes) -> None:
        text = "".join(traceback.format_exception(error))
        # The same place in the source is the same finding.
        place = [line.strip() for line in text.splitlines() if line.startswith("  File")][-3:]
        mark = hashlib.sha256(f"{self.name} {type(error).__name__} {place}".encode()).hexdigest()[:12]
        self.counts["findings"] += 1
        if mark not in self.findings:
            self.findings[mark] = data
            write_finding(self.name, mark, data, text)


def write_finding(name: str, mark: str, data: bytes, text: str) -> None:
    """Keep an input and what it caused."""
    folder = FINDINGS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / mark).write_bytes(data)
    (folder / f"{mark}.txt").write_text(text, encoding="utf-8")
    print(f"finding: {folder / mark}\n{text.splitlines()[-1][:300]}", file=sys.stderr, flush=True)


def _usage() -> tuple[int, float]:
    """Most bytes of memory so far, and seconds of the processor."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024), used.ru_utime + used.ru_stime


class Stop:
    """Whether the run is to end early: SIGTERM and Ctrl-C ask for it, and so does the parent's death."""

    def __init__(self) -> None:
        self.asked = False
        self._parent = multiprocessing.parent_process()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def __bool__(self) -> bool:
        return self.asked or (self._parent is not None and not self._parent.is_alive())


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"An input takes more than {_ENDLESS_SECONDS:.0f} s.")


def work(names: list[str], end: float, seed: int, folder: str, number: int) -> None:
    """One worker: it stays some seconds with each target in turn, and leaves its counts in the folder.

    `end` is a time of the monotonic clock, which all processes share: imports and compilation are part of the run.
    """
    stopped = Stop()
    import logging

    import fuzz_targets

    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, _too_long)
    rng = random.Random(seed)
    with open(Path(folder) / f"last-{number}", "w+b") as file, contextlib.ExitStack() as stack:
        file.truncate(LONGEST + 4096)
        last = mmap.mmap(file.fileno(), LONGEST + 4096)
        attackers = [Attacker(name, stack.enter_context(fuzz_targets.opened(name)), rng, last) for name in names]
        for attacker in attackers:
            if not stopped:
                attacker.warm_up()
        gc.freeze()  # else every few hundred inputs all that was imported is looked through
        coverage = Coverage(rng)
        lines: Counter[str] = Counter()
        while time.monotonic() < end and not stopped:
            for attacker in attackers:
                attacker.coverage, before = coverage, len(coverage.lines)
                stop = min(end, time.monotonic() + _SLICE_SECONDS * _SHARES.get(attacker.name, 1))
                while time.monotonic() < stop and not stopped:
                    attacker.attack()
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                lines[attacker.name] += len(coverage.lines) - before
                _write_tallies(Path(folder) / f"tally-{number}.json", attackers, lines)


def _write_tallies(path: Path, attackers: list[Attacker], lines: Counter[str]) -> None:
    tallies = {
        each.name: {
            **Tally(
                each.counts["inputs"], each.counts["refused"], each.counts["accepted"], lines[each.name],
                len(each.corpus), each.slowest,
            )._asdict(),
            "findings": sorted(each.findings),
        }
        for each in attackers
    }  # fmt: skip
    path.write_text(json.dumps(tallies), encoding="utf-8")


def fuzz(names: list[str], seconds: float, *, workers: int = 1, seed: int = 0) -> Outcome:
    """Attack for some seconds; SIGTERM and Ctrl-C end it early, with the counts so far."""
    context = multiprocessing.get_context("spawn")
    tallies: dict[str, list[Tally]] = {name: [] for name in names}
    findings: set[str] = set()
    stopped, patience = Stop(), None
    with tempfile.TemporaryDirectory(prefix="everlearn-fuzz-") as folder:
        begin = time.monotonic()
        end, running, number = begin + seconds, {}, 0
        while True:
            while len(running) < workers and end - time.monotonic() > 1.0 and not stopped:
                process = context.Process(target=work, args=(names, end, seed + number, folder, number))
                process.start()
                running[process] = number
                number += 1
            if not running:
                break
            if stopped:
                patience = _end(running, patience)
            process = next((each for each in running if not each.is_alive()), None)
            if process is None:
                time.sleep(0.1)
                continue
            found = running.pop(process)
            # Who is stopped before its handlers are there, or is killed, has not been ended by an input.
            if process.exitcode and patience is None:
                findings.add(_crash(Path(folder) / f"last-{found}", process.exitcode))
            _gather(Path(folder) / f"tally-{found}.json", tallies, findings)
    summed = {name: _summed(each) for name, each in tallies.items()}
    return Outcome(summed, findings, time.monotonic() - begin, patience is not None)


def _end(running: dict[Any, int], patience: float | None) -> float:
    """Ask the workers to stop; kill those that have not done so in time."""
    if patience is None:
        for process in running:
            process.terminate()
        return time.monotonic() + _STOP_SECONDS
    if time.monotonic() > patience:
        for process in running:
            process.kill()
    return patience


def _crash(last: Path, code: int) -> str:
    """The input that ended a process, as a finding."""
    record = last.read_bytes() if last.exists() else bytes(8)
    name, _, data = record[8 : 8 + int.from_bytes(record[:8], "little")].partition(b"\n")
    mark = f"crash-{hashlib.sha256(data).hexdigest()[:8]}"
    write_finding(name.decode() or "start", mark, data, f"The process ended with {code}.")
    return mark


def _gather(path: Path, tallies: dict[str, list[Tally]], findings: set[str]) -> None:
    if path.exists():
        for name, record in json.loads(path.read_text(encoding="utf-8")).items():
            findings.update(record.pop("findings"))
            tallies[name].append(Tally(**record))


def _summed(parts: list[Tally]) -> Tally:
    """Counts of all workers; lines, corpus and the slowest input are those of the one with the most."""
    sums = [sum(getattr(part, field) for part in parts) for field in ("inputs", "refused", "accepted")]
    return Tally(*sums, *(max((getattr(p, f) for p in parts), default=0) for f in ("lines", "corpus", "slowest")))


def table(tallies: dict[str, Tally]) -> str:
    """The counts as a table in Markdown."""
    rows = ["| input | tried | refused | accepted | lines reached | corpus | slowest (CPU s) |", "|---|" + "---:|" * 6]
    for name, each in tallies.items():
        cells = [f"{n:,}" for n in each[:5]]
        rows.append(f"| {name} | {' | '.join(cells)} | {each.slowest:.2f} |")
    total = [f"{sum(each[i] for each in tallies.values()):,}" for i in range(3)]
    return "\n".join([*rows, f"| all | {' | '.join(total)} |  |  |  |"])


def replay(paths: list[str]) -> int:
    """Attack with the inputs in some files; the name of a file's folder is that of its target."""
    import fuzz_targets

    failures = 0
    for path in map(Path, paths):
        with fuzz_targets.opened(path.resolve().parent.name) as target:
            if path.resolve().parent.name == "http":
                for seed in target.seeds()[:3]:
                    target.attack(seed)
            try:
                print(path, target.attack(path.read_bytes()))
            except Exception:
                traceback.print_exc()
                failures += 1
    return failures


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Attack the readers of everlearn with mutated inputs.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--jobs", "--workers", dest="workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", nargs="+", metavar="FILE")
    asked = parser.parse_args()
    if asked.replay:
        return min(1, replay(asked.replay))
    outcome = fuzz(asked.targets, asked.seconds, workers=asked.workers, seed=asked.seed)
    print(table(outcome.tallies))
    print(f"{len(outcome.findings)} findings" + (f" in {FINDINGS}" if outcome.findings else ""))
    if outcome.stopped:
        print(f"stopped after {outcome.seconds:.0f} s", file=sys.stderr)
    if not outcome.inputs:
        print("The time was over before the first input: give it more --seconds.", file=sys.stderr)
    return 1 if outcome.findings or not outcome.inputs else 143 if outcome.stopped else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.exit(main())
