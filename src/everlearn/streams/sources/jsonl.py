"""JSON lines: one object or list a line; nested objects become columns such as ``motor.rpm``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from everlearn.errors import InputError
from everlearn.streams.sources.parsing import Record, Rows, rows_of
from everlearn.streams.sources.schema import LOOK_ROWS, Columns, choose, kind_of

_DEEPEST = 8


def flat(value: Any, name: str = "", depth: int = 0) -> dict[str, Any]:
    """The plain values of a JSON value by name: ``{"a": {"b": 1}}`` has ``a.b``, a list of values ``column0``, ..."""
    if depth > _DEEPEST or not isinstance(value, (dict, list)) or (isinstance(value, list) and name):
        return {name or "value": value}
    items = value.items() if isinstance(value, dict) else ((f"column{i}", item) for i, item in enumerate(value))
    found: dict[str, Any] = {}
    for key, item in items:
        found.update(flat(item, f"{name}.{key}" if name else str(key), depth + 1))
    return found


def parsed(text: bytes | str) -> dict[str, Any] | str:
    """The plain values of a JSON text, or the reason why there are none."""
    try:
        return flat(json.loads(text))
    except (ValueError, RecursionError):
        return "a line that is no JSON"


def columns_of(
    place: str, records: Iterable[dict[str, Any]], columns: Sequence[str] | None, target: str | None
) -> Columns:
    """Choose among the columns that some records have."""
    kept = list(records)
    found = {name: [record.get(name) for record in kept] for name in dict.fromkeys(itertools.chain(*kept))}
    return choose(place, {name: kind_of(name, values) for name, values in found.items()}, columns, target)


def record_of(place: str, values: dict[str, Any] | str, columns: Columns, text: str) -> Record:
    """The chosen columns of a record; a column that it lacks is a gap."""
    if isinstance(values, str):
        return Record(place, values, text)
    if not any(name in values for name in (*columns.all, *columns.left_out)):
        return Record(place, "none of the columns", text)
    return Record(place, [values.get(name) for name in columns.all], text)


class JsonFormat:
    """How to read one file of JSON lines, found from its beginning.

    Parameters
    ----------
    place : str
        What to call the file in messages.
    head : bytes
        Its beginning, in whole lines.
    columns : sequence of str, optional
        Names or patterns of the columns to read.
    target : str, optional
        The column to predict.
    """

    newline = b"\n"
    start = line = 0

    def __init__(
        self, place: str, head: bytes, *, columns: Sequence[str] | None = None, target: str | None = None
    ) -> None:
        self.place = place
        lines = [line for line in head.split(b"\n", LOOK_ROWS + 1)[: LOOK_ROWS + 1] if line.strip()]
        records = [record for record in map(parsed, lines) if isinstance(record, dict)]
        if not records:
            raise InputError(f"{place} has no line that is JSON." if lines else f"{place} is empty.")
        self.columns = columns_of(place, records, columns, target)

    def parse(self, block: bytes, line: int, *, final: bool) -> tuple[Rows, int]:
        """Rows of a block of whole lines, and the number of its bytes."""
        records = [
            record_of(f"{self.place}:{line + i}", parsed(text), self.columns, text[:200].decode(errors="replace"))
            for i, text in enumerate(block.split(b"\n"), 1)
            if text.strip()
        ]
        return rows_of(records, self.columns), len(block)


def messages_to_rows(messages: Iterable[tuple[str, Any]], columns: Columns) -> Rows:
    """Rows out of the messages of a broker: place and payload, see `payload_values`."""
    records = []
    for place, payload in messages:
        records.append(record_of(place, payload_values(payload), columns, _shown(payload)))
    return rows_of(records, columns)


def payload_values(payload: Any) -> dict[str, Any] | str:
    """The plain values of a message: JSON, numbers with commas between them, or fields of text."""
    if isinstance(payload, dict):
        fields = {_text(name): _text(value) for name, value in payload.items()}
        only = next(iter(fields.values()), "")
        return parsed(only) if len(fields) == 1 and only.lstrip()[:1] in ("{", "[") else fields
    text = _text(payload).strip()
    if text[:1] in ("{", "["):
        return parsed(text)
    return {f"column{i}": cell for i, cell in enumerate(text.split(","))} if text else "an empty message"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _shown(payload: Any) -> str:
    return str({_text(k): _text(v) for k, v in payload.items()} if isinstance(payload, dict) else _text(payload))[:200]
