"""Model files taken apart and put together again."""

import json
import struct

import safetensors.numpy

from everlearn.persistence import model_file as persistence

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
