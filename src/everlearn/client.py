"""A client of the HTTP service, on the standard library: `everlearn.Client`."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import numpy as np

from everlearn.errors import InputError, ServiceError
from everlearn.persistence.model_file import dumps, loads
from everlearn.typing import Array

_JSON, _FILE = "application/json", "application/octet-stream"
_LATER = (408, 425, 429, 502, 503, 504, 507)  # statuses of a service, or a proxy, that has done nothing
_BATCH_ROWS = 5000
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_POLL_SECONDS = 0.1
_STREAM_SECONDS = 60.0  # the service says something every 15 seconds
_NUMBERS = ("log_density", "p_value", "score", "value", "low", "high", "mean", "std", "probability", "x", "density")


class Client:
    """Teaches and asks the models of a service that `everlearn serve` runs.

    Rows are arrays, lists, lists of dictionaries, or data frames of pandas or polars; NaN and None are values that were
    not observed. What fails for a reason that passes (the service restarts, or is busy) is tried again, with pauses
    that grow; rows have a key of their own, so that they are learned once however often they are sent. Threads may
    share a client; each has a connection of its own.

    Parameters
    ----------
    url : str, default="http://127.0.0.1:8765"
        Address of the service, with the root path where it has one.
    token : str, optional
        The token of the service.
    timeout : float, default=60.0
        Seconds to wait for an answer.
    patience : float, default=120.0
        Seconds for which a request is tried again; 0 tries once.
    context : ssl.SSLContext, optional
        How to verify an address with https.

    Raises
    ------
    ServiceError
        The service refused, or cannot be reached; `status` and `request_id` say more.

    Examples
    --------
    >>> import everlearn
    >>> client = everlearn.Client("http://127.0.0.1:8765")
    >>> client.learn("machine", [{"rpm": 900, "torque": 21.5}])  # doctest: +SKIP
    1
    >>> client.predict("machine", [{"rpm": 900}], target=["torque"])["mean"]  # doctest: +SKIP
    array([[21.5]])
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8765",
        token: str | None = None,
        *,
        timeout: float = 60.0,
        patience: float = 120.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise InputError(f"url={url!r:.80} is no address of a service; give one such as http://127.0.0.1:8765.")
        self.url = url.rstrip("/")
        self._parts = parts
        self._root = parts.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout = timeout
        self._patience = patience
        self._context = context
        self._threads = threading.local()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection of this thread."""
        connection = getattr(self._threads, "connection", None)
        self._threads.connection = None
        if connection is not None:
            connection.close()

    # -- models -----------------------------------------------------------------------------------

    def models(self) -> Iterator[dict[str, Any]]:
        """Each model of the service, by name, with its kind, its number of rows and the time of its latest change."""
        after: str | None = ""
        while after is not None:
            page = self._json("GET", f"/models?{urlencode({'after': after})}")
            yield from page["models"]
            after = page["next"]

    def show(self, name: str) -> dict[str, Any]:
        """What a model is and has seen; `waiting` is the number of rows that are still to be learned."""
        return self._json("GET", _of(name))

    def create(
        self,
        name: str,
        columns: Sequence[str],
        *,
        kind: str = "IncrementalGaussianMixture",
        target: str | None = None,
        **parameters: Any,
    ) -> dict[str, Any]:
        """Make a model.

        Parameters
        ----------
        name : str
            Its name.
        columns : sequence of str
            Names of its columns.
        kind : str
            Name of its class.
        target : str, optional
            Name of what a classifier or regressor predicts.
        **parameters
            Parameters of the class.

        Returns
        -------
        dict
            Its summary.
        """
        body = {"kind": kind, "columns": list(columns), "parameters": parameters, "target": target}
        return self._json("PUT", _of(name), body, repeat=False)

    def delete(self, name: str) -> None:
        """Forget a model, its history, and the rows that wait for it."""
        self._call("DELETE", _of(name), repeat=False)

    def history(self, name: str, *, limit: int = 1000) -> list[dict[str, Any]]:
        """The run of a model so far, as intervals of rows."""
        found: list[dict[str, Any]] = self._json("GET", _of(name, f"/history?limit={limit}"))["intervals"]
        return found

    def model(self, name: str) -> Any:
        """A copy of a model as it is now, to be asked, or to go on learning, here."""
        return loads(self._call("GET", _of(name, "/file")), name=f"The model {name!r} of {self.url}")

    def merge(self, name: str, model: Any) -> dict[str, Any]:
        """Merge a model that was learned here into one of the service; a name that is new begins with it."""
        answer = self._call("POST", _of(name, "/merge"), dumps(model), kind=_FILE, repeat=False)
        found: dict[str, Any] = json.loads(answer)
        return found

    # -- learning ---------------------------------------------------------------------------------

    def learn(
        self,
        name: str,
        rows: Any,
        targets: Sequence[Any] | None = None,
        *,
        columns: Sequence[str] | None = None,
        key: str | None = None,
    ) -> int:
        """Send rows to be learned, once each; they are on the service's disk when this returns.

        Parameters
        ----------
        name : str
            Name of the model; a new one makes a Gaussian mixture.
        rows : array, lists, dictionaries or data frame
            The rows.
        targets : sequence, optional
            What a classifier or regressor should predict for each row.
        columns : sequence of str, optional
            Names of the columns, for rows without names.
        key : str, optional
            Your own name for these rows. Rows that are sent again with their key, also by another process after a
            crash, are not learned again.

        Returns
        -------
        int
            Number of rows accepted.
        """
        rows, columns = _plain_rows(rows, columns)
        key, n_accepted = key or uuid.uuid4().hex, 0
        labels = None if targets is None else np.asarray(targets).tolist()
        if labels is not None and len(labels) != len(rows):
            raise InputError(f"There are {len(labels):,} targets and {len(rows):,} rows; give one for each row.")
        for start in range(0, len(rows), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            body = _body(rows[part], columns, targets=None if labels is None else labels[part])
            # The place in the rows belongs to the key: the batches of one call are not copies of each other.
            headers = {"Idempotency-Key": key if start == 0 else f"{key}+{start}"}
            n_accepted += self._json("POST", _of(name, "/learn"), body, headers=headers)["accepted"]
        return n_accepted

    def wait(self, name: str, *, seconds: float = 600.0) -> dict[str, Any]:
        """Wait until a model has learned what was sent; returns its summary."""
        end = time.monotonic() + seconds
        while (summary := self.show(name))["waiting"]:
            if time.monotonic() > end:
                raise ServiceError(f"After {seconds:g} s {summary['waiting']:,} rows of {name!r} are not learned yet.")
            time.sleep(_POLL_SECONDS)
        return summary

    # -- asking -----------------------------------------------------------------------------------

    def score(
        self, name: str, rows: Any, *, columns: Sequence[str] | None = None, alarm: float | None = None
    ) -> dict[str, Any]:
        """How likely rows are: `log_density` and `p_value`; from a detector also the `column` to blame.

        Parameters
        ----------
        name : str
            Name of the model.
        rows : array, lists, dictionaries or data frame
            The rows.
        columns : sequence of str, optional
            Names of the columns, for rows without names.
        alarm : float, optional
            p-value below which a detector names a column.

        Returns
        -------
        dict
            Arrays by name, one number for each row; None for what the model does not give.
        """
        rows, columns = _plain_rows(rows, columns)
        return _arrays(self._json("POST", _of(name, "/score"), _body(rows, columns, alarm=alarm)))

    def predict(
        self,
        name: str,
        rows: Any,
        target: Sequence[str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        coverage: float = 0.9,
    ) -> dict[str, Any]:
        """What is to be expected of columns, or of the target of a classifier or regressor, from what is known.

        Parameters
        ----------
        name : str
            Name of the model.
        rows : array, lists, dictionaries or data frame
            What is known of each row.
        target : sequence of str, optional
            Columns to predict; none for a classifier or regressor.
        columns : sequence of str, optional
            Names of the columns, for rows without names; some of the model's may do.
        coverage : float
            Probability of the interval from `low` to `high`.

        Returns
        -------
        dict
            `mean`, `std`, `low` and `high` of shape (n_rows, n_targets); `label`, `classes` and `probability` of a
            classifier.
        """
        rows, columns = _plain_rows(rows, columns)
        names = None if target is None else list(target)
        return _arrays(self._json("POST", _of(name, "/predict"), _body(rows, columns, target=names, coverage=coverage)))

    def condition(
        self, name: str, target: str, known: Mapping[str, float] | None = None, *, coverage: float = 0.9
    ) -> dict[str, Any]:
        """The distribution of a column once others are `known`: density along x, mean, std, low and high."""
        body = {"rows": [dict(known)] if known else [], "target": target, "coverage": coverage}
        return _arrays(self._json("POST", _of(name, "/condition"), body))

    def sample(self, name: str, n_rows: int = 1, known: Mapping[str, float] | None = None) -> Array:
        """Rows drawn from a model, those columns fixed that are `known`."""
        body = {"n_rows": n_rows, "rows": [dict(known)] if known else []}
        return np.array(self._json("POST", _of(name, "/sample"), body)["rows"], dtype=np.float64)

    # -- watching ---------------------------------------------------------------------------------

    def events(self, name: str, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """Events of a model as they come, without end: `kind`, `id`, `row`, `value`; `progress` events have no id.

        Parameters
        ----------
        name : str
            Name of the model.
        after : int
            Id of the latest event that is known; those behind it come first. Connections that are lost are made again,
            and no event is missed.
        """
        while True:
            with self._stream(_of(name, f"/events?after={after}")) as answer:
                try:
                    for event in _messages(answer):
                        after = event.get("id", after)
                        yield event
                except (OSError, http.client.HTTPException):
                    pass
            time.sleep(_SHORTEST_PAUSE)

    def health(self) -> dict[str, Any]:
        """Whether the service learns; `trouble` says why it does not."""
        return self._json("GET", "/health", accept=(503,))

    def version(self) -> dict[str, Any]:
        """Versions of the service and of its model files."""
        return self._json("GET", "/version")

    # -- requests ---------------------------------------------------------------------------------

    def _json(self, method: str, path: str, body: Any = None, **how: Any) -> dict[str, Any]:
        text = None if body is None else json.dumps(body, allow_nan=False).encode()
        found: dict[str, Any] = json.loads(self._call(method, path, text, **how))
        return found

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        kind: str = _JSON,
        headers: Mapping[str, str] | None = None,
        repeat: bool = True,
        accept: Sequence[int] = (),
    ) -> bytes:
        """The body of an answer; tried again as long as there is patience.

        Parameters
        ----------
        method, path, body, kind, headers
            The request.
        repeat : bool
            Whether it may be sent again when it is not known whether the service has got it.
        accept : statuses
            Those that are an answer, too.
        """
        end, pause = time.monotonic() + self._patience, _SHORTEST_PAUSE
        every = {**self._headers, **(headers or {}), **({} if body is None else {"Content-Type": kind})}
        while True:
            wait, sent = pause, False
            try:
                connection = self._connection(fresh=not repeat)
                sent = True
                connection.request(method, self._root + path, body, every)
                answer = connection.getresponse()
                data = answer.read()
                if answer.status < 400 or answer.status in accept:
                    return data
                error = _refused(answer, data)
                if answer.status not in _LATER:
                    raise error
                wait = max(pause, float(answer.headers.get("Retry-After") or 0.0))
            except (OSError, http.client.HTTPException) as problem:
                self.close()
                error = ServiceError(f"{self.url} does not answer: {problem or type(problem).__name__}.")
                if sent and not repeat:
                    raise ServiceError(
                        f"{error} It is not known whether it has done what was asked; look before you ask again."
                    ) from problem
            if time.monotonic() + wait > end:
                raise error
            # Many clients that lost the same service should not all come back at the same moment.
            time.sleep(wait * random.uniform(0.5, 1.0) if wait == pause else wait)
            pause = min(2.0 * pause, _LONGEST_PAUSE)

    def _connection(self, *, fresh: bool = False) -> http.client.HTTPConnection:
        """The connection of this thread, open; a `fresh` one cannot have been closed by the service meanwhile."""
        if fresh:
            self.close()
        connection: http.client.HTTPConnection | None = getattr(self._threads, "connection", None)
        if connection is None:
            connection = self._connect(self._timeout)
            self._threads.connection = connection
        return connection

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        connection.connect()
        return connection

    def _stream(self, path: str) -> http.client.HTTPResponse:
        """An answer that goes on, on a connection of its own."""
        end, pause = time.monotonic() + self._patience, _SHORTEST_PAUSE
        while True:
            try:
                connection = self._connect(_STREAM_SECONDS)
                connection.request("GET", self._root + path, headers=self._headers)
                answer = connection.getresponse()
                if answer.status == 200:
                    return answer
                error = _refused(answer, answer.read())
                if answer.status not in _LATER:
                    raise error
            except (OSError, http.client.HTTPException) as problem:
                error = ServiceError(f"{self.url} does not answer: {problem or type(problem).__name__}.")
            if time.monotonic() + pause > end:
                raise error
            time.sleep(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE)


def _of(name: str, rest: str = "") -> str:
    return f"/models/{quote(name, safe='')}{rest}"


def _refused(answer: http.client.HTTPResponse, data: bytes) -> ServiceError:
    """The service's own words; of a proxy that speaks no JSON the beginning of what it said."""
    try:
        reason = str(json.loads(data)["detail"])
    except (ValueError, KeyError, TypeError):
        reason = data[:200].decode("utf-8", "replace").strip() or answer.reason
    return ServiceError(reason, status=answer.status, request_id=answer.headers.get("X-Request-ID"))


def _plain_rows(rows: Any, columns: Sequence[str] | None) -> tuple[list[Any], list[str] | None]:
    """Rows as JSON has them, and the names of their columns where they are lists."""
    if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
        columns = [str(name) for name in rows.columns] if columns is None else columns
        rows = rows.to_numpy()
    names = None if columns is None else list(columns)
    if isinstance(rows, Sequence) and rows and isinstance(rows[0], Mapping):
        return [{str(key): _plain_value(value) for key, value in row.items()} for row in rows], names
    try:
        X = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"rows cannot be read as numbers: {error}. Leave out columns of text and of times.") from error
    if X.ndim != 2:
        raise InputError(f"rows has shape {X.shape}; give rows of columns, such as [[900, 21.5], [905, 21.9]].")
    if np.isinf(X).any():
        i, j = np.argwhere(np.isinf(X))[0]
        raise InputError(f"rows[{i}][{j}] is infinite. Give NaN or None for a value that was not observed.")
    plain: list[Any] = X.tolist()
    for i, j in np.argwhere(np.isnan(X)):
        plain[i][j] = None
    return plain, names


def _plain_value(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def _body(rows: list[Any], columns: list[str] | None, **fields: Any) -> dict[str, Any]:
    given = {"columns": columns, **fields}
    return {"rows": rows, **{key: value for key, value in given.items() if value is not None}}


def _arrays(answer: dict[str, Any]) -> dict[str, Any]:
    """Lists of numbers as arrays, with NaN for null."""
    return {
        key: np.array(value, dtype=np.float64) if key in _NUMBERS and isinstance(value, list) else value
        for key, value in answer.items()
    }


def _messages(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Server-sent events as dictionaries."""
    found: dict[str, str] = {}
    for line in answer:
        field, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
        if field:
            found[field] = value
        elif "data" in found:
            event = {"kind": found.get("event", "message"), **json.loads(found["data"])}
            yield {**event, "id": int(found["id"])} if "id" in found else event
            found = {}
        else:
            found = {}
