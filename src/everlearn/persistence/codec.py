"""A model as a tree of plain JSON values and a table of arrays, and back.

Nothing here imports or calls anything that a file names, except the classes of
`everlearn.persistence.registry`. What is built from a file takes memory in proportion to the file: at most
`GROWTH` times its length, and `SPARE` bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError, ModelFileError
from everlearn.persistence.registry import class_named, is_estimator, is_named_tuple, is_value, tag_of
from everlearn.typing import SaveableModel

Arrays = dict[str, NDArray[Any]]

DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U8": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""Types of numbers a file may hold, by the names that safetensors gives them."""

GROWTH = 16
"""Most bytes in memory for each byte of a file, where the file leaves something out."""

SPARE = 4 << 20
"""Bytes that small arrays may take beyond that, all together."""

FEW = 4
"""Arrays of so many numbers stand in the JSON tree."""

LARGEST_KEY = 1 << 53
"""Whole numbers that are keys of a dict stay below: larger ones can be made to share a hash."""

LARGEST_NUMBER = 1 << 62
"""Whole numbers of a model, other than the state of a random generator: compiled code takes 64 bits."""

# Decoding recurses: the bound ends a file of a million brackets before the stack of the interpreter ends.
_DEPTH = 32
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# NumPy keeps texts as UTF-32.
_CHARACTER_BYTES = 4


class Room:
    """Memory that arrays may take beyond `GROWTH` times what a file holds of them.

    The writer and the reader count alike, in the order of the tree: what was written can be read.
    """

    def __init__(self) -> None:
        self._left = SPARE

    def take(self, full: int, stored: int) -> bool:
        """Whether an array of `full` bytes may be built from `stored` ones."""
        beyond = max(0, full - GROWTH * stored)
        if beyond > self._left:
            return False
        self._left -= beyond
        return True


# -- encoding --------------------------------------------------------------------------------------


class Encoder:
    """Turns a model into JSON values; arrays go into a table and are named in their place.

    Attributes
    ----------
    arrays : dict
        The arrays, by the names that the JSON values use.
    """

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._room = Room()

    def encode(self, value: Any, where: str, depth: int = 0) -> Any:
        """Turn `value`, which is found at the place `where` of the model, into JSON values."""
        if depth > _DEPTH:
            raise InputError(f"{where} is nested more than {_DEPTH} deep and cannot be saved.")
        # `type(...) is`, here and below, because bool is an int, np.float64 a float and a NamedTuple a tuple:
        # isinstance would write them as what they derive from, and another type would come back.
        if type(value) is int and abs(value) > LARGEST_NUMBER:
            raise InputError(f"{where} is a whole number of more than 62 bits and cannot be saved.")
        if value is None or type(value) in (bool, int, str):
            return value
        # NumPy's own text, as an item of an array of names is; it comes back as a plain one, which is equal and hashes
        # alike.
        if isinstance(value, np.str_):
            return str(value)
        if type(value) is float:
            return value if math.isfinite(value) else {"kind": "float", "value": repr(value)}
        if type(value) is list:
            return [self.encode(item, f"{where}.{i}", depth + 1) for i, item in enumerate(value)]
        if isinstance(value, np.ndarray):
            return self._array(value, where, depth)
        for test, encoder in self._COMPOUND:
            if test(value):
                return encoder(self, value, where, depth + 1)
        raise InputError(
            f"{where} is a {type(value).__name__}, which a model file cannot hold. It holds numbers, texts, arrays of "
            "them, lists, tuples, dicts and everlearn's own models and parameters. As random_state give a whole number."
        )

    def _array(self, value: NDArray[Any], where: str, depth: int) -> Any:
        native = value.dtype.newbyteorder("=")
        if native in _DTYPE_NAMES:
            # safetensors writes the memory as it lies; asarray keeps the shape () that ascontiguousarray loses.
            whole = np.asarray(value, dtype=native, order="C")
            used = _used(whole)
            # Room for what is still to come is zero: of that the file holds the length alone.
            if used is None or not self._room.take(whole.nbytes, used.nbytes):
                return self._stored(whole, where)
            return self._stored(used, where) | {"length": len(whole)}
        # Texts of fixed width, objects (names of columns), and NumPy 2's texts of any width. Dates and structures are
        # no state of any model.
        if value.dtype.kind not in "UOT":
            raise InputError(f"{where} is an array of {value.dtype}, which a model file cannot hold.")
        items = [self.encode(item, where, depth + 1) for item in value.ravel().tolist()]
        if value.dtype.kind == "U" and not self._room.take(*_text_bytes(items)):
            raise InputError(
                f"{where} holds texts of very different length; a model file cannot hold them as an array."
            )
        kind = "texts" if value.dtype.kind == "U" else "objects"
        return {"kind": kind, "shape": list(value.shape), "items": items}

    def _stored(self, array: NDArray[Any], where: str) -> dict[str, Any]:
        """An array as a tensor; few numbers, or none, stand in the tree itself, as a tensor's entry takes 150 bytes."""
        if array.size <= FEW and array.ndim and _is_plain(array):
            shape = {} if array.ndim == 1 else {"shape": list(array.shape)}
            kind = {} if array.dtype == np.float64 else {"type": _DTYPE_NAMES[array.dtype]}
            return {"kind": "few", "items": array.ravel().tolist()} | kind | shape
        # The number alone names the tensor in the tree; the place behind it is for people who list the tensors.
        number = len(self.arrays)
        self.arrays[f"{number}:{where}"] = array
        return {"kind": "array", "tensor": number}

    def _scalar(self, value: np.generic, where: str, depth: int) -> Any:
        return {"kind": "scalar", "type": _DTYPE_NAMES[value.dtype], "value": self.encode(value.item(), where, depth)}

    def _value(self, value: Any, where: str, depth: int) -> Any:
        names = value._fields if is_named_tuple(type(value)) else [field.name for field in dataclasses.fields(value)]
        fields = {name: self.encode(getattr(value, name), f"{where}.{name}", depth) for name in names}
        return {"kind": "value", "class": tag_of(type(value)), "fields": fields}

    def _tuple(self, value: tuple[Any, ...], where: str, depth: int) -> Any:
        return {"kind": "tuple", "items": [self.encode(item, f"{where}.{i}", depth) for i, item in enumerate(value)]}

    def _dict(self, value: dict[Any, Any], where: str, depth: int) -> Any:
        for key in value:
            if not _is_key(key):
                raise InputError(f"{where} has the key {key!r}; keys in a model file are texts or whole numbers.")
        return {
            "kind": "dict",
            "items": [[key, self.encode(item, f"{where}.{key}", depth)] for key, item in value.items()],
        }

    def _generator(self, value: np.random.Generator, where: str, depth: int) -> Any:
        # Two numbers of 128 bits: the only ones that go past the limit on whole numbers, and so not by way of `encode`.
        state: Any = value.bit_generator.state
        return {
            "kind": "generator",
            "state": [state["state"]["state"], state["state"]["inc"], state["has_uint32"], state["uinteger"]],
        }

    def _estimator(self, model: SaveableModel, where: str, depth: int) -> Any:
        params, attributes = model.get_params(deep=False), model._to_save()
        names = attributes.pop("feature_names_in_", None)
        if model._is_started():
            _check_loadable(model)
        return {
            "kind": "estimator",
            "class": tag_of(type(model)),
            "params": {k: self.encode(v, f"{where}{k}", depth) for k, v in params.items()},
            "feature_names": None if names is None else [str(name) for name in names],
            "fitted": {k: self.encode(v, f"{where}{k}", depth) for k, v in attributes.items()},
        }

    _COMPOUND: ClassVar[tuple[tuple[Callable[[Any], bool], Callable[..., Any]], ...]] = (
        (lambda value: isinstance(value, SaveableModel), _estimator),
        (lambda value: not isinstance(value, type) and is_value(type(value)), _value),
        (lambda value: type(value) is tuple, _tuple),
        (lambda value: type(value) is dict, _dict),
        (lambda value: isinstance(value, np.generic) and value.dtype in _DTYPE_NAMES, _scalar),
        (
            lambda value: isinstance(value, np.random.Generator) and isinstance(value.bit_generator, np.random.PCG64),
            _generator,
        ),
    )


def _used(array: NDArray[Any]) -> NDArray[Any] | None:
    """The array without the zeros at the end of its first axis, if there are any; -0.0 is not zero, bit for bit."""
    if not array.ndim or not array.size:
        return None
    # Compared as bytes and not as numbers, because -0.0 == 0.0 and a model must come back bit for bit.
    filled = np.flatnonzero(array.reshape(len(array), -1).view(np.uint8).any(axis=1))
    n = int(filled[-1]) + 1 if len(filled) else 0
    return array[:n] if n < len(array) else None


def _is_plain(array: NDArray[Any]) -> bool:
    """Whether JSON gives the very bits of the numbers back."""
    if array.dtype.kind == "f":
        return bool(np.isfinite(array).all())
    return array.dtype.kind == "b" or all(abs(int(number)) <= LARGEST_NUMBER for number in array.flat)


def _text_bytes(items: list[str]) -> tuple[int, int]:
    """Bytes of an array of texts, each as wide as the longest, and bytes of the texts alone."""
    lengths = [len(item) for item in items]
    return _CHARACTER_BYTES * len(items) * max(lengths, default=0), sum(lengths) + 3 * len(items)


def _is_key(key: Any) -> bool:
    return type(key) is str or (type(key) is int and abs(key) < LARGEST_KEY)


def _check_loadable(model: SaveableModel) -> None:
    """Refuse now what would be refused when the file is read, when it would be too late."""
    # On a shallow copy: whatever the checks set, the model that is being saved does not change.
    shadow = object.__new__(type(model))
    shadow.__dict__.update(vars(model))
    try:
        shadow._validate_params()
        shadow._check_loaded()
    except ValueError as error:
        raise InputError(
            f"The {type(model).__name__} cannot be saved: its parameters and what it learned do not fit: {error} "
            "Parameters that change after learning take effect with fit."
        ) from error


# -- decoding --------------------------------------------------------------------------------------


class Decoder:
    """Turns JSON values back into what they stood for.

    Parameters
    ----------
    arrays : dict
        The arrays of the file by name; each is taken out once.
    n_bytes : int
        Length of the file.
    """

    def __init__(self, arrays: Arrays, n_bytes: int) -> None:
        self.arrays = arrays
        self._names: dict[int, str] | None = None
        self._n_bytes = n_bytes
        self._room = Room()

    def decode(self, node: Any, depth: int = 0) -> Any:
        """Build the value of a node."""
        if depth > _DEPTH:
            raise ModelFileError(f"the file's contents are nested more than {_DEPTH} deep.")
        if isinstance(node, list):
            return [self.decode(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            if type(node) is int and abs(node) > LARGEST_NUMBER:
                raise ModelFileError(f"the file holds a whole number of {len(str(node))} digits, which no model has.")
            return node
        kind = node.get("kind")
        if not isinstance(kind, str) or kind not in self._KINDS:
            raise ModelFileError(f"the file holds a value of an unknown kind, {str(kind)[:80]!r}.")
        return self._KINDS[kind](self, node, depth + 1)

    def _array(self, node: dict[str, Any], depth: int) -> NDArray[Any]:
        name = self._tensor_name(node)
        # Taken out: two nodes with one tensor would give a model two views of the same memory, of which one changes the
        # other as it learns. What is left at the end was named by nobody, and the file is refused.
        array = self.arrays.pop(name)
        # A shape such as (10**12, 0) has no bytes, yet whatever is built with its length would take memory out of
        # proportion.
        if max(array.shape, default=0) > self._n_bytes:
            raise ModelFileError(f"the tensor {name[:80]!r} has an axis that is longer than the file.")
        return self._with_length(array, node)

    def _tensor_name(self, node: dict[str, Any]) -> str:
        """The name of a tensor: the tree has its number, or in files of format 1 the name itself."""
        asked = node.get("tensor")
        if self._names is None:
            numbers = ((name.partition(":")[0], name) for name in self.arrays)
            self._names = {int(number): name for number, name in numbers if number.isdecimal()}
        name = self._names.get(asked) if type(asked) is int else _field(node, "tensor", str)
        if name is None or name not in self.arrays:
            raise ModelFileError(f"the file lacks the tensor {str(asked)[:80]!r}, or names it twice.")
        return name

    def _few(self, node: dict[str, Any], depth: int) -> NDArray[Any]:
        items, dtype = _field(node, "items", list), DTYPES[node.get("type", "F64")]
        wanted = {"b": (bool,), "f": (int, float)}.get(dtype.kind, (int,))
        if len(items) > FEW or not all(type(item) in wanted for item in items):
            raise ModelFileError("the file's array of few numbers holds something else, or too many.")
        shape = _field(node, "shape", list) if "shape" in node else [len(items)]
        if not all(type(n) is int and 0 <= n <= self._n_bytes for n in shape) or math.prod(shape) != len(items):
            raise ModelFileError("the file's array of few numbers has another shape.")
        # A number that does not fit the type, such as 300 in U8, raises here and refuses the file.
        array = np.empty(shape, dtype=dtype)
        array.flat[:] = items
        return self._with_length(array, node)

    def _with_length(self, array: NDArray[Any], node: dict[str, Any]) -> NDArray[Any]:
        """The array with the zeros at its end that the file leaves out."""
        if "length" not in node:
            return array
        length = _field(node, "length", int)
        # Rows of no bytes would make any length free of charge; they are refused with the lengths that take too much
        # room.
        row = math.prod(array.shape[1:]) * array.itemsize
        if not array.ndim or length <= len(array) or not self._room.take(length * row, array.nbytes) or not row:
            raise ModelFileError(f"an array cannot have the length {length} in a file of this size.")
        whole = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
        whole[: len(array)] = array
        return whole

    def _float(self, node: dict[str, Any], depth: int) -> float:
        return _NOT_FINITE[_field(node, "value", str)]

    def _scalar(self, node: dict[str, Any], depth: int) -> np.generic:
        scalar: np.generic = DTYPES[_field(node, "type", str)].type(self.decode(node.get("value"), depth))
        return scalar

    def _texts(self, node: dict[str, Any], depth: int) -> NDArray[Any]:
        items = _field(node, "items", list)
        if not all(isinstance(item, str) for item in items):
            raise ModelFileError("the file's array of texts holds something else.")
        # NumPy makes all texts as wide as the longest one: one long text among many short ones is a bomb.
        if not self._room.take(*_text_bytes(items)):
            raise ModelFileError("the file's array of texts would take far more memory than the file has bytes.")
        return np.array(items, dtype=np.str_).reshape(_field(node, "shape", list))

    def _objects(self, node: dict[str, Any], depth: int) -> NDArray[Any]:
        items = _field(node, "items", list)
        array = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):
            array[i] = self.decode(item, depth)
        return array.reshape(_field(node, "shape", list))

    def _tuple(self, node: dict[str, Any], depth: int) -> tuple[Any, ...]:
        return tuple(self.decode(item, depth) for item in _field(node, "items", list))

    def _dict(self, node: dict[str, Any], depth: int) -> dict[Any, Any]:
        pairs = _field(node, "items", list)
        # Before the dict is built: keys such as i * (2^61 - 1) share a hash, and inserting them takes quadratic time.
        for key, _ in pairs:
            if not _is_key(key):
                raise ModelFileError(f"the file has a dict with the key {str(key)[:40]!r}: keys are texts or numbers.")
        return {key: self.decode(item, depth) for key, item in pairs}

    def _value(self, node: dict[str, Any], depth: int) -> Any:
        cls = class_named(_field(node, "class", str), is_value)
        return cls(**{name: self.decode(item, depth) for name, item in _field(node, "fields", dict).items()})

    def _generator(self, node: dict[str, Any], depth: int) -> np.random.Generator:
        """PCG64, which `numpy.random.default_rng` gives: any odd increment and any state make a sound generator."""
        state, increment, has_half, half = numbers = _field(node, "state", list)
        if not all(type(number) is int and number >= 0 for number in numbers) or (
            state >= 2**128 or increment >= 2**128 or not increment % 2 or has_half > 1 or half >= 2**32
        ):
            raise ModelFileError("the file holds the state of a random generator that cannot be right.")
        bits = np.random.PCG64(0)
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": has_half,
            "uinteger": half,
        }
        return np.random.Generator(bits)

    def _estimator(self, node: dict[str, Any], depth: int) -> SaveableModel:
        cls: Any = class_named(_field(node, "class", str), is_estimator)
        params = {name: self.decode(item, depth) for name, item in _field(node, "params", dict).items()}
        # The constructor would answer with a TypeError of its own, which says nothing about the file.
        unknown = params.keys() - set(cls._get_param_names())
        if unknown:
            raise ModelFileError(
                f"the file gives {cls.__name__} the unknown parameters {', '.join(sorted(unknown))[:200]}."
            )
        model: SaveableModel = cls(**params)
        # Into __dict__ and not by setattr: a file must not run a property's setter.
        for name, item in _field(node, "fitted", dict).items():
            _check_attribute(model, name)
            model.__dict__[name] = self.decode(item, depth)
        if self._is_fitted(model, node.get("feature_names")):
            model._check_loaded()
        return model

    def _is_fitted(self, model: SaveableModel, names: Any) -> bool:
        """Whether the model is fitted; its parameters fit, and those of a fitted one to its columns."""
        model._validate_params()
        n = vars(model).get("n_features_in_")
        if n is None and names is None and not any(name.endswith("_") for name in vars(model)):
            return False
        # A model has at least one number for each column: more columns than bytes cannot be.
        if type(n) is not int or not 1 <= n <= self._n_bytes:
            raise ModelFileError("the file holds a fitted model without its number of columns.")
        for value in vars(model).values():  # a prototype among the parameters has learned nothing, and was not checked
            if is_estimator(type(value)):
                value._validate_params()
        if names is not None:
            if type(names) is not list or len(names) != n or not all(isinstance(name, str) for name in names):
                raise ModelFileError(f"the file's column names do not fit its {n} columns.")
            model.__dict__["feature_names_in_"] = np.array(names, dtype=object)
        return True

    _KINDS: ClassVar[dict[str, Callable[..., Any]]] = {
        "array": _array,
        "few": _few,
        "float": _float,
        "scalar": _scalar,
        "texts": _texts,
        "objects": _objects,
        "tuple": _tuple,
        "dict": _dict,
        "value": _value,
        "generator": _generator,
        "estimator": _estimator,
    }


def _field(node: dict[str, Any], name: str, kind: type) -> Any:
    value = node.get(name)
    if type(value) is not kind:
        raise ModelFileError(
            f"the file's {node.get('kind')} has no {kind.__name__} {name!r}, but a {type(value).__name__}."
        )
    return value


def _check_attribute(model: SaveableModel, name: str) -> None:
    """Refuse names that would hide a method or a parameter, or fill a cache."""
    taken = getattr(type(model), name, None)
    hides = callable(taken) or isinstance(taken, property) or name in vars(model)
    if hides or not name.isidentifier() or name.startswith("__") or name in (*model._transient, "feature_names_in_"):
        raise ModelFileError(f"the file sets {name[:80]!r}, which is no fitted attribute of {type(model).__name__}.")
