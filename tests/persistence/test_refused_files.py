"""Files that are no model files, or damaged, or made to do harm: each is refused by name, and nothing is run."""

import io
import json
import os
import pickle
import struct

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st

import everlearn
from everlearn.errors import ModelFileError
from everlearn.persistence import model_file as persistence
from everlearn.persistence.model_file import dumps, loads
from model_files import KEY, parts, rebuilt
from toys import Rate, fitted


class Bomb:
    exploded = False

    def __reduce__(self):
        return setattr, (Bomb, "exploded", True)


def zip_of_pickle():
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(Bomb()))
    return file.getvalue()


FOREIGN = {
    "empty": (b"", "truncated"),
    "text": (b"a,b,c\n1,2,3\n4,5,6\n", "not a model file"),
    "pickle": (pickle.dumps(Bomb()), "pickle"),
    "old pickle": (pickle.dumps(Bomb(), protocol=2), "pickle"),
    "torch": (zip_of_pickle(), "zip"),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(20), "gzip"),
    "other safetensors": (safetensors.numpy.save({"w": np.ones(3)}), "safetensors file, but not"),
    "big header": (struct.pack("<Q", 10**9) + b'{"a"', "not a model file"),
    "cut header": (struct.pack("<Q", 10**6) + b'{"a"', "truncated"),
    "bad header": (struct.pack("<Q", 5) + b"{abc}", "damaged"),
    "deep header": (struct.pack("<Q", 5000) + b'{"a":' * 1000, "damaged"),
}


@pytest.mark.parametrize(("data", "message"), FOREIGN.values(), ids=FOREIGN)
def test_foreign_files(tmp_path, data, message):
    path = tmp_path / "m.evl"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=rf"m\.evl: .*{message}"):
        everlearn.load(path)
    with pytest.raises(ModelFileError, match=message):
        loads(data)
    assert not Bomb.exploded


def test_not_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="regular file"):
        everlearn.load(tmp_path / "pipe")


def test_newer_version():
    content, tensors = parts(dumps(fitted()))
    content.update(format=persistence.FORMAT_VERSION + 1, everlearn="99.1")
    with pytest.raises(ModelFileError, match=r"format 3, written by everlearn 99\.1.*pip install -U everlearn"):
        loads(rebuilt(content, tensors))


def hostile(change):
    """A sound file with one thing changed."""
    model = fitted(rate=Rate())
    model.rng_ = np.random.default_rng(0)
    model.table_ = {"a": 1, 2: "b"}
    model.names_ = np.array(["a", "b"])
    model.pair_ = (1, float("nan"))
    model.few_ = np.array([1.0, 2.0])
    content, tensors = parts(dumps(model))
    change(content, tensors)
    return rebuilt(content, tensors)


def change(path, value):
    """Set the node at a dotted path of the content."""

    def apply(content, tensors):
        *steps, last = path.split(".")
        node = content
        for step in steps:
            node = node[int(step) if isinstance(node, list) else step]
        node[int(last) if isinstance(node, list) else last] = value

    return apply


def add_tensor(content, tensors):
    tensors["more"] = np.ones(3)


def drop_tensor(content, tensors):
    tensors.popitem()


def reshape_tensor(content, tensors):
    name = next(iter(tensors))
    tensors[next(n for n in tensors if "mean" in n)] = np.ones(7)
    assert name


def retype_tensor(content, tensors):
    name = next(n for n in tensors if "mean" in n)
    tensors[name] = tensors[name].astype(np.float32)


def nest(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


FITTED = "model.fitted."
HOSTILE = {
    "format text": change("format", "one"),
    "format zero": change("format", 0),
    "model a list": change("model", [1, 2]),
    "model a number": change("model", 3),
    "unknown class": change("model.class", "os.system"),
    "class of a value": change("model.class", "toys.Sums"),
    "class a list": change("model.class", ["RunningNormal"]),
    "value class unknown": change(FITTED + "_sums_.class", "subprocess.Popen"),
    "value class a model": change(FITTED + "_sums_.class", "RunningNormal"),
    "value field missing": lambda c, t: c["model"]["fitted"]["_sums_"]["fields"].pop("n"),
    "value field more": change(FITTED + "_sums_.fields.more", 1),
    "unknown kind": change(FITTED + "_sums_.kind", "eval"),
    "kind a list": change(FITTED + "_sums_.kind", []),
    "unknown parameter": change("model.params.more", 1),
    "params a list": change("model.params", []),
    "hidden method": change(FITTED + "score_samples", 1),
    "hidden property": change(FITTED + "variance_", 1),
    "hidden parameter": change(FITTED + "ridge", 1),
    "filled cache": change(FITTED + "_cache_", 1),
    "dunder": change(FITTED + "__class__", "x"),
    "no columns": lambda c, t: c["model"]["fitted"].pop("n_features_in_"),
    "columns negative": change(FITTED + "n_features_in_", -1),
    "columns true": change(FITTED + "n_features_in_", True),
    "names too few": change("model.feature_names", ["a"]),
    "names numbers": change("model.feature_names", [1, 2, 3]),
    "names among the fitted": change(FITTED + "feature_names_in_", ["a", "b", "c"]),
    "other column count": change(FITTED + "n_features_in_", 4),
    "texts of numbers": change(FITTED + "names_.items", [1, 2]),
    "texts of another shape": change(FITTED + "names_.shape", [3, 10**18]),
    "shape a text": change(FITTED + "names_.shape", "ab"),
    "float of text": change(FITTED + "pair_.items.1.value", "__import__('os')"),
    "generator text": change(FITTED + "rng_.state.0", "default_rng"),
    "generator too short": change(FITTED + "rng_.state", [1, 1, 0]),
    "generator negative": change(FITTED + "rng_.state.2", -1),
    "generator beyond its range": change(FITTED + "rng_.state.0", 2**128),
    "generator of even step": change(FITTED + "rng_.state.1", 2),
    "key a list": change(FITTED + "table_.items.0.0", [1]),
    "key a float": change(FITTED + "table_.items.0.0", 1.5),
    "key too large": change(FITTED + "table_.items.0.0", 2**61 - 1),
    "length of a file that it has not": change(FITTED + "_sums_.fields.mean.length", 10**12),
    "length shorter than the tensor": change(FITTED + "_sums_.fields.mean.length", 2),
    "length a text": change(FITTED + "_sums_.fields.mean.length", "9"),
    "more columns than bytes": change(FITTED + "n_features_in_", 10**9),
    "tensor named twice": change(FITTED + "_sums_.fields.scatter", {"kind": "array", "tensor": "0:_sums_.mean"}),
    "tensor number of another": change(FITTED + "_sums_.fields.scatter.tensor", 0),
    "tensor number too large": change(FITTED + "_sums_.fields.scatter.tensor", 10**30),
    "tensor number true": change(FITTED + "_sums_.fields.scatter.tensor", True),
    "few numbers too many": change(FITTED + "few_.items", [1.0] * 5),
    "few numbers a text": change(FITTED + "few_.items", ["1.0", "2.0"]),
    "few numbers of another type": change(FITTED + "few_.type", "F128"),
    "few numbers of a shape": change(FITTED + "few_.shape", [3, 1]),
    "few numbers of a huge shape": change(FITTED + "few_", {"kind": "few", "items": [], "shape": [0, 10**9]}),
    "few numbers of a huge length": change(FITTED + "few_.length", 10**12),
    "few whole numbers too large": change(FITTED + "few_", {"kind": "few", "items": [300], "type": "U8"}),
    "deep": change(FITTED + "pair_", nest(100)),
    "very deep": lambda c, t: c["model"]["fitted"].update(pair_=nest(900)),
    "tensor more": add_tensor,
    "tensor missing": drop_tensor,
    "tensor of another shape": reshape_tensor,
    "tensor of another type": retype_tensor,
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(change):
    data = hostile(change)
    with pytest.raises(ModelFileError, match=r"^upload: \S+"):
        loads(data, name="upload")


def test_a_sound_file_is_not_hostile():
    assert loads(SOUND).pair_[0] == 1
    assert dumps(loads(SOUND)) == SOUND


@pytest.mark.parametrize(
    "text", ["", "[", "3", "null", "[" * 100_000, '{"format": 1}', '{"format": 1, "model": NaN}', "9" * 5000]
)
def test_hostile_text(text):
    with pytest.raises(ModelFileError):
        loads(safetensors.numpy.save({}, metadata={KEY: text}))


def test_one_flipped_bit_is_noticed():
    data = bytearray(SOUND)
    data[-1] ^= 1
    with pytest.raises(ModelFileError, match="damaged"):
        loads(bytes(data))


def test_truth_values_are_zero_or_one():
    model = fitted()
    model.flags_ = np.array([True, False] * 3)
    data = bytearray(dumps(model))
    data[-1] = 7
    with pytest.raises(ModelFileError, match="neither true nor false"):
        loads(bytes(data))


def test_types_that_models_do_not_use():
    tensor = {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}
    header = json.dumps({"__metadata__": {KEY: "{}"}, "a": tensor}).encode()
    with pytest.raises(ModelFileError, match="BF16"):
        loads(struct.pack("<Q", len(header)) + header + bytes(8))


SOUND = hostile(lambda content, tensors: None)


@given(st.integers(0, len(SOUND) - 1))
def test_truncated_files(size):
    with pytest.raises(ModelFileError):
        loads(SOUND[:size])


@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6))
@example([(0, SOUND[0])])  # the byte that was there: the file is loaded
def test_damaged_files_are_refused_unless_the_model_is_equal(changes):
    data = bytearray(SOUND)
    for position, byte in changes:
        data[position] = byte
    try:
        model = loads(bytes(data))
    except ModelFileError:
        return
    assert dumps(model) == SOUND
