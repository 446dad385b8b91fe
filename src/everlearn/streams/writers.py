"""Where answers go: CSV, JSON lines or Parquet files, or back to a broker.

A file that belongs to a run with a state store ends, after a restart, where the latest commit left it: each record is
there once. What goes to a broker may come twice after a crash.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from everlearn.errors import InputError, SourceLostError, require
from everlearn.persistence.atomic_write import flush_folder
from everlearn.streams.sources import kafka, mqtt, redis
from everlearn.streams.sources.messages import Address, address

_GROUP_ROWS = 50_000  # of a Parquet file
_SEND_SECONDS = 30.0

Value = float | int | bool | str | None


class Writer:
    """Takes records with the same fields, in order.

    Parameters
    ----------
    fields : sequence of str
        Names of the fields.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = list(fields)

    def write(self, records: Sequence[Sequence[Value]]) -> None:
        """Take records; nothing is written before `flush`."""
        raise NotImplementedError

    def flush(self) -> dict[str, Any]:
        """Make everything durable and return the position behind it; after a failure it may be called again."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None:
            self.flush()
        self.close()


def open_writer(
    where: str, fields: Sequence[str], *, resumable: bool = False, position: dict[str, Any] | None = None
) -> Writer:
    """The writer for an address.

    Parameters
    ----------
    where : str
        A file by its ending (.csv, .jsonl, .parquet), ``-`` for CSV on standard output, or the address of a broker.
    fields : sequence of str
        Names of the fields.
    resumable : bool, default=False
        Whether the writer must be able to go on after a crash; a Parquet file is then a folder of parts.
    position : dict, optional
        What `flush` gave before a restart: whatever is behind it is dropped. By default the writer begins anew.

    Returns
    -------
    Writer
        The writer.
    """
    if "://" in where:
        return _broker_writer(address(where), fields)
    ending = os.path.splitext(where)[1].lower()
    if ending in (".parquet", ".pq"):
        return ParquetTableWriter(where, fields, parts=resumable, position=position)
    if where == "-" or ending in (".csv", ".txt"):
        return CsvWriter(where, fields, position=position)
    if ending in (".jsonl", ".ndjson", ".json"):
        return JsonWriter(where, fields, position=position)
    raise InputError(
        f"{where}: give a file that ends in .csv, .jsonl or .parquet, or an address such as redis://host/name."
    )


def _broker_writer(where: Address, fields: Sequence[str]) -> Writer:
    kinds: dict[str, Callable[..., Writer]] = {
        "redis": RedisWriter,
        "kafka": KafkaWriter,
        "mqtt": MqttWriter,
        "mqtts": MqttWriter,
    }
    if where.scheme not in kinds:
        raise InputError(f"{where}: the address starts with one of {', '.join(kinds)}.")
    return kinds[where.scheme](where, fields)


def plain(fields: Sequence[str], record: Sequence[Value]) -> dict[str, Value]:
    """A record as JSON values: null where there is no number."""
    values = (None if isinstance(value, float) and not math.isfinite(value) else value for value in record)
    return dict(zip(fields, values, strict=True))


# -- files -----------------------------------------------------------------------------------------


class LineWriter(Writer):
    """Records as lines of text."""

    def __init__(self, where: str, fields: Sequence[str], *, position: dict[str, Any] | None = None) -> None:
        super().__init__(fields)
        self._waiting: list[bytes] = []
        self._end = int((position or {}).get("bytes", 0))
        self._file: Any = None
        if where != "-":
            # Without a buffer: what was written and what is safe are one place, `_end`, which a failed flush leaves as
            # it was.
            self._file = open(where, "r+b" if self._end else "wb", buffering=0)  # noqa: SIM115
            self._check_length(where)
        if not self._end and (head := self.head()):
            self._waiting.append(head)

    def _check_length(self, where: str) -> None:
        # Truncating to a larger size would fill the lost records with zero bytes.
        if self._file.seek(0, os.SEEK_END) < self._end:
            self._file.close()
            raise InputError(f"{where} is shorter than it was. Restore it, or choose another file to go on with.")

    def head(self) -> bytes:
        """What stands before the records."""
        return b""

    def flush(self) -> dict[str, Any]:
        """Write what waits behind what is safe, cut off whatever a failure left there, and flush the disk."""
        data = b"".join(self._waiting)
        if self._file is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            # A flush that failed half-way, or a crash, may have left bytes behind the place that is committed.
            self._file.truncate(self._end)
            self._file.seek(self._end)
            view = memoryview(data)
            # A raw write may take only a part, as on a disk that is nearly full.
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())
        # Only now, behind the fsync: until here the flush can be repeated whole.
        self._waiting, self._end = [], self._end + len(data)
        return {"bytes": self._end}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class CsvWriter(LineWriter):
    """Records as CSV; empty where there is no number."""

    def head(self) -> bytes:
        """The header."""
        return self._lines([self.fields])

    def write(self, records: Sequence[Sequence[Value]]) -> None:
        """Take records."""
        self._waiting.append(self._lines(["" if value != value else value for value in record] for record in records))

    @staticmethod
    def _lines(rows: Any) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()


class JsonWriter(LineWriter):
    """Records as JSON objects, one a line."""

    def write(self, records: Sequence[Sequence[Value]]) -> None:
        """Take records."""
        lines = [json.dumps(plain(self.fields, record)) + "\n" for record in records]
        self._waiting.append("".join(lines).encode())


class ParquetTableWriter(Writer):
    """Records as a Parquet file, or as a folder of parts of which each flush writes one."""

    def __init__(
        self, where: str, fields: Sequence[str], *, parts: bool, position: dict[str, Any] | None = None
    ) -> None:
        super().__init__(fields)
        self._arrow, self._parquet = require("pyarrow", "streams"), require("pyarrow.parquet", "streams")
        self._where, self._parts = Path(where), parts
        self._n_parts = int((position or {}).get("parts", 0))
        self._waiting: list[Sequence[Value]] = []
        self._writer: Any = None
        if parts:
            self._open_folder()

    def write(self, records: Sequence[Sequence[Value]]) -> None:
        """Take records."""
        self._waiting += records

    def flush(self) -> dict[str, Any]:
        """Write a part, or go on with the file once there is enough for it."""
        if self._parts and self._waiting:
            draft = self._where / ".part.tmp"
            self._parquet.write_table(self._table(), draft)
            # The rename must not become durable before the contents.
            with open(draft, "rb") as file:
                os.fsync(file.fileno())
            # A part is there whole or not at all.
            os.replace(draft, self._part(self._n_parts))
            flush_folder(self._where)  # else the commit that counts the part could outlive its name
            self._n_parts += 1
            self._waiting = []
        # One file is one row group for each write; small ones make it large and slow to read.
        elif len(self._waiting) > _GROUP_ROWS:
            self._write_group()
        return {"parts": self._n_parts}

    def _open_folder(self) -> None:
        """Make the folder, or drop the parts behind the position from it."""
        if self._where.is_file():
            raise InputError(f"{self._where} is a file, but has to be a folder of parts. Choose another name.")
        self._where.mkdir(exist_ok=True)
        for part in self._where.glob("part-*.parquet"):
            # Written by a step that was never committed: its rows are learned again, and their records come again.
            # Eight digits make the order of the names that of the numbers.
            if part >= self._part(self._n_parts):
                part.unlink()

    def close(self) -> None:
        """End the file."""
        if not self._parts:
            self._write_group()
            self._writer.close()

    def _part(self, number: int) -> Path:
        return self._where / f"part-{number:08d}.parquet"

    def _table(self) -> Any:
        columns = list(zip(*self._waiting, strict=True)) or [()] * len(self.fields)
        return self._arrow.table({name: list(column) for name, column in zip(self.fields, columns, strict=True)})

    def _write_group(self) -> None:
        table = self._table()
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._where, table.schema)
        # Types are inferred anew from each group: one of whole numbers after one of floats would be refused without the
        # cast.
        self._writer.write_table(table.cast(self._writer.schema))
        self._waiting = []


# -- brokers ---------------------------------------------------------------------------------------


class MessageWriter(Writer):
    """Records as messages of a broker, sent at least once."""

    def __init__(self, where: Address, fields: Sequence[str]) -> None:
        super().__init__(fields)
        self._where = where
        self._waiting: list[dict[str, Value]] = []

    def write(self, records: Sequence[Sequence[Value]]) -> None:
        """Take records."""
        self._waiting += [plain(self.fields, record) for record in records]

    def flush(self) -> dict[str, Any]:
        """Send what waits, and wait until the broker has it."""
        if self._waiting:
            self._send(self._waiting)
        self._waiting = []
        return {}

    def _send(self, records: list[dict[str, Value]]) -> None:
        raise NotImplementedError

    def _lost(self, reason: object) -> SourceLostError:
        return SourceLostError(f"{self._where} cannot be reached: {reason}.")


class RedisWriter(MessageWriter):
    """Records as entries of a Redis stream."""

    def __init__(self, where: Address, fields: Sequence[str]) -> None:
        super().__init__(where, fields)
        self._client = redis.connected(where)

    def _send(self, records: list[dict[str, Value]]) -> None:
        # One round trip for all records. No transaction: they are sent at least once anyway, and a retry sends all of
        # them.
        with redis.explained(str(self._where)), self._client.pipeline(transaction=False) as pipeline:
            for record in records:
                pipeline.xadd(self._where.name, {name: str(v) for name, v in record.items() if v is not None})
            pipeline.execute()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class KafkaWriter(MessageWriter):
    """Records as JSON messages on a topic of Kafka."""

    def __init__(self, where: Address, fields: Sequence[str]) -> None:
        super().__init__(where, fields)
        self._failures: list[str] = []
        confluent = require("confluent_kafka", "streams")
        self._producer = confluent.Producer({**kafka.settings(where), "enable.idempotence": True})

    def _send(self, records: list[dict[str, Value]]) -> None:
        for record in records:
            try:
                self._produce(record)
            # The queue of the client is full: wait until the broker has what is in it, and go on.
            except BufferError:
                self._wait()
                self._produce(record)
        self._wait()

    def _produce(self, record: dict[str, Value]) -> None:
        self._producer.produce(self._where.name, json.dumps(record).encode(), on_delivery=self._delivered)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(error.str())

    def _wait(self) -> None:
        if self._producer.flush(_SEND_SECONDS):
            # Some were not delivered: drop them here, they are kept by the caller and sent again.
            self._producer.purge()
            self._producer.flush(1.0)
        failures, self._failures = self._failures, []
        if failures:
            raise self._lost(f"messages could not be delivered ({failures[0]})")


class MqttWriter(MessageWriter):
    """Records as JSON messages on an MQTT topic."""

    def __init__(self, where: Address, fields: Sequence[str]) -> None:
        super().__init__(where, fields)
        self._client = mqtt.client_of(where)
        mqtt.connect(self._client, where)

    def _send(self, records: list[dict[str, Value]]) -> None:
        # The client does not reconnect by itself (see `mqtt.client_of`): the runner waits, repeats the flush, and it is
        # done here.
        if not self._client.is_connected():
            self._client.loop_stop()
            mqtt.connect(self._client, self._where)
        try:
            # All are published before the first is waited for: one round trip for all of them, not one each.
            sent = [self._client.publish(self._where.name, json.dumps(record), qos=1) for record in records]
            for message in sent:
                message.wait_for_publish(timeout=_SEND_SECONDS)
        except (RuntimeError, ValueError) as error:
            raise self._lost(error) from error
        if not all(message.is_published() for message in sent):
            raise self._lost("messages could not be delivered")

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()
