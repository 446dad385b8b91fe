"""The source for an address."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from everlearn.errors import InputError
from everlearn.streams.sources.files import FileSource
from everlearn.streams.sources.messages import address
from everlearn.streams.sources.schema import Choice, Columns
from everlearn.streams.sources.source import Source

_BROKERS = {
    "redis": ("redis", "RedisSource"),
    "kafka": ("kafka", "KafkaSource"),
    "mqtt": ("mqtt", "MqttSource"),
    "mqtts": ("mqtt", "MqttSource"),
}


def open_source(
    where: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    time: str | None = None,
    follow: bool = False,
    stop_at_end: bool = False,
    session: str = "",
    grow: bool = False,
    known: Columns | None = None,
    times: bool = False,
) -> Source:
    r"""Open files or a broker as a source of rows.

    Parameters
    ----------
    where : str or sequence of str
        Paths or patterns of files, ``-`` for standard input, or one address: ``redis://host/stream``,
        ``kafka://host/topic``, ``mqtt://host/topic``.
    columns : sequence of str, optional
        Names, or patterns such as ``temp*``, of the columns to read, in this order; all columns of numbers otherwise.
    target : str, optional
        The column to predict, for models that have one.
    time : str, optional
        The column of times, which is kept beside the rows and not learned; by default the first that holds times.
    follow : bool, default=False
        Whether to wait for more rows at the end of the files.
    stop_at_end : bool, default=False
        Whether to stop when all messages of a broker have been read.
    session : str
        Name under which an MQTT broker keeps messages while the program is away; empty for none.
    grow : bool, default=False
        Whether columns of numbers that appear later are read, too, behind the others.
    known : Columns, optional
        The columns that an earlier run found, which takes the place of looking at the first rows: those that a file
        does not have are gaps.
    times : bool, default=False
        Whether times are looked for even where columns are named, which needs the first message of a broker.

    Returns
    -------
    Source
        The source.

    Examples
    --------
    >>> import os, tempfile
    >>> from everlearn.streams.sources.opening import open_source
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "sensors.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("time,rpm,temp\n2024-01-01,900,21.5\n2024-01-02,,22\n")
    ...     with open_source(path) as source:
    ...         (batch,) = source.batches()
    >>> source.columns.names, source.columns.left_out
    (['rpm', 'temp'], {'time': 'times'})
    >>> batch.X
    array([[900. ,  21.5],
           [  nan,  22. ]])
    """
    choice = Choice(columns, target, time, grow=tuple(columns or "*") if grow else (), look=times)
    if known is not None:
        choice = choice._replace(
            columns=known.names,
            time=known.time or time,
            known=True,
            time_format=known.time_format,
            labels=known.labels,
        )
    paths = [where] if isinstance(where, str) else list(where)
    brokers = [path for path in paths if "://" in path]
    if not brokers:
        return FileSource(paths, choice, follow=follow)
    if len(paths) > 1:
        raise InputError("Give files, or the address of one stream; not both, and not several.")
    found = address(brokers[0])
    if found.scheme not in _BROKERS:
        raise InputError(f"{brokers[0]}: an address starts with one of {', '.join(_BROKERS)}. A file needs no ://.")
    options: dict[str, Any] = {"stop_at_end": stop_at_end}
    if found.scheme.startswith("mqtt"):
        options["session"] = session
    module, name = _BROKERS[found.scheme]
    source: Source = getattr(importlib.import_module(f"everlearn.streams.sources.{module}"), name)(
        found, choice, **options
    )
    return source
