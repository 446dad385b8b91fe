"""A model as a tree of plain JSON values and a table of arrays, and back.

Nothing here imports or calls anything that a file names, except the classes of
`everlearn.persistence.registry`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

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

_DEPTH = 32
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


# -- encoding --------------------------------------------------------------------------------------


def encode(value: Any, where: str, arrays: Arrays, depth: int = 0) -> Any:
    """Turn `value` into JSON values; its arrays go to `arrays` and are named in their place."""
    if depth > _DEPTH:
        raise InputError(f"{where} is nested more than {_DEPTH} deep and cannot be saved.")
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, np.str_):
        return str(value)
    if type(value) is float:
        return value if math.isfinite(value) else {"kind": "float", "value": repr(value)}
    inner = functools.partial(encode, arrays=arrays, depth=depth + 1)
    if type(value) is list:
        return [inner(item, f"{where}.{i}") for i, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        return _encode_array(value, where, arrays, inner)
    for test, encoder in _ENCODERS:
        if test(value):
            return encoder(value, where, inner)
    raise InputError(
        f"{where} is a {type(value).__name__}, which a model file cannot hold. It holds numbers, texts, arrays of "
        "them, lists, tuples, dicts, NumPy generators and everlearn's own models and parameters."
    )


def _encode_array(value: NDArray[Any], where: str, arrays: Arrays, inner: Callable[..., Any]) -> Any:
    native = value.dtype.newbyteorder("=")
    if native in _DTYPE_NAMES:
        name = f"{len(arrays)}:{where}"
        # safetensors writes the memory as it lies; asarray keeps the shape () that ascontiguousarray loses.
        arrays[name] = np.asarray(value, dtype=native, order="C")
        return {"kind": "array", "tensor": name}
    if value.dtype.kind not in "UOT":
        raise InputError(f"{where} is an array of {value.dtype}, which a model file cannot hold.")
    texts = "texts" if value.dtype.kind == "U" else "objects"
    return {"kind": texts, "shape": list(value.shape), "items": [inner(item, where) for item in value.ravel().tolist()]}


def _encode_scalar(value: np.generic, where: str, inner: Callable[..., Any]) -> Any:
    return {"kind": "scalar", "type": _DTYPE_NAMES[value.dtype], "value": inner(value.item(), where)}


def _encode_value(value: Any, where: str, inner: Callable[..., Any]) -> Any:
    names = value._fields if is_named_tuple(type(value)) else [field.name for field in dataclasses.fields(value)]
    fields = {name: inner(getattr(value, name), f"{where}.{name}") for name in names}
    return {"kind": "value", "class": tag_of(type(value)), "fields": fields}


def _encode_tuple(value: tuple[Any, ...], where: str, inner: Callable[..., Any]) -> Any:
    return {"kind": "tuple", "items": [inner(item, f"{where}.{i}") for i, item in enumerate(value)]}


def _encode_dict(value: dict[Any, Any], where: str, inner: Callable[..., Any]) -> Any:
    items = [[inner(key, where), inner(item, f"{where}.{key}")] for key, item in value.items()]
    return {"kind": "dict", "items": items}


def _encode_generator(value: np.random.Generator, where: str, inner: Callable[..., Any]) -> Any:
    return {"kind": "generator", "state": inner(value.bit_generator.state, where)}


def _encode_random_state(value: np.random.RandomState, where: str, inner: Callable[..., Any]) -> Any:
    return {"kind": "random state", "state": inner(value.get_state(legacy=False), where)}


def _encode_estimator(model: SaveableModel, where: str, inner: Callable[..., Any]) -> Any:
    params, attributes = model.get_params(deep=False), model._to_save()
    names = attributes.pop("feature_names_in_", None)
    if model._is_started():
        _check_loadable(model)
    return {
        "kind": "estimator",
        "class": tag_of(type(model)),
        "params": {k: inner(v, f"{where}{k}") for k, v in params.items()},
        "feature_names": None if names is None else [str(name) for name in names],
        "fitted": {k: inner(v, f"{where}{k}") for k, v in attributes.items()},
    }


def _check_loadable(model: SaveableModel) -> None:
    """Refuse now what would be refused when the file is read, when it would be too late."""
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


_ENCODERS: tuple[tuple[Callable[[Any], bool], Callable[..., Any]], ...] = (
    (lambda value: isinstance(value, SaveableModel), _encode_estimator),
    (lambda value: not isinstance(value, type) and is_value(type(value)), _encode_value),
    (lambda value: type(value) is tuple, _encode_tuple),
    (lambda value: type(value) is dict, _encode_dict),
    (lambda value: isinstance(value, np.generic) and value.dtype in _DTYPE_NAMES, _encode_scalar),
    (lambda value: isinstance(value, np.random.Generator), _encode_generator),
    (lambda value: isinstance(value, np.random.RandomState), _encode_random_state),
)


# -- decoding --------------------------------------------------------------------------------------


def decode(node: Any, arrays: Arrays, depth: int = 0) -> Any:
    """Turn JSON values back into what they stood for; each array is taken out of `arrays` once."""
    if depth > _DEPTH:
        raise ModelFileError(f"the file's contents are nested more than {_DEPTH} deep.")
    inner = functools.partial(decode, arrays=arrays, depth=depth + 1)
    if isinstance(node, list):
        return [inner(item) for item in node]
    if not isinstance(node, dict):
        return node
    kind = node.get("kind")
    if kind == "array":
        return _decode_array(node, arrays)
    if not isinstance(kind, str) or kind not in _DECODERS:
        raise ModelFileError(f"the file holds a value of an unknown kind, {str(kind)[:80]!r}.")
    return _DECODERS[kind](node, inner)


def _field(node: dict[str, Any], name: str, kind: type) -> Any:
    value = node.get(name)
    if type(value) is not kind:
        raise ModelFileError(
            f"the file's {node.get('kind')} has no {kind.__name__} {name!r}, but a {type(value).__name__}."
        )
    return value


def _decode_array(node: dict[str, Any], arrays: Arrays) -> NDArray[Any]:
    name = _field(node, "tensor", str)
    if name not in arrays:
        raise ModelFileError(f"the file lacks the tensor {name[:80]!r}, or names it twice.")
    return arrays.pop(name)


def _decode_float(node: dict[str, Any], inner: Callable[..., Any]) -> float:
    return _NOT_FINITE[_field(node, "value", str)]


def _decode_scalar(node: dict[str, Any], inner: Callable[..., Any]) -> np.generic:
    scalar: np.generic = DTYPES[_field(node, "type", str)].type(inner(node.get("value")))
    return scalar


def _decode_texts(node: dict[str, Any], inner: Callable[..., Any]) -> NDArray[Any]:
    items = _field(node, "items", list)
    if not all(isinstance(item, str) for item in items):
        raise ModelFileError("the file's array of texts holds something else.")
    return np.array(items, dtype=np.str_).reshape(_field(node, "shape", list))


def _decode_objects(node: dict[str, Any], inner: Callable[..., Any]) -> NDArray[Any]:
    items = _field(node, "items", list)
    array = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        array[i] = inner(item)
    return array.reshape(_field(node, "shape", list))


def _decode_tuple(node: dict[str, Any], inner: Callable[..., Any]) -> tuple[Any, ...]:
    return tuple(inner(item) for item in _field(node, "items", list))


def _decode_dict(node: dict[str, Any], inner: Callable[..., Any]) -> dict[Any, Any]:
    return {inner(key): inner(item) for key, item in _field(node, "items", list)}


def _decode_value(node: dict[str, Any], inner: Callable[..., Any]) -> Any:
    cls = class_named(_field(node, "class", str), is_value)
    return cls(**{name: inner(item) for name, item in _field(node, "fields", dict).items()})


def _decode_generator(node: dict[str, Any], inner: Callable[..., Any]) -> np.random.Generator:
    bits = _bit_generator(inner(node.get("state")))
    return np.random.Generator(bits)


def _decode_random_state(node: dict[str, Any], inner: Callable[..., Any]) -> np.random.RandomState:
    state = inner(node.get("state"))
    normal = {name: state.pop(name) for name in ("has_gauss", "gauss")}
    generator = np.random.RandomState(_bit_generator(state))
    generator.set_state(generator.get_state(legacy=False) | normal)
    return generator


_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_POSITIONS = {"pos": 624, "buffer_pos": 4}


def _bit_generator(state: Any) -> np.random.BitGenerator:
    name = state["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise ModelFileError(f"the file names the random generator {str(name)[:80]!r}, which is not known.")
    bits: np.random.BitGenerator = getattr(np.random, name)(0)
    _check_like(state, bits.state)
    bits.state = state
    return bits


def _check_like(state: Any, model: Any, name: str = "") -> None:
    """NumPy takes positions and arrays of a state unchecked: compare them with those of a sound one."""
    same = type(state) is type(model)
    if same and isinstance(model, dict):
        same = state.keys() == model.keys()
        for key in model if same else ():
            _check_like(state[key], model[key], key)
    elif same and isinstance(model, np.ndarray):
        same = state.shape == model.shape and state.dtype == model.dtype
    elif same and isinstance(model, int):
        same = 0 <= state <= _POSITIONS.get(name, 2**128)
    if not same:
        raise ModelFileError("the file holds the state of a random generator that cannot be right.")


def _decode_estimator(node: dict[str, Any], inner: Callable[..., Any]) -> SaveableModel:
    cls: Any = class_named(_field(node, "class", str), is_estimator)
    params = {name: inner(item) for name, item in _field(node, "params", dict).items()}
    unknown = params.keys() - set(cls._get_param_names())
    if unknown:
        raise ModelFileError(
            f"the file gives {cls.__name__} the unknown parameters {', '.join(sorted(unknown))[:200]}."
        )
    model: SaveableModel = cls(**params)
    for name, item in _field(node, "fitted", dict).items():
        _check_attribute(model, name)
        model.__dict__[name] = inner(item)
    if _check_frame(model, node.get("feature_names")):
        model._check_loaded()
    return model


def _check_attribute(model: SaveableModel, name: str) -> None:
    """Refuse names that would hide a method or a parameter, or fill a cache."""
    taken = getattr(type(model), name, None)
    hides = callable(taken) or isinstance(taken, property) or name in vars(model)
    if hides or not name.isidentifier() or name.startswith("__") or name in (*model._transient, "feature_names_in_"):
        raise ModelFileError(f"the file sets {name[:80]!r}, which is no fitted attribute of {type(model).__name__}.")


def _check_frame(model: SaveableModel, names: Any) -> bool:
    """Whether the model is fitted; its parameters and the number and names of its columns then fit."""
    n = vars(model).get("n_features_in_")
    if n is None and names is None and not any(name.endswith("_") for name in vars(model)):
        return False
    if type(n) is not int or n < 1:
        raise ModelFileError("the file holds a fitted model without its number of columns.")
    model._validate_params()
    if names is not None:
        if type(names) is not list or len(names) != n or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"the file's column names do not fit its {n} columns.")
        model.__dict__["feature_names_in_"] = np.array(names, dtype=object)
    return True


_DECODERS: dict[str, Callable[[dict[str, Any], Callable[..., Any]], Any]] = {
    "float": _decode_float,
    "scalar": _decode_scalar,
    "texts": _decode_texts,
    "objects": _decode_objects,
    "tuple": _decode_tuple,
    "dict": _decode_dict,
    "value": _decode_value,
    "generator": _decode_generator,
    "random state": _decode_random_state,
    "estimator": _decode_estimator,
}
