"""Where episodes are told: files and brokers, a webhook, a command. Each news is told once it is committed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from everlearn.errors import InputError
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.writers import Value, open_writer
from everlearn.watch.episodes import Episode

FIELDS = (
    "episode", "kind", "status", "severity", "begin", "end", "first_row", "last_row", "p_value", "sensors", "sentence",
    "device",
)  # fmt: skip
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0
_MOST_WAITING = 1000
_OPERATORS = frozenset((">", ">>", "<", "|", "||", "&", "&&", ";", "2>", "2>>", "2>&1", "&>"))  # of a shell
_TIMEOUT = 30.0  # seconds for a webhook or a command to answer


def record_of(episode: Episode, time_format: TimeFormat | None) -> tuple[Value, ...]:
    """An episode as a record with the fields `FIELDS`; times as the stream writes them."""
    times = [None if time_format is None else time_format.show(moment) for moment in (episode.begin, episode.end)]
    return (
        episode.number, episode.kind, episode.status, episode.severity, *times, episode.first_row, episode.last_row,
        episode.p_value, "; ".join(episode.blamed), episode.sentence, episode.device or None,
    )  # fmt: skip


class Teller(Protocol):
    """Something that takes news of episodes."""

    def tell(self, record: dict[str, Value]) -> None:
        """Tell of one episode; raises OSError if that did not succeed and is worth another try."""


class Webhook:
    """Posts each news as JSON to an address.

    Parameters
    ----------
    address : str
        An address that starts with https:// or http://.
    token : str, optional
        Sent as ``Authorization: Bearer``.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        if not address.startswith(("https://", "http://")):
            raise InputError(f"--webhook {address!r}: an address starts with https:// or http://.")
        self.place, self._token = address, token

    def tell(self, record: dict[str, Value]) -> None:
        """Post the record."""
        # The address is that of the person who started the program; nothing of the stream becomes a part of it.
        request = urllib.request.Request(self.place, json.dumps(record).encode(), method="POST")
        request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT):
                pass
        except urllib.error.HTTPError as error:
            # What the other side refuses as wrong will be wrong the next time, too.
            if error.code < 500 and error.code not in (408, 425, 429):
                raise RefusedError(f"{self.place} refused the message: {error.code} {error.reason}.") from error
            raise


class RefusedError(Exception):
    """News that will never be taken."""


class Command:
    """Runs a command for each news: the sentence is its last argument, the other fields are in the environment.

    Parameters
    ----------
    command : str
        The command with its arguments, as a shell would split them; no shell is involved.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"--command {command!r}: {error}.") from error
        if not self._words:
            raise InputError("--command is empty: give a program and its arguments.")
        if operators := [word for word in self._words if word in _OPERATORS]:
            raise InputError(
                f"--command {command!r}: no shell is involved, so {operators[0]!r} would be an argument. Write a "
                "script and give its name; the sentence is its last argument, and in EVERLEARN_SENTENCE."
            )
        self.place = self._words[0]

    def tell(self, record: dict[str, Value]) -> None:
        """Run the command and wait for its end."""
        told = {f"EVERLEARN_{name.upper()}": "" if value is None else str(value) for name, value in record.items()}
        try:
            done = subprocess.run(
                # A list and no shell: names of sensors come from data, and stand in the sentence.
                [*self._words, str(record["sentence"])], env={**os.environ, **told}, timeout=_TIMEOUT,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise RefusedError(f"There is no program {self.place!r}.") from error
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self.place} did not end within {_TIMEOUT:.0f} s") from error
        if done.returncode:
            raise ChildProcessError(f"{self.place} ended with status {done.returncode}: {done.stderr.strip()[:200]}")


class Messenger:
    """Tells news in a thread of its own, again and again until they are taken: watching never waits for it.

    Parameters
    ----------
    teller : Teller
        Webhook or command.
    say : function
        Takes each message for the person who watches.
    wait : float, default=1.0
        Seconds before the second try; each wait is twice as long, up to five minutes.
    """

    def __init__(self, teller: Any, say: Callable[[str], None], *, wait: float = _FIRST_WAIT) -> None:
        self._teller, self._say, self._wait = teller, say, wait
        self._queue: queue.Queue[dict[str, Value] | None] = queue.Queue(_MOST_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, record: dict[str, Value]) -> None:
        """Take news; the oldest is dropped if a thousand wait."""
        while True:
            try:
                self._queue.put_nowait(record)
                return
            # Watching never waits for a webhook that is down: the oldest news is worth least.
            except queue.Full:
                self._queue.get_nowait()
                self._say(f"{self._teller.place} takes no messages; the oldest of {_MOST_WAITING} is dropped.")

    def close(self, patience: float = 10.0) -> None:
        """Wait for news to be taken, at most some seconds."""
        end = time.monotonic() + patience
        with contextlib.suppress(queue.Full):  # the thread ends by `_stop` then
            self._queue.put(None, timeout=patience)
        self._thread.join(max(0.0, end - time.monotonic()))
        self._stop.set()
        if self._thread.is_alive():
            self._say(f"{self._teller.place} did not take all messages.")

    def _run(self) -> None:
        while (record := self._queue.get()) is not None:
            wait = self._wait
            while not self._stop.is_set():
                try:
                    self._teller.tell(record)
                    break
                except RefusedError as error:
                    self._say(str(error))
                    break
                except OSError as error:
                    if wait == self._wait:
                        self._say(f"{self._teller.place}: {error}. It will be tried again.")
                    self._stop.wait(wait)
                    wait = min(2 * wait, _LONGEST_WAIT)


class EpisodeOutputs:
    """All places where news of a run go: what `Runner` writes to.

    Parameters
    ----------
    addresses : sequence of str
        Files (.csv, .jsonl, .parquet), ``-``, or addresses of brokers.
    time_format : TimeFormat, optional
        How times are written.
    messengers : sequence of Messenger
        Webhooks and commands.
    resumable : bool, default=False
        Whether the run has a state store.
    positions : mapping, optional
        What `flush` gave before a restart.

    Attributes
    ----------
    n_waiting : int
        News that are not yet told.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        time_format: TimeFormat | None,
        messengers: Sequence[Messenger] = (),
        *,
        resumable: bool = False,
        positions: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_waiting = 0
        self._time_format, self._messengers = time_format, messengers
        self._waiting: list[dict[str, Value]] = []
        self._writers = {
            where: open_writer(where, FIELDS, resumable=resumable, position=(positions or {}).get(where))
            for where in addresses
        }

    def write(self, batch: Any, result: Any, model: Any) -> None:
        """Take the news of a batch."""
        records = [record_of(episode, self._time_format) for episode in result.episodes]
        for writer in self._writers.values():
            writer.write(records)
        self._waiting += [dict(zip(FIELDS, record, strict=True)) for record in records]
        self.n_waiting += len(records)

    def flush(self) -> dict[str, Any]:
        """Make everything durable; returns the positions by address."""
        positions = {where: writer.flush() for where, writer in self._writers.items()}
        # Handed over behind the flush of the files: one that fails is repeated, and would tell them twice.
        for record in self._waiting:
            for messenger in self._messengers:
                messenger.put(record)
        self._waiting, self.n_waiting = [], 0
        return positions

    def close(self) -> None:
        """Close the writers, and wait a moment for messages."""
        for messenger in self._messengers:
            messenger.close()
        for writer in self._writers.values():
            writer.close()
