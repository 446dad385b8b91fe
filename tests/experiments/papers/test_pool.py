"""Items in parallel: the findings of a single process, what runs alone, and how everything ends."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everlearn.errors import InputError
from everlearn.experiments.papers import Claim, Context, Findings, Item, choose, read, registry, run_item
from everlearn.experiments.papers.pool import LostProcessError, Plan, Settings, duration, plan, run


def where(context):
    return Findings(f"{os.getpid()}", [])


def count(context):
    for _ in context.track(range(3), "steps"):
        pass
    return where(context)


def wait(context):
    time.sleep(60.0)
    return where(context)


def refuse(context):
    raise InputError("This cannot be.")


def crash(context):
    os._exit(3)


def fail_unspeakably(context):
    class Local(Exception):
        pass

    raise Local


def item(name, run, *, paper="nat-oem", seconds=1.0, alone=False):
    return Item(paper, name, name, (seconds, seconds), run, alone)


def findings(planned, settings=None):
    """What a plan finds, by item and in the order in which it came."""
    found = {}
    run(planned, settings or Settings(), lambda item, section: found.update({item.key: section}), lambda *_: None)
    return found


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert multiprocessing.active_children() == []


# -- the plan --------------------------------------------------------------------------------------


def test_papers_stay_together_and_are_dealt_evenly():
    items = [
        item(f"{p}{i}", where, paper=p, seconds=s) for p, s in zip("abcd", (5, 3, 2, 1), strict=True) for i in "12"
    ]
    planned = plan(items, Settings(), processes=2)
    assert [[i.name for i in share] for share in planned.shares] == [["a1", "a2", "d1", "d2"], ["b1", "b2", "c1", "c2"]]
    assert duration(planned, Settings()) == 12.0


def test_a_long_item_does_not_wait_for_the_others_of_its_paper():
    items = [item(name, where, seconds=s) for name, s in (("a", 170), ("b", 9), ("c", 151), ("d", 8))]
    planned = plan(items, Settings(), processes=8)
    assert [[i.name for i in share] for share in planned.shares] == [["a"], ["c"], ["b", "d"]]


def test_what_measures_times_is_planned_alone():
    planned = plan(choose(), Settings(quick=True), processes=2)
    timed = ["nat-oem:cost", "figmn:table4", "figmn:fig1", "figmn:two-step", "figmn:clustering"]
    timed += ["figmn:pixels", "figmn:mnist", "figmn:table5"]
    assert [i.key for i in planned.alone] == timed
    assert not any(i.alone for share in planned.shares for i in share)
    assert sum(map(len, planned.shares)) + len(planned.alone) == len(choose())


@pytest.mark.parametrize("keys", [["online-vb"], ["figmn:table4"], []])
def test_one_paper_needs_no_processes(keys):
    items = choose(keys) if keys else []
    assert len(plan(items, Settings(), processes=4).shares) == (keys == ["online-vb"])
    assert len(plan(choose(), Settings(), processes=1).shares) == 1


# -- running ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_find_what_one_finds(monkeypatch, tmp_path):
    monkeypatch.delenv("EVERLEARN_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    items = choose(["figmn:table1", "online-vb:fig4", "online-vb:fig5", "continual:ridgeline", "continual:disjoint"])
    settings = Settings(quick=True, seed=3)

    def plain(sections):
        return {
            key: {k: v for k, v in section.items() if "seconds" not in k and k != "made"}
            for key, section in sorted(sections.items())
        }

    apart, here = (findings(plan(items, settings, processes=n), settings) for n in (2, 1))
    assert plain(apart) == plain(here)
    assert apart["continual:disjoint"]["verdict"] == "skipped"


@pytest.mark.slow
def test_times_are_measured_here_when_all_else_is_done():
    items = [item("t", where, alone=True), item("a", where), item("b", where, paper="figmn")]
    found = findings(plan(items, Settings(), processes=2))
    assert list(found)[-1] == "nat-oem:t"
    pids = [int(section["about"]) for section in found.values()]
    assert pids[-1] == os.getpid()
    assert os.getpid() not in pids[:-1]  # on a busy machine one process may have run both shares


def quotients(context):
    found = context.each(divmod, [(7, 2), (9, 4), (5, 3)], "parts")
    return Findings(str(found), [Claim("a", "b", True)])


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_parts_of_an_item_are_the_same_in_any_number_of_processes(jobs):
    told = []
    context = Context(jobs=jobs, report=lambda *what: told.append(what))
    assert quotients(context).about == "[(3, 1), (2, 1), (1, 2)]"
    assert told[-1] == (3, 3, "parts")


def noted(place, n):
    with open(place, "a", encoding="utf-8") as file:
        file.write(f"{n} ")
    if n == 3 and not Path(place).with_suffix(".go").exists():
        raise InputError("interrupted")
    busy = time.process_time() + 0.05
    while time.process_time() < busy:
        pass
    return {"square": n * n}


def test_an_item_that_was_interrupted_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "commit", lambda: "abc")
    place, parts = tmp_path / "calls.txt", tmp_path / "parts"
    calls = [(str(place), n) for n in (1, 2, 3, 4)]
    with pytest.raises(InputError, match="interrupted"):
        Context(parts=parts).each(noted, calls, "parts", keep=True)
    place.with_suffix(".go").touch()
    told = []
    context = Context(parts=parts, report=lambda *what: told.append(what))
    assert [found["square"] for found in context.each(noted, calls, "parts", keep=True)] == [1, 4, 9, 16]
    assert place.read_text(encoding="utf-8").split() == ["1", "2", "3", "3", "4"]
    assert told == [(3, 4, "parts"), (4, 4, "parts")]
    # Other code computes all of it again, and changed code keeps nothing.
    for code in ("def", "abc+"):
        monkeypatch.setattr(registry, "commit", lambda code=code: code)
        Context(parts=parts).each(noted, calls[:1], "parts", keep=True)
    assert place.read_text(encoding="utf-8").split()[5:] == ["1", "1"]


def test_an_item_that_goes_on_counts_the_processor_time_of_what_was_there(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "commit", lambda: "abc")
    place = tmp_path / "calls.txt"
    place.with_suffix(".go").touch()

    def squares(context):
        found = context.each(noted, [(str(place), n) for n in (1, 2, 3, 4)], "parts", keep=True)
        return Findings(str(found), [Claim("a", "b", True)])

    first, again = (run_item(item("a", squares), Context(parts=tmp_path / "parts")) for _ in range(2))
    assert place.read_text(encoding="utf-8").split() == ["1", "2", "3", "4"]
    assert again["about"] == first["about"]
    # Four parts of 0.05 s.
    assert 0.2 <= again["cpu_seconds"] <= first["cpu_seconds"] + 0.1


@pytest.mark.slow
def test_progress_of_every_process_is_told():
    told = []
    items = [item("a", count), item("b", count, paper="figmn")]
    run(plan(items, Settings(), processes=2), Settings(), lambda *_: None, lambda *what: told.append(what))
    for one in items:
        steps = [(0, 1, ""), *((done, 3, "steps") for done in range(4))]
        assert [what[1:] for what in told if what[0] == one] == steps


# -- ends ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (refuse, InputError, "This cannot be"),
        (crash, LostProcessError, "ended abruptly.*--resume"),
        (fail_unspeakably, Exception, "Local"),  # an error that cannot be pickled is named all the same
    ],
)
def test_an_error_ends_everything_and_keeps_what_was_found(bad, error, message):
    found = []
    # The process that is started last is the one that fails: the executor watches it last.
    shares = [[item("c", wait, paper="figmn")], [item("a", where), item("b", bad)]]
    start = time.monotonic()
    with pytest.raises(error, match=message):
        run(Plan(shares, [item("d", where)]), Settings(), lambda i, _: found.append(i.name), lambda *_: None)
    assert found == ["a"]
    assert time.monotonic() - start < 50.0


@pytest.mark.slow
def test_an_interrupt_ends_the_processes_at_once():
    def interrupt(item, section):
        raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(Plan([[item("a", where)], [item("b", wait)]], []), Settings(), interrupt, lambda *_: None)
    assert time.monotonic() - start < 50.0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals to a group of processes are POSIX")
def test_ctrl_c_leaves_what_was_done(tmp_path):
    # A full run of nat-oem:fig1 takes far longer than online-vb:fig4.
    command = [sys.executable, "-m", "everlearn", "reproduce", "online-vb:fig4", "nat-oem:fig1"]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True) as program:
        results = tmp_path / "reproduction.json"
        deadline = time.monotonic() + 60.0
        while not results.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        os.killpg(program.pid, signal.SIGINT)
        _, said = program.communicate(timeout=30)  # ends when no process holds the pipe any more
    assert program.returncode == 1
    assert "Traceback" not in said
    assert list(read(results)["sections"]) == ["online-vb:fig4"]
