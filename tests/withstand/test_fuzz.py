"""The fuzzer: what it found stays mended, a short run finds nothing, and it would notice if something broke."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

TARGETS = ("model", "state", "csv", "jsonl", "message", "http")
CORPUS = sorted(path for path in (Path(__file__).parent / "corpus").glob("*/*"))


@pytest.fixture(scope="module")
def targets(tool):
    return tool("fuzz_targets")


@pytest.fixture(scope="module")
def fuzz(tool):
    return tool("fuzz")


def test_all_targets_are_known(targets, fuzz):
    assert tuple(targets.TARGETS) == fuzz.TARGETS == TARGETS
    assert {path.parent.name for path in CORPUS} <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_past_findings_and_fresh_mutations(targets, fuzz, name):
    """Seeds are accepted, past findings are mended, and so many mutations as take a second find nothing new."""
    rng = random.Random(1)
    with targets.opened(name) as target:
        corpus = target.seeds()
        for seed in corpus:
            outcome = target.attack(seed)
            assert outcome == targets.ACCEPTED or seed.startswith(b"DELETE"), seed[:80]
        for path in CORPUS:
            if path.parent.name == name:
                assert target.attack(path.read_bytes()) == targets.REFUSED, path.name
        outcomes = [target.attack(fuzz.mutated(target, corpus, rng)) for _ in range(120)]
        assert targets.REFUSED in outcomes


def test_mutations_keep_checksums_and_files_intact(targets):
    """Without its own mutations, nearly all inputs would be refused by their first bytes."""
    rng = random.Random(0)
    for name in ("model", "state", "http"):
        with targets.opened(name) as target:
            seed = target.seeds()[0]
            target.attack(seed)
            made = [data for _ in range(40) if (data := target.mutate(seed, rng)) is not None]
            assert len(made) > 20
            assert any(data != seed and target.attack(data) == targets.ACCEPTED for data in made), name


class Broken:
    """A target that cannot take one byte."""

    tokens = (b"Z",)

    def seeds(self):
        return [b"aaaa"]

    def mutate(self, data, rng):
        return None

    def attack(self, data):
        if b"Z" in data:
            raise KeyError("Z")
        return "accepted"


def test_the_fuzzer_finds_what_is_broken(fuzz, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fuzz, "FINDINGS", tmp_path / "findings")
    attacker = fuzz.Attacker("broken", Broken(), random.Random(0), bytearray(fuzz.LONGEST + 4096))
    attacker.coverage = type("Nothing", (), {"begin": lambda self: None, "end": lambda self: False})()
    monkeypatch.setattr(fuzz.signal, "setitimer", lambda *_: None)
    for _ in range(200):
        attacker.attack()
    assert attacker.counts["inputs"] == 200
    assert attacker.counts["findings"] > 10
    (mark,) = attacker.findings  # the same place in the source is one finding
    assert b"Z" in (tmp_path / "findings" / "broken" / mark).read_bytes()
    assert "KeyError" in (tmp_path / "findings" / "broken" / f"{mark}.txt").read_text()
    assert "finding: " in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_ask_the_fuzzer_to_stop(fuzz, number):
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        stopped = fuzz.Stop()
        assert not stopped
        os.kill(os.getpid(), number)
        assert stopped
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_workers_that_do_not_stop_are_killed(fuzz, monkeypatch):
    class Deaf:
        def __init__(self):
            self.told = []

        def terminate(self):
            self.told.append("terminate")

        def kill(self):
            self.told.append("kill")

    deaf = Deaf()
    patience = fuzz._end({deaf: 0}, None)
    assert fuzz._end({deaf: 0}, patience) == patience
    assert deaf.told == ["terminate"]
    fuzz._end({deaf: 0}, time.monotonic() - 1.0)
    assert deaf.told == ["terminate", "kill"]
