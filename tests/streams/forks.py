"""Runs the program again and again in children that start at once, and kills them when told to.

Each line of standard input is a job: the arguments of the program, and the seconds after which the child is killed.
Each line of standard output says how it ended. Everything is imported and compiled before the first fork, so that
a kill may fall anywhere in a run and not only into its start.
"""

import json
import os
import signal
import sys
import time

import numpy as np

from everlearn import IncrementalGaussianMixture
from everlearn.cli import (
    learn_run,  # noqa: F401  loads what a run needs
    main,
)
from everlearn.streams import runner
from everlearn.streams.sources import files, messages


def warm_up():
    """Compile, and load what a run needs."""
    model = IncrementalGaussianMixture(max_components=20)
    X = np.random.default_rng(0).normal(size=(2000, 3))
    model.prequential(X)
    model.impute(np.array([[np.nan, 0.0, 0.0]]))
    assert model.n_components_


def small_steps():
    """Many small steps and commits, so that there is much to interrupt."""
    files.BLOCK_BYTES = 1 << 13
    messages.MessageSource.batch_messages = 200
    runner.COMMIT_SECONDS = 0.01
    runner._COMMIT_SHARE = 1.0


def child(arguments):
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    status = 0
    try:
        main(arguments, standalone_mode=True)
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        status = 99
        raise
    finally:
        os._exit(status)


def ended(pid, seconds):
    """The status of a child; None if it was killed."""
    limit = None if seconds is None else time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if limit is not None and time.monotonic() >= limit:
            os.kill(pid, signal.SIGKILL)
            return None if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) < 0 else 0
        time.sleep(0.001)


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    warm_up()
    small_steps()
    say("ready")
    for line in sys.stdin:
        job = json.loads(line)
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            child(job["arguments"])
        status = ended(pid, job["seconds"])
        say(json.dumps({"status": status, "seconds": time.monotonic() - started}))
