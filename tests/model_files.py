"""Model files taken apart and put together again."""

import json
import struct

import numpy as np
import safetensors.numpy

from everlearn.persistence import model_file as persistence
from everlearn.persistence.codec import DTYPES

KEY = "everlearn"


def parts(data):
    """The JSON content and the tensors of a file."""
    size = struct.unpack("<Q", data[:8])[0]
    content = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][KEY])
    return content, safetensors.numpy.load(data)


def rebuilt(content, tensors):
    """A file with a right checksum, in the very bytes that `dumps` would write."""
    content["digest"] = persistence.digest(content, tensors)
    return safetensors.numpy.save(tensors, metadata={KEY: json.dumps(content, separators=(",", ":"))})


def tensor_of(node, tensors):
    """The name of the tensor of an array in the tree; one of few numbers becomes a tensor first."""
    node.pop("length", None)
    if node["kind"] == "few":
        array = np.array(node.pop("items"), dtype=DTYPES[node.pop("type", "F64")]).reshape(node.pop("shape", -1))
        number = 900 + len(tensors)
        tensors[f"{number}:few"] = array
        node |= {"kind": "array", "tensor": number}
    return next(name for name in tensors if name.partition(":")[0] == str(node["tensor"]))
