"""Save and load: arrays and JSON in one safetensors file, never pickle.

A model file is a safetensors file whose metadata has one entry, ``everlearn``: a JSON text with the version of the
format, the version of everlearn, a checksum, what is said about the model (`everlearn.persistence.metadata`), the model
as a tree of plain values that names the file's tensors, and perhaps its answers (`everlearn.persistence.answers`) as
another such tree. Reading it builds only the classes listed in `everlearn.persistence.registry`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from everlearn.errors import InputError, ModelFileError
from everlearn.file_tags import TAGS
from everlearn.persistence import metadata
from everlearn.persistence.answers import AnyAnswers, check_answers
from everlearn.persistence.atomic_write import write_whole
from everlearn.persistence.codec import DTYPES, Arrays, Decoder, Encoder
from everlearn.typing import SaveableModel
from everlearn.version import __version__

FORMAT_VERSION = 2
_KEY = "everlearn"
_NAMES = {dtype: dtype.name for dtype in DTYPES.values()}
# The limit of the safetensors library itself.
_HEADER_LIMIT = 100_000_000
_MOST_VALUES = 1_000_000
# Whatever contents may raise on the way to a model. Left out are OSError, which is about the disk, and
# KeyboardInterrupt.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive, such as torch.save, np.savez or a spreadsheet writes"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy .npy file"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3", "an SQLite file"),
)


def save(
    model: SaveableModel,
    path: str | os.PathLike[str],
    *,
    answers: bool = False,
    tags: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
) -> None:
    """Write a model to a file, all of it or nothing.

    The file is written beside its final place, flushed to the disk and renamed: after a failure the
    file that was there before is intact and nothing else is left behind.

    Parameters
    ----------
    model : estimator
        A model of everlearn, fitted or not. It does not change.
    path : path-like
        The file; an existing one is replaced.
    answers : bool, default=False
        Whether the file also holds what the model answers from, for readers that do not load the model: `everlearn
        show` and `ask` then take a third of the time. It may take a search (see `IncrementalGaussianMixture`), and
        adds K (D^2 + D) numbers for a mixture of K components in D columns, K (Q + 2) D for one with Q factors or for
        a PPCA. Of a classifier or regressor it is what `show` says.
    tags : dict, optional
        What to say about the model in the file, such as ``{"site": "north"}``, beside the tags that it has.
    units : dict, optional
        Units of columns by name, beside those that stand behind the names, as in ``temp [°C]``.

    Raises
    ------
    InputError
        The model holds something that a model file cannot.
    OSError
        The file could not be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import everlearn
    >>> model = everlearn.IncrementalGaussianMixture().fit([[0.0, 1.0], [1.0, 0.5], [0.5, 0.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.evl")
    ...     everlearn.save(model, path)
    ...     same = everlearn.load(path)
    >>> same.score([[0.5, 0.5]]) == model.score([[0.5, 0.5]])
    True
    """
    write_whole(path, _file_of(model, answers=answers, dated=True, tags=tags, units=units), "model")


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that :func:`save` wrote: it answers and goes on learning bit for bit as before.

    Nothing in the file is executed. A file from a stranger can be refused, or give a model.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    model
        The estimator, of the class that was saved.

    Raises
    ------
    ModelFileError
        The file is truncated, foreign, from a newer version, a pickle, or its contents do not fit.
    OSError
        The file cannot be read.
    """
    name = os.fspath(path)
    return _loads(_contents(path), name, os.path.basename(name))


def load_answers(path: str | os.PathLike[str]) -> AnyAnswers | None:
    """Read the answers of a model file and leave the model; None where the file has none.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    Answers, FactorAnswers, DetectorAnswers, PredictorAnswers or None
        What the model answers from.

    Raises
    ------
    ModelFileError
        The file is truncated, foreign, from a newer version, a pickle, or its contents do not fit.
    OSError
        The file cannot be read.
    """
    data = _contents(path)
    with _blamed(os.fspath(path)):
        answers = _content(data, arrays := _tensors(data)).get("answers")
        return None if answers is None else check_answers(Decoder(arrays, len(data)).decode(answers))


def _contents(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file that begins as a model file does."""
    with _blamed(os.fspath(path)):
        # Opening a FIFO would wait for ever, and reading /dev/zero would never end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelFileError("this is not a regular file.")
        with open(path, "rb") as file:
            # Before the file is read: a foreign file may be larger than memory. The size is that of the file that is
            # open, not of what may have taken its name since.
            _check_start(file.read(16), os.fstat(file.fileno()).st_size)
            file.seek(0)
            return file.read()


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what a model file says about its model, without loading the model.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    dict
        ``kind`` of the model, ``format`` and ``version`` that wrote it, its ``digest``, ``bytes``; when its first row
        was learned (``created``) and its last (``last_row``); number of ``rows``, whether some of them are inside
        (``keeps_rows``); ``columns`` with name, unit and range (mean and three standard deviations); ``tags``,
        ``parameters``, and ``parents``: the files that were merged into it. None for what a file does not say.

    Raises
    ------
    ModelFileError
        The file is truncated, foreign, from a newer version or a pickle.

    Examples
    --------
    >>> import os, tempfile
    >>> import everlearn
    >>> model = everlearn.OnlinePPCA(1).fit([[0.0, 1.0], [1.0, 0.5], [0.5, 0.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.evl")
    ...     everlearn.save(model, path, tags={"site": "north"})
    ...     found = everlearn.read_metadata(path)
    >>> found["kind"], found["rows"], found["tags"]
    ('OnlinePPCA', 3, {'site': 'north'})
    """
    name = os.fspath(path)
    with _blamed(name):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelFileError("this is not a regular file.")
        with open(path, "rb") as file:
            size, start = os.fstat(file.fileno()).st_size, file.read(16)
            _check_start(start, size)
            file.seek(0)
            # The header alone: of a fleet of thousands of files the tensors stay on the disk. Their digest is therefore
            # not checked.
            return _metadata(file.read(8 + int.from_bytes(start[:8], "little")), size)


def metadata_of(data: bytes, name: str) -> dict[str, Any]:
    """What `read_metadata` gives, of the contents of a model file that lies elsewhere; `name` is for messages."""
    with _blamed(name):
        _check_start(data[:16], len(data))
        return _metadata(data[: 8 + int.from_bytes(data[:8], "little")], len(data))


def _metadata(header: bytes, size: int) -> dict[str, Any]:
    content = _header(header)
    # By the table of tags, without importing the class, which would bring scikit-learn and the kernels.
    tag = content["model"]["class"]
    kind = TAGS[tag].partition(":")[2] if tag in TAGS else str(tag)
    return metadata.summary(content, size, kind)


def dumps(model: SaveableModel, *, answers: bool = False) -> bytes:
    """Give the contents of a model file, to send or to keep elsewhere; equal models give equal bytes.

    Parameters
    ----------
    model : estimator
        A model of everlearn, fitted or not. It does not change.
    answers : bool, default=False
        Whether to add what the model answers from; see :func:`save`.

    Returns
    -------
    bytes
        What :func:`save` would write; :func:`loads` builds the model from them.

    Examples
    --------
    >>> from everlearn import OnlinePPCA, dumps, loads
    >>> loads(dumps(OnlinePPCA(3)))
    OnlinePPCA(n_components=3)
    """
    return _file_of(model, answers=answers, dated=False)


def _file_of(
    model: SaveableModel,
    *,
    answers: bool,
    dated: bool,
    tags: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
) -> bytes:
    """The bytes of a model file; what depends on the clock only if it is `dated`."""
    if not isinstance(model, SaveableModel):
        raise InputError(f"save takes a model of everlearn, not a {type(model).__name__}.")
    encoder = Encoder()
    content: dict[str, Any] = {"format": FORMAT_VERSION, "everlearn": __version__, "digest": ""}
    about = metadata.about(model, dated=dated)
    for name, more in (("tags", tags), ("units", units)):
        if more:
            about[name] = about.get(name, {}) | metadata.check_texts(more, name)
    if about:
        content |= {"about": about, "about_digest": metadata.checksum(about)}
    # One encoder for both trees: their tensors share one table, and the memory allowed to abbreviated arrays is counted
    # together, in the order in which the reader meets them: first the model, then its answers.
    content["model"] = encoder.encode(model, "")
    if answers and model._is_started() and (found := _answers_of(model)) is not None:
        content["answers"] = encoder.encode(found, "answers")
    content["digest"] = digest(content, encoder.arrays)
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    # The limit of the reader, applied where the model still exists and can be saved in another way.
    if _n_values(text) > _MOST_VALUES:
        raise InputError(
            f"The model has {_n_values(text):,} parts that are no arrays of numbers; a file takes {_MOST_VALUES:,}."
        )
    return safetensors.numpy.save(encoder.arrays, metadata={_KEY: text})


def _answers_of(model: SaveableModel) -> AnyAnswers | None:
    """The answers of a model; None where it cannot answer yet, or a reader would refuse them and the file with them."""
    with contextlib.suppress(InputError, ModelFileError):
        found = model._answers()
        return None if found is None else check_answers(found)
    return None


def loads(data: bytes, *, name: str = "The data") -> Any:
    """Build a model from the contents of a model file; see :func:`load`.

    Parameters
    ----------
    data : bytes
        The contents.
    name : str
        What to call them in messages.
    """
    return _loads(data, name, None)


def _loads(data: bytes, name: str, source: str | None) -> Any:
    with _blamed(name):
        _check_start(data[:16], len(data))
        content = _content(data, arrays := _tensors(data))
        about = metadata.checked(content)
        decoder = Decoder(arrays, len(data))
        model = decoder.decode(content["model"])
        # Checked although they are not used here: a file that loads must not fail later, when somebody only asks.
        if "answers" in content:
            check_answers(decoder.decode(content["answers"]))
        if not isinstance(model, SaveableModel):
            raise ModelFileError("it holds no model.")
        if arrays:
            raise ModelFileError(f"it holds tensors that its model does not name: {', '.join(arrays)[:200]}.")
        parent = None
        # The parent of a later merge, by the file's own digest: the model is not serialised again to name it.
        if source is not None and "rows" in about:
            parent = metadata.Parent(source, content["digest"][: metadata.DIGEST_DIGITS], about["rows"])
        metadata.restore(model, about, parent)
    return model


@contextlib.contextmanager
def _blamed(name: str) -> Iterator[None]:
    """Name the file in a refusal, and refuse it whatever its contents break."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{name}: {error}") from error
    except _DAMAGE as error:
        raise ModelFileError(f"{name}: it is damaged, or was made to look like a model file ({error!r}).") from error


# -- reading ---------------------------------------------------------------------------------------


def _check_start(start: bytes, size: int) -> None:
    """Say what a file is, from its first bytes, when it cannot be a safetensors file."""
    for magic, what in _FOREIGN:
        if start.startswith(magic):
            raise ModelFileError(f"this is {what}, not a model file of everlearn.")
    # A safetensors file may begin with the same byte, the lowest of its header's length; then a brace stands at offset
    # 8.
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and start[8:9] != b"{":
        raise ModelFileError(
            "this is a pickle, which could run any program and is never opened. Load it where it was made, "
            "if you trust it, and write it with everlearn.save."
        )
    if size < 8:
        raise ModelFileError(f"it is truncated, or not a model file: it has {size} bytes.")
    header = int.from_bytes(start[:8], "little")
    if start[8:9] not in (b"{", b"") or header > _HEADER_LIMIT:
        raise ModelFileError("this is not a model file of everlearn.")
    if header > size - 8:
        raise ModelFileError(
            f"it is truncated: its header should have {header} bytes, the whole file has {size}. Copy it again."
        )


def _tensors(data: bytes) -> Arrays:
    try:
        entries = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        if "not fully covered" in str(error):
            raise ModelFileError(f"it is truncated, or has bytes too many: {error}. Copy it again.") from error
        raise ModelFileError(f"this is not a model file of everlearn, or it is damaged: {error}.") from error
    return {key: _array(key, entry) for key, entry in entries}


def _array(key: str, entry: dict[str, Any]) -> np.ndarray:
    dtype = DTYPES.get(entry["dtype"])
    if dtype is None:
        raise ModelFileError(f"the tensor {key[:80]!r} is of type {entry['dtype']}, which models do not use.")
    # A copy, which the model may write to as it learns, whatever kind of buffer safetensors gives.
    array = np.frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"]).copy()
    # NumPy trusts the byte of a bool: compiled code that adds or compares truth values would take 255 for more than
    # one.
    if dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise ModelFileError(f"the tensor {key[:80]!r} has truth values that are neither true nor false.")
    return array


def _text(data: bytes) -> str:
    """The JSON text of the model, from the header of the file."""
    head = data[8 : 8 + int.from_bytes(data[:8], "little")].decode()
    # Python takes up to a hundred bytes for three of JSON ("[],"): the values are counted before any is built.
    if _n_values(head) > _MOST_VALUES:
        raise ModelFileError(f"its header has more than {_MOST_VALUES:,} values.")
    header = json.loads(head, object_pairs_hook=_distinct)
    text = header.get("__metadata__", {}).get(_KEY)
    if text is None:
        raise ModelFileError("this is a safetensors file, but not a model of everlearn.")
    if _n_values(text) > _MOST_VALUES:
        raise ModelFileError(f"its model has more than {_MOST_VALUES:,} values.")
    return str(text)


def _n_values(text: str) -> int:
    """An upper bound of the number of values in a JSON text: each but the first follows a comma or a bracket."""
    return text.count(",") + text.count("[") + text.count("{") + 1


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, refused if a name stands in it twice: readers differ in which of the two they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ModelFileError("it has a name twice in its header.")
    return found


def _content(data: bytes, arrays: Arrays) -> dict[str, Any]:
    """What the JSON text of a file holds, if it is undamaged."""
    content = _header(data)
    if content["digest"] != digest(content, arrays):
        raise ModelFileError("it is damaged: its contents are not those that were saved. Copy it again.")
    return content


def _header(data: bytes) -> dict[str, Any]:
    """What the JSON text of a file holds, if it is of a format that is known; `data` may end behind the header."""
    content: dict[str, Any] = json.loads(_text(data), parse_constant=_refuse_constant, object_pairs_hook=_distinct)
    version = content["format"]
    if type(version) is not int or version < 1:
        raise ModelFileError(f"it has the unknown format {str(version)[:80]!r}.")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"it has format {version}, written by everlearn {str(content.get('everlearn'))[:40]}; this is everlearn "
            f"{__version__}, which reads up to format {FORMAT_VERSION}. Upgrade with: pip install -U everlearn"
        )
    if type(content["digest"]) is not str or type(content["model"]) is not dict:
        raise ModelFileError("it holds no model.")
    return content


def digest(content: dict[str, Any], arrays: Arrays) -> str:
    """SHA-256 of a model's tree, its answers' if there are any, and the arrays: it tells damage, not malice."""
    found = hashlib.sha256(json.dumps(content["model"]).encode())
    if "answers" in content:
        found.update(json.dumps(content["answers"]).encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(repr((name, _NAMES[array.dtype], array.shape)).encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _refuse_constant(token: str) -> float:
    raise ModelFileError(f"it has the number {token}, which JSON does not know.")
