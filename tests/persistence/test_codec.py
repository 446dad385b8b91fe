"""Reading a file takes memory and time in proportion to its length, whatever it holds."""

import json
import struct
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy

from everlearn.errors import ModelFileError
from everlearn.persistence.codec import GROWTH, SPARE
from everlearn.persistence.model_file import dumps, loads
from model_files import KEY, parts, rebuilt
from timing import cost_ratio
from toys import fitted


def with_node(node):
    content, tensors = parts(dumps(fitted()))
    content["model"]["fitted"]["more_"] = node
    return rebuilt(content, tensors)


def peak_of_refusal(data, message):
    """Bytes that reading took until the file was refused."""
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=message):
            loads(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("n", "length"), [(10_000, 50_000), (200_000, 2_000)])
def test_texts_of_very_different_length(n, length):
    """An array of texts is as wide as its longest one: 142 kB took 2.2 GB."""
    data = with_node({"kind": "texts", "shape": [n], "items": ["x" * length] + [""] * (n - 1)})
    assert peak_of_refusal(data, "far more memory") < 30 * len(data) + SPARE


def test_texts_of_ordinary_labels():
    model = fitted()
    model.labels_ = np.array(["on", "off"] * 500 + ["a label that is longer than the others by far"])
    assert loads(dumps(model)).labels_.tolist() == model.labels_.tolist()


def test_many_small_texts_share_one_allowance():
    """Each array is small; a thousand of them are not."""
    node = {"kind": "texts", "shape": [100], "items": ["x" * 2000] + [""] * 99}
    data = with_node([node] * 100)
    assert peak_of_refusal(data, "far more memory") < 30 * len(data) + 2 * SPARE


def test_empty_lists():
    data = with_node([[]] * 600_000)
    assert peak_of_refusal(data, "more than 1,000,000 values") < 10 * len(data)


def test_zeros_that_are_not_in_the_file():
    content, tensors = parts(dumps(fitted()))
    for i in range(40):
        tensors[f"t{i}"] = np.ones((1, 50))
        content["model"]["fitted"][f"room{i}_"] = {"kind": "array", "tensor": f"t{i}", "length": 2000}
    data = rebuilt(content, tensors)
    assert peak_of_refusal(data, "cannot have the length") < GROWTH * len(data) + 2 * SPARE


def test_axes_longer_than_the_file():
    content, tensors = parts(dumps(fitted()))
    tensors["t"] = np.zeros((0, 10**9))
    content["model"]["fitted"]["wide_"] = {"kind": "array", "tensor": "t"}
    with pytest.raises(ModelFileError, match="longer than the file"):
        loads(rebuilt(content, tensors))


def test_keys_that_share_a_hash():
    """Keys i (2^61 - 1) have the same hash: 20,000 of them took 12 s, 500 times as long as others."""

    def file_with(factor):
        return with_node({"kind": "dict", "items": [[i * factor, 0] for i in range(20_000)]})

    def refuse(data):
        with pytest.raises(ModelFileError, match="keys are texts or numbers"):
            loads(data)

    assert cost_ratio(refuse, refuse, [file_with(2**61 - 1)], [file_with(2**61 + 1)], repeats=3) < 20.0


def test_a_tensor_named_twice_in_the_header():
    data = dumps(fitted())
    size = struct.unpack("<Q", data[:8])[0]
    header, rest = data[8 : 8 + size].decode(), data[8 + size :]
    name = next(name for name in json.loads(header) if name != "__metadata__")
    entry = json.dumps({name: json.loads(header)[name]})[1:-1]
    double = (header.rstrip().rstrip("}") + "}," + entry + "}").encode()
    with pytest.raises(ModelFileError, match="twice"):
        loads(struct.pack("<Q", len(double)) + double + rest)


def test_a_field_named_twice():
    text = json.dumps(parts(dumps(fitted()))[0]).replace('"format": 2', '"format": 2, "format": 2')
    with pytest.raises(ModelFileError, match="twice"):
        loads(safetensors.numpy.save({}, metadata={KEY: text}))
