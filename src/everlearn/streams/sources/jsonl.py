"""JSON lines: one object or list a line; nested objects become columns such as ``motor.rpm``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from everlearn.errors import InputError
from everlearn.streams.sources.parsing import Batch, Record, batch_of
from everlearn.streams.sources.schema import (
    ALL_NUMBERS,
    LOOK_ROWS,
    MOST_COLUMNS,
    Choice,
    Columns,
    check_width,
    choose,
    kind_of,
)

_DEEPEST = 8
MOST_GROWN = 100  # columns that may appear: names that are never the same twice are no sensors
LONGEST_MESSAGE = 1 << 24  # as the longest line of a file: no row of numbers is longer


def flat(value: Any, name: str = "", depth: int = 0) -> dict[str, Any]:
    """The plain values of a JSON value by name: ``{"a": {"b": 1}}`` has ``a.b``, a list of values ``column0``, ..."""
    # Beyond some depth a value stays what it is, and its column is left out: names of 100 levels help nobody.
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
    # json raises the latter for some thousand brackets, which anyone can send to a broker.
    except (ValueError, RecursionError):
        return "a line that is no JSON"


def columns_of(place: str, records: Iterable[dict[str, Any]], choice: Choice) -> tuple[Columns, dict[str, str]]:
    """Choose among the columns that some records have; returns also what each of them holds."""
    kept = list(records)
    names = dict.fromkeys(itertools.chain(*kept))
    if choice.columns is None:
        check_width(place, len(names))
    samples = {name: [record.get(name) for record in kept] for name in names}
    kinds = {name: kind_of(name, values) for name, values in samples.items()}
    return choose(place, kinds, choice, samples), kinds


def record_of(place: str, values: dict[str, Any] | str, columns: Columns, text: str) -> Record:
    """The chosen columns of a record; a column that it lacks is a gap."""
    if isinstance(values, str):
        return Record(place, (), text, values)
    if not any(name in values for name in (*columns.read, *columns.left_out)):
        return Record(place, (), text, "none of the columns")
    return Record(place, [values.get(name) for name in columns.read], text)


class NewColumns:
    """Columns of numbers that appear in later records: said once, and read from then on if asked for.

    Parameters
    ----------
    columns : Columns
        The columns that are read.
    kinds : dict
        What each known column holds; new ones are added in place.
    choice : Choice
        Which columns are asked for.
    """

    def __init__(self, columns: Columns, kinds: dict[str, str], choice: Choice) -> None:
        self.columns = columns
        self._kinds, self._choice, self._n_grown = kinds, choice, 0
        # Where nobody has looked at the first records, what they hold beside the chosen columns did not appear later.
        self._unseen = not kinds
        self._known = {**kinds, **dict.fromkeys(columns.read)}

    def look(self, place: str, records: Sequence[dict[str, Any] | str]) -> dict[str, Any]:
        """Take the next records; returns `notes` and `grown` of their batch."""
        known = self._known
        fresh: dict[str, list[Any]] = {}
        for record in records:
            # Nearly always all names are known: comparing the views of the keys costs little.
            if isinstance(record, dict) and not record.keys() <= known.keys():
                for name in record.keys() - known.keys():
                    fresh.setdefault(name, []).append(record[name])
        notes, grown = [], []
        for name in sorted(fresh):
            # Names that are never the same twice, such as ids as keys, must not fill the memory.
            if len(known) >= MOST_COLUMNS:
                break
            known[name] = self._kinds[name] = kind_of(name, fresh[name])
            if known[name] == "numbers":
                grows = self._n_grown < MOST_GROWN and self._choice.grows(name)
                notes += [appeared(place, name, grows=grows)] * (grows or not self._unseen)
                grown += [name] * grows
                self._n_grown += grows
        self._unseen = False
        if grown:
            self.columns = self.columns._replace(names=[*self.columns.names, *grown])
        return {"notes": notes, "grown": grown}


def appeared(place: str, name: str, *, grows: bool) -> str:
    """What to say of a column that appeared."""
    what = "it is learned from now on" if grows else "it is left out"
    return f"{place} has a column {name!r} that was not there before; {what}."


class JsonFormat:
    """How to read one file of JSON lines, found from its beginning.

    Parameters
    ----------
    place : str
        What to call the file in messages.
    head : bytes
        Its beginning, in whole lines.
    choice : Choice
        Which columns are asked for.
    """

    newline = b"\n"
    start = line = 0

    def __init__(self, place: str, head: bytes, choice: Choice = ALL_NUMBERS) -> None:
        self.place = place
        lines = [line for line in head.split(b"\n", LOOK_ROWS + 1)[: LOOK_ROWS + 1] if line.strip()]
        records = [record for record in map(parsed, lines) if isinstance(record, dict)]
        if not records:
            raise InputError(f"{place} has no line that is JSON." if lines else f"{place} is empty.")
        columns, self.kinds = columns_of(place, records, choice)
        self._new = NewColumns(columns, self.kinds, choice)

    @property
    def columns(self) -> Columns:
        """What is read and what is left out."""
        return self._new.columns

    def parse(self, block: bytes, line: int, *, final: bool) -> tuple[Batch, int]:
        """Rows of a block of whole lines, and the number of its bytes."""
        lines = [(i, text, parsed(text)) for i, text in enumerate(block.split(b"\n"), 1) if text.strip()]
        news = self._new.look(self.place, [values for _, _, values in lines])
        records = [
            record_of(f"{self.place}:{line + i}", values, self.columns, text[:200].decode(errors="replace"))
            for i, text, values in lines
        ]
        return batch_of(records, self.columns)._replace(**news), len(block)


def batch_of_messages(place: str, messages: Sequence[tuple[str, Any]], new: NewColumns) -> Batch:
    """Rows out of the messages of a broker: place and payload, see `payload_values`."""
    found = [payload_values(payload) for _, payload in messages]
    news = new.look(place, found)
    records = (
        record_of(where, values, new.columns, _shown(payload))
        for (where, payload), values in zip(messages, found, strict=True)
    )
    return batch_of(records, new.columns)._replace(**news)


def payload_values(payload: Any) -> dict[str, Any] | str:
    """The plain values of a message: JSON, numbers with commas between them, or fields of text."""
    parts = [part for pair in payload.items() for part in pair] if isinstance(payload, dict) else [payload or b""]
    # Before anything is decoded or parsed.
    if sum(map(len, parts)) > LONGEST_MESSAGE:
        return f"a message of more than {LONGEST_MESSAGE >> 20} MiB"
    if isinstance(payload, dict):
        fields = {_text(name): _text(value) for name, value in payload.items()}
        # Many senders put one JSON text into a single field of a Redis entry.
        only = next(iter(fields.values()), "")
        return parsed(only) if len(fields) == 1 and only.lstrip()[:1] in ("{", "[") else fields
    text = _text(b"" if payload is None else payload).strip()  # Kafka's deletions have no payload
    if text[:1] in ("{", "["):
        return parsed(text)
    return {f"column{i}": cell for i, cell in enumerate(text.split(","))} if text else "an empty message"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _shown(payload: Any) -> str:
    if isinstance(payload, dict):
        return str({_text(k)[:200]: _text(v)[:200] for k, v in payload.items()})[:200]
    return _text(payload[:800] if isinstance(payload, bytes) else payload)[:200]
