"""Events of a run in words, for terminal and reports."""

from __future__ import annotations

from typing import Any

TOLD = ("change", "anomaly", "new_normal", "time gap")
"""Kinds of events that a report tells of; of novelties there may be very many."""


def rows_of(event: Any) -> str:
    """The row of an event; the first and the last one where it has several.

    Examples
    --------
    >>> from everlearn.reporting.events import rows_of
    >>> from everlearn.streams.store.records import Event
    >>> rows_of(Event(1200, "anomaly", 1e-5, {"last": 1260})), rows_of(Event(7, "change"))
    ('1,200 to 1,260', '7')
    """
    last = _details(event).get("last")
    return f"{event.row:,} to {last:,}" if isinstance(last, int) and last > event.row else f"{event.row:,}"


def words_of(event: Any) -> str:
    """What an event has to say: its value, and of an anomaly the column to blame and why.

    Examples
    --------
    >>> from everlearn.reporting.events import words_of
    >>> from everlearn.streams.store.records import Event
    >>> told = {"last": 7, "column": "heat", "text": "heat 71.2, expected 52 to 55 from the others"}
    >>> words_of(Event(7, "anomaly", 1e-5, told))
    'p-value 1e-05: heat 71.2, expected 52 to 55 from the others'
    """
    value = event.value
    if event.kind == "anomaly":
        # State files of earlier versions have the column alone.
        return f"p-value {value:.2g}: {reason_of(event) or column_of(event)}"
    if event.kind == "new_normal":
        return f"{value:,.0f} rows"
    if event.kind == "time gap":
        return f"{value:,.0f} s"
    if value != value:
        return ""
    return f"{'p-value' if event.kind == 'novelty' else 'log-density'} {value:.4g}"


def column_of(event: Any) -> str:
    """The column to blame for an anomaly."""
    return str(_details(event).get("column", ""))


def reason_of(event: Any) -> str:
    """Why an event is an anomaly; nothing in state files of earlier versions."""
    return str(_details(event).get("text", ""))


def name_of(event: Any) -> str:
    """The kind of an event in words."""
    return str(event.kind).replace("_", " ")


def _details(event: Any) -> dict[str, Any]:
    return getattr(event, "details", None) or {}
