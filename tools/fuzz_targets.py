"""What the fuzzer attacks: model and state files, tables, JSON lines, messages and requests, with what must hold.

A target has seeds, mutations that keep the outer form intact (a checksum, an SQLite file, a request), and `attack`,
which uses one input as the program would and says whether it was refused or accepted. Anything but our own errors is
a finding, and so is an answer that breaks a promise.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gzip
import io
import json
import os
import random
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import safetensors.numpy
from sklearn.exceptions import NotFittedError

import everlearn
from everlearn.errors import EverlearnError
from everlearn.persistence.model_file import digest, dumps, loads
from everlearn.service.app import create_app
from everlearn.service.settings import Limits, Settings
from everlearn.streams.session import Session
from everlearn.streams.sources.files import FileSource
from everlearn.streams.sources.jsonl import NewColumns, batch_of_messages, columns_of, payload_values
from everlearn.streams.sources.schema import ALL_NUMBERS
from everlearn.streams.store.records import BadRow, Event
from everlearn.streams.store.store import Store

REFUSED, ACCEPTED = "refused", "accepted"
_OURS = (EverlearnError, NotFittedError)
_NUMBERS = (0, 1, -1, 2, 7, 255, 2**31, 2**53, -(2**63), 2**63, 2**64, 10**400, 0.5, -1.5, 1e-320, 1e300, -1e308)
_VALUES: tuple[Any, ...] = (
    *_NUMBERS, None, True, False, "", "x", "nan", "\0", "é" * 50, [], {}, [1], [[1.0]], {"a": 1},
    {"kind": "float", "value": "nan"}, {"kind": "float", "value": "inf"}, {"kind": "tuple", "items": [1, 2]},
)  # fmt: skip


class BrokenPromise(Exception):
    """An input was taken, and what came of it is not what is promised."""


class Target:
    """Something that takes bytes from strangers."""

    name: str
    tokens: tuple[bytes, ...] = ()
    """Words of its language, which blind changes would hardly find."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def seeds(self) -> list[bytes]:
        """Sound inputs."""
        raise NotImplementedError

    def mutate(self, data: bytes, rng: random.Random) -> bytes | None:
        """An input changed inside of its outer form; None where that is not possible."""
        return None

    def attack(self, data: bytes) -> str:
        """Use an input: "refused" or "accepted"; any exception is a finding."""
        raise NotImplementedError

    def close(self) -> None:
        """Check what must hold after all inputs."""


# -- model files -----------------------------------------------------------------------------------


def _models() -> Iterator[Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    yield everlearn.IncrementalGaussianMixture(max_components=4).partial_fit(X)
    yield everlearn.IncrementalGaussianMixture(max_components=4, forgetting=0.99).fit(np.tile(X, (6, 1)))
    yield everlearn.OnlinePPCA(1).partial_fit(X)
    yield everlearn.VariationalPPCA(1).partial_fit(X)
    yield everlearn.IncrementalGaussianMixtureClassifier().fit(X, y)
    yield everlearn.IncrementalGaussianMixtureRegressor().fit(X, X[:, 1] + y)


class ModelFiles(Target):
    """What `load`, and an upload to the service, read."""

    name = "model files"
    tokens = (*b'"kind" "array" "class" "fitted" data_offsets __metadata__ F64 BOOL 1e999'.split(),)

    def seeds(self) -> list[bytes]:
        """Models of several kinds."""
        return [dumps(model) for model in _models()]

    def mutate(self, data: bytes, rng: random.Random) -> bytes | None:
        """Change a value of the tree or an array, and write the right checksum."""
        try:
            text, tensors = _parts(data)
            content, tensors = json.loads(text), dict(tensors)
            if tensors and rng.random() < 0.5:
                name = rng.choice(sorted(tensors))
                tensors[name] = _spoiled(tensors[name], rng)
            else:
                node, key = rng.choice(list(_places(content["model"])))
                node[key] = copy.deepcopy(rng.choice(_VALUES))
            content["digest"] = digest(content, tensors)
            return safetensors.numpy.save(tensors, metadata={"everlearn": json.dumps(content, separators=(",", ":"))})
        except Exception:  # an input of the corpus that is no file any more
            return None

    def attack(self, data: bytes) -> str:
        """Load, ask, teach, save."""
        try:
            model = loads(data)
        except EverlearnError:
            return REFUSED
        _use(model)
        return ACCEPTED


@functools.lru_cache(64)
def _parts(data: bytes) -> tuple[str, dict[str, Any]]:
    """The JSON text and the arrays of a model file."""
    head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return head["__metadata__"]["everlearn"], safetensors.numpy.load(data)


def _use(model: Any) -> None:
    """Ask and teach a model that was loaded: it answers with numbers or refuses in our words."""
    n = getattr(model, "n_features_in_", 2)
    if n > 64:
        return
    X = np.zeros((3, n)) + np.arange(3)[:, None]
    for method in ("score_samples", "predict", "transform"):
        if hasattr(model, method):
            with contextlib.suppress(*_OURS):
                found = np.asarray(getattr(model, method)(X))
                if method == "score_samples" and np.isnan(found).any():
                    raise BrokenPromise(f"{type(model).__name__}.{method} gives NaN for rows without gaps.")
    labels = getattr(model, "classes_", None)
    y = () if not hasattr(model, "predict") else ((X[:, 0],) if labels is None else (np.resize(labels, 3),))
    with contextlib.suppress(*_OURS):
        model.partial_fit(X, *y)
    with contextlib.suppress(*_OURS):
        loads(dumps(model))


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(items):
        yield node, key
        yield from _places(value)


def _spoiled(array: Any, rng: random.Random) -> Any:
    """An array of other content, type or shape."""
    if rng.random() < 0.3:
        return rng.choice(
            [
                lambda: array.astype(np.float32),
                lambda: array.reshape(-1),
                lambda: array[..., :0].copy(),
                lambda: np.zeros((1,) * array.ndim, array.dtype),
                lambda: np.concatenate([array.reshape(-1)] * 2),
            ]
        )()
    found = array.copy()
    odd = rng.choice((np.nan, np.inf, -np.inf, 0.0, -1.0, 1.0, 1e308, -1e308, 5e-324, 1e-200, 1e150, 2.0**53))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = np.array([odd]).astype(array.dtype)[0]
    if rng.random() < 0.5 or not found.size:
        found[...] = value
    else:
        found.reshape(-1)[rng.randrange(found.size)] = value
    return found


# -- state files -----------------------------------------------------------------------------------


_CELLS = (
    *(0, 1, -1, 2**31, 2**63 - 1, -(2**63), 1.5, 1e308, float("inf"), None),
    *("", "x", "[]", "{}", "null", b"", b"\0" * 64),
)


class StateFiles(Target):
    """What `learn --state` and `serve` open."""

    name = "state files"
    tokens = (b"SQLite format 3", b"EVLN", b"CREATE TABLE", b"model", b"inbox")
    _columns = ("a", "b")

    def seeds(self) -> list[bytes]:
        """A file with two models, events, history, bad rows and an inbox."""
        path = self._path("seed.db")
        rng = np.random.default_rng(0)
        with Store(path) as store:
            for name, model in (("model", everlearn.OnlinePPCA(1)), ("other", everlearn.VariationalPPCA(1))):
                session = Session(model, store=store, name=name, columns=list(self._columns))
                session.learn(rng.normal(size=(120, 2)))
                session.leave_out([BadRow("x:1", "text", "a,b")])
                session.note("started", reason="seed")
                session.commit(position={"inbox": {"columns": list(self._columns)}})
                store.put([(name, np.ones((2, 2)))], keys=["first"])
                store.note(name, [Event(3, "novelty", 0.5)])
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode = DELETE")
        return [Path(path).read_bytes()]

    def mutate(self, data: bytes, rng: random.Random) -> bytes | None:
        """Write another value into a column of a table."""
        path = self._path("mutant.db")
        Path(path).write_bytes(data)
        try:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                table = rng.choice(sorted(tables))
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                column = rng.choice(columns)
                found = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
                connection.execute(f"UPDATE {table} SET {column} = ?", (_cell(found[0] if found else None, rng),))
        except (sqlite3.Error, IndexError, OverflowError, UnicodeError):
            return None
        return Path(path).read_bytes()

    def attack(self, data: bytes) -> str:
        """Read everything, then learn what is in the inbox and commit."""
        path = self._path("attacked.db")
        Path(path).write_bytes(data)
        try:
            with Store(path) as store:
                self._read(store)
                session = Session(everlearn.OnlinePPCA(1), store=store, columns=list(self._columns))
                for batch in store.take("model"):
                    session.learn(batch.X)
                session.commit(taken=store.latest_batch())
        except (EverlearnError, OSError):
            return REFUSED
        return ACCEPTED

    def _read(self, store: Store) -> None:
        for entry in store.models():
            name = entry.name
            for ask in (store.load, store.position, store.memory, store.take, store.waiting, store.history):
                ask(name)
            for ask in (store.events, store.latest_events, store.bad_rows, store.totals):
                ask(name)

    def _path(self, name: str) -> str:
        path = os.path.join(self.folder, name)
        for ending in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + ending)
        return path


def _cell(value: Any, rng: random.Random) -> Any:
    """Another value for a cell, often one of its own kind: JSON with a part changed, a blob with a byte changed."""
    if isinstance(value, str) and rng.random() < 0.6:
        with contextlib.suppress(ValueError):
            tree = [json.loads(value)]
            node, key = rng.choice(list(_places(tree)))
            node[key] = copy.deepcopy(rng.choice(_VALUES))
            return json.dumps(tree[0])
    if isinstance(value, bytes) and value and rng.random() < 0.6:
        found = bytearray(value)
        found[rng.randrange(len(found))] = rng.randrange(256)
        return bytes(found)
    return rng.choice(_CELLS)


# -- tables ----------------------------------------------------------------------------------------


class Tables(Target):
    """CSV, plain and compressed, Parquet and Arrow files."""

    name = "CSV and tables"
    tokens = (b"\t", b"\r\n", b"\r", b"\n", b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1a")
    tokens += (*b""", ; | " "" NaN inf - 1e999 2026-11-05T12:00:00 time 1_000 0x1F 1,5 ' PAR1 ARROW1""".split(),)

    def seeds(self) -> list[bytes]:
        """The same small table in many dialects."""
        rows = b"2026-11-05T12:00:00,1,2.5,x\n2026-11-05T12:00:01,,-3e5,y\n2026-11-05T12:00:02,7,nan,z\n"
        plain = b"time,a,b,c\n" + rows * 3
        semicolons = b'a;b\r\n1,5;2\r\n"3,25";4\r\n;5\r\n'
        quoted = b'"a","b, with a comma","c ""quoted"""\n1,2,3\n4,"5\n6",7\n8,9,10\n'
        bare = b"1 \t2\t3\n4\t5\t6\n7\t8\t9\n"
        return [plain, semicolons, quoted, bare, b"\xef\xbb\xbf" + plain, gzip.compress(plain), *_columnar()]

    def attack(self, data: bytes) -> str:
        """Read the file to its end, and once more from the middle."""
        path = os.path.join(self.folder, "attacked.csv")
        Path(path).write_bytes(data)
        return _read_rows(path, data)


class JsonLines(Target):
    """JSON lines."""

    name = "JSON lines"
    tokens = (*rb'{ } [ ] : , " null true NaN Infinity 1e999 \u0000 \ud800 "a" -0'.split(), b"\n", b"\xff")
    tokens += (b"[" * 2000, b'{"a":' * 500, b"1" * 5000)

    def seeds(self) -> list[bytes]:
        """Objects, lists, nested objects and gaps."""
        flat = b'{"time": "2026-11-05T12:00:00", "a": 1, "b": -2.5e3, "c": "x"}\n'
        flat += b'{"a": null, "b": 4}\n{"b": true, "a": 3}\n'
        nested = b'{"x": {"y": 1, "z": [1, 2]}, "a": 5}\n{"x": {"y": 2}, "a": 6}\n'
        lists = b"[1, 2, 3]\n[4, null, 6]\n[7, 8, 9.5]\n"
        return [flat, nested, lists, gzip.compress(flat * 5)]

    def attack(self, data: bytes) -> str:
        """Read the file to its end."""
        path = os.path.join(self.folder, "attacked.jsonl")
        Path(path).write_bytes(data)
        return _read_rows(path, data)


class Messages(Target):
    """Messages of brokers that send anything: the first of a stream, from which columns are taken, and later ones."""

    name = "messages"
    tokens = JsonLines.tokens

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._columns = self._of_first({"time": "2026-11-05T12:00:00", "a": 1, "b": 2.5, "column0": 3})

    def seeds(self) -> list[bytes]:
        """JSON objects and lists, numbers with commas, fields of text."""
        flat = b'{"time": "2026-11-05T12:00:00", "a": 1, "b": -2.5e3, "c": "x"}'
        return [flat, b'{"a": null, "b": true, "x": {"y": [1, 2]}}', b"[1, null, 3.5]", b"1, 2.5,,nan"]

    def attack(self, data: bytes) -> str:
        """Take the message as the first one, and as a later one of a stream whose columns are known."""
        values = payload_values(data)
        known = [self._columns]
        with contextlib.suppress(EverlearnError):
            known += [self._of_first(values)] if isinstance(values, dict) else []
        n_learned = 0
        for columns in known:
            new = NewColumns(columns, {}, ALL_NUMBERS)
            batch = batch_of_messages("here", [("here", data), ("there", {b"a": data})], new)
            if np.isinf(batch.X).any() or batch.X.shape[1] != len(new.columns.names):
                raise BrokenPromise("A batch holds infinity, or has other columns than its source.")
            if len(batch.X) + len(batch.bad) != 2 or not all(bad.reason for bad in batch.bad):
                raise BrokenPromise("A message is neither learned nor left out with its reason.")
            n_learned += len(batch.X)
        return ACCEPTED if n_learned else REFUSED

    @staticmethod
    def _of_first(values: dict[str, Any]) -> Any:
        return columns_of("here", [values], ALL_NUMBERS)[0]


def _read_rows(path: str, data: bytes) -> str:
    try:
        with FileSource([path]) as source:
            found = list(source.batches())
            for batch in found:
                if np.isinf(batch.X).any() or batch.X.shape[1] != len(source.columns.names):
                    raise BrokenPromise("A batch holds infinity, or has other columns than its source.")
            if found and found[0].position is not None:
                again = list(source.batches(found[0].position))
                if sum(len(batch.X) for batch in again) != sum(len(batch.X) for batch in found[1:]):
                    raise BrokenPromise("Reading on from a position gives other rows.")
            n_rows = sum(len(batch.X) + len(batch.bad) for batch in found)
            if n_rows > 50 * len(data) + 10_000:
                raise BrokenPromise("There are more rows than the file can hold.")
    except (EverlearnError, OSError):
        return REFUSED
    return ACCEPTED


def _columnar() -> list[bytes]:
    """The table as Parquet and Arrow, with columns of every type that people write."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return []
    table = arrow_table()
    parquet, stream, whole = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pq.write_table(table, parquet, row_group_size=4)
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_file(whole, table.schema) as writer:
        writer.write_table(table)
    return [parquet.getvalue(), stream.getvalue(), whole.getvalue()]


def arrow_table() -> Any:
    """Six rows with a column of each type of Arrow."""
    import datetime
    import decimal

    import pyarrow as pa

    moment = datetime.datetime(2026, 11, 5, 12)
    moments = [moment + datetime.timedelta(seconds=i) for i in range(6)]
    floats = [1.0, None, float("nan"), -2.5, float("inf"), 4.0]
    wholes = [1, 2, None, 4, 5, 6]
    columns = {
        **{str(kind): pa.array(wholes, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
        **{str(kind): pa.array(wholes, kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
        **{str(kind): pa.array(floats, kind) for kind in (pa.float32(), pa.float64())},
        "half": pa.array(np.array([1, 2, 3, 4, 5, 6], np.float16)),
        "bool": pa.array([True, None, False, True, True, False]),
        "decimal128": pa.array([decimal.Decimal("1.25"), None] * 3, pa.decimal128(12, 3)),
        "decimal256": pa.array([decimal.Decimal("1.25"), None] * 3, pa.decimal256(40, 3)),
        "text": pa.array(["x", None, "", "1.5", "nan", "é"]),
        "large text": pa.array(["x", None, "", "1.5", "nan", "é"], pa.large_string()),
        "bytes": pa.array([b"1", None, b"\xff", b"2", b"", b"3"]),
        "fixed bytes": pa.array([b"ab", None, b"cd"] * 2, pa.binary(2)),
        "labels": pa.array(["u", "v", None] * 2).dictionary_encode(),
        "levels": pa.array([1.5, 2.5, None] * 2).dictionary_encode(),
        "date32": pa.array([each.date() for each in moments]),
        "date64": pa.array([each.date() for each in moments], pa.date64()),
        "time32": pa.array([each.time() for each in moments], pa.time32("s")),
        "time64": pa.array([each.time() for each in moments], pa.time64("us")),
        "timestamp": pa.array(moments, pa.timestamp("ns")),
        "zoned": pa.array(moments, pa.timestamp("ms", "UTC")),
        "duration": pa.array([datetime.timedelta(seconds=i) for i in range(6)]),
        "list": pa.array([[1.0], None, [], [2.0, 3.0], [4.0], [5.0]]),
        "fixed list": pa.array([[1.0, 2.0]] * 6, pa.list_(pa.float64(), 2)),
        "struct": pa.array([{"u": 1.0, "v": {"w": 2}}, None] * 3),
        "map": pa.array([[("k", 1.0)]] * 6, pa.map_(pa.string(), pa.float64())),
        "null": pa.nulls(6),
    }
    return pa.table(columns)


# -- requests --------------------------------------------------------------------------------------

_LIMITS = Limits(rows=500, columns=64, models=12, requests_per_second=1e9, body_bytes=1 << 20, question_seconds=5.0)


class Requests(Target):
    """Requests to the service: the application itself is called, without a socket.

    An input is a request as HTTP writes it: a line with method and path, headers, an empty line, the body.
    """

    name = "HTTP requests"
    tokens = (*b'"rows" "columns" "targets" "target" "n_rows" "parameters" "coverage" null NaN 1e999'.split(),)
    tokens += (*b"/learn /score /predict /sample /merge /events %2e%2e %00 POST PUT DELETE a".split(),)
    tokens += (b"Idempotency-Key: k", b"Content-Type: application/json", b"Origin: null", b"Host: evil")
    tokens += (b"[" * 1000, b"1" * 5000)

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._state = os.path.join(folder, "service-of-the-fuzzer.db")
        with Store(self._state) as store:
            session = Session(everlearn.IncrementalGaussianMixture(), store=store, name="a", columns=["u", "v"])
            session.learn(np.random.default_rng(0).normal(size=(300, 2)))
            session.commit(position={"inbox": {"columns": ["u", "v"]}})
        self._app = create_app(self._state, Settings(limits=_LIMITS))
        self._loop = asyncio.new_event_loop()
        self._lifespan = self._app.router.lifespan_context(self._app)
        self._loop.run_until_complete(self._lifespan.__aenter__())
        # One task for all requests: the threads in which they are answered end with the task that asked for them first.
        self._asked: asyncio.Queue[Any] = asyncio.Queue()
        self._task = self._loop.create_task(self._answer_all())

    def seeds(self) -> list[bytes]:
        """One request for each thing that the service does."""
        rows = [[float(i % 7), float(i % 5)] for i in range(60)]
        body = {
            "POST /models/a/learn": {"columns": ["u", "v"], "rows": rows},
            "PUT /models/b": {"kind": "OnlinePPCA", "parameters": {"n_components": 1}, "columns": ["u", "v"]},
            "POST /models/b/learn": {"rows": [[1, None], [2.5, -3e2]]},
            "POST /models/a/score": {"rows": [[1, 2], [None, 3]]},
            "POST /models/a/predict": {"rows": [{"u": 1}, {}], "target": ["v"], "coverage": 0.5},
            "POST /models/a/condition": {"rows": [{"u": 1.0}], "target": "v"},
            "POST /models/a/sample": {"n_rows": 3, "rows": [{"v": 2}]},
            "POST /models/a/pictures/density": {"rows": [{"u": 1.0}], "target": "v"},
        }
        paths = ("", "/a", "/a/file", "/a/history?limit=3", "/a/events?after=0", "/a/pictures/components?x=u&y=v")
        asked = [f"GET /models{path}" for path in (*paths, "/a/pictures/likelihood")]
        asked += ["GET /health", "GET /readyz", "GET /metrics", "GET /", "GET /static/page.js", "DELETE /models/c"]
        found = [_request(line, json.dumps(data).encode()) for line, data in body.items()]
        found += [_request(line) for line in asked]
        upload = dumps(everlearn.OnlinePPCA(1).partial_fit(np.random.default_rng(0).normal(size=(60, 2))))
        found.append(_request("POST /models/d/merge", upload, kind="application/octet-stream"))
        return found

    def mutate(self, data: bytes, rng: random.Random) -> bytes | None:
        """Change a value of the JSON body, or of the file that is sent."""
        head, _, body = data.partition(b"\n\n")
        if b"octet-stream" in head:
            changed = _files(self.folder).mutate(body, rng)
            return None if changed is None else head + b"\n\n" + changed
        try:
            tree = [json.loads(body)]
        except (ValueError, RecursionError):
            return None
        node, key = rng.choice(list(_places(tree)))
        node[key] = copy.deepcopy(rng.choice(_VALUES))
        if isinstance(node, dict) and rng.random() < 0.2:
            node[rng.choice(("rows", "targets", "target", "x", "kind"))] = node.pop(key)
        return head + b"\n\n" + json.dumps(tree[0]).encode()

    def attack(self, data: bytes) -> str:
        """Send the request; the answer is no mistake of ours, in JSON where it refuses, and tells no path."""
        scope, body = _scope(data)
        answered = self._loop.create_future()
        self._asked.put_nowait((answered, scope, body))
        status, headers, answer = self._loop.run_until_complete(answered)
        if status >= 500 and status not in (503, 507):
            raise BrokenPromise(f"Status {status}: {answer[:200]!r}")
        if status in (503, 507):
            raise BrokenPromise(f"The service is in trouble, status {status}: {answer[:200]!r}")
        if b"Traceback (most" in answer or self.folder.encode() in answer or b"site-packages" in answer:
            raise BrokenPromise(f"The answer tells what concerns nobody: {answer[:300]!r}")
        if status >= 400 and scope["method"] != "HEAD" and not isinstance(json.loads(answer)["detail"], str):
            raise BrokenPromise(f"A refusal without a reason: {answer[:200]!r}")
        if b"content-security-policy" not in headers:
            raise BrokenPromise("An answer without the headers that protect the page.")
        return REFUSED if status >= 400 else ACCEPTED

    async def _answer_all(self) -> None:
        while True:
            answered, *request = await self._asked.get()
            try:
                answered.set_result(await self._send(*request))
            except Exception as error:
                answered.set_exception(error)

    async def _send(self, scope: dict[str, Any], body: bytes) -> tuple[int, set[bytes], bytes]:
        done, parts = asyncio.Event(), [body]
        sent: dict[str, Any] = {"status": 0, "headers": set(), "body": b""}

        async def receive() -> dict[str, Any]:
            if parts:
                return {"type": "http.request", "body": parts.pop(), "more_body": False}
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                sent["status"], sent["headers"] = message["status"], {key.lower() for key, _ in message["headers"]}
            else:
                sent["body"] += message.get("body", b"")
                # An event stream ends with its client only: it leaves after the first word.
                if not message.get("more_body") or scope["path"].endswith("/events"):
                    done.set()

        await self._app(scope, receive, send)
        return sent["status"], sent["headers"], sent["body"]

    def close(self) -> None:
        """Learn what was accepted; all models are learned, and the threads live."""
        learning = self._app.state.repository.learning
        try:
            if not learning.is_alive():
                raise BrokenPromise("A thread that learns has ended.")
            if learning.troubles:
                raise BrokenPromise(f"Models cannot be learned any more: {learning.troubles!r}"[:500])
        finally:
            self._task.cancel()
            self._loop.run_until_complete(asyncio.gather(self._task, return_exceptions=True))
            self._loop.run_until_complete(self._lifespan.__aexit__(None, None, None))
            self._loop.close()


@functools.cache
def _files(folder: str) -> ModelFiles:
    return ModelFiles(folder)


def _request(line: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    return f"{line}\nHost: localhost\nContent-Type: {kind}\n\n".encode() + body


def _scope(data: bytes) -> tuple[dict[str, Any], bytes]:
    """A request as ASGI describes it, in the way that a server's parser would hand it on."""
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, target = first.partition(b" ")
    raw, _, query = target.partition(b"?")
    name = bytes(byte for byte in method if byte < 128 and chr(byte).isalpha()).decode()[:20].upper() or "GET"
    headers = []
    for line in lines:
        key, colon, value = line.partition(b":")
        if colon and key and all(33 <= byte < 127 for byte in key):
            headers.append((key.lower(), bytes(byte for byte in value if byte >= 32 and byte != 127).strip()))
    path = unquote(raw.decode("latin-1")) if raw.startswith(b"/") else "/" + unquote(raw.decode("latin-1"))
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": name, "scheme": "http",
        "path": path, "raw_path": raw, "query_string": query, "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 8765), "state": {},
    }  # fmt: skip
    return scope, body


TARGETS: dict[str, Callable[[str], Target]] = {
    "model": ModelFiles,
    "state": StateFiles,
    "csv": Tables,
    "jsonl": JsonLines,
    "message": Messages,
    "http": Requests,
}


@contextlib.contextmanager
def opened(name: str) -> Iterator[Target]:
    """A target with a folder of its own, in memory where the system has such a place."""
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="everlearn-fuzz-", dir=place) as folder:
        target = TARGETS[name](folder)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield target
        finally:
            target.close()
