# SPDX-License-Identifier: Apache-2.0
"""Reads a safetensors file with the format's own package and compares every tensor with the bytes
that its header names. Usage: safetensors_read.py FILE."""
import json
import struct
import sys

from safetensors import deserialize

with open(sys.argv[1], "rb") as stream:
    raw = stream.read()
(length,) = struct.unpack("<Q", raw[:8])
header = json.loads(raw[8 : 8 + length])
header.pop("__metadata__")
tensors = dict(deserialize(raw))
if set(tensors) != set(header):
    sys.exit("names differ: %s" % sorted(set(tensors) ^ set(header)))
for name, tensor in tensors.items():
    begin, end = header[name]["data_offsets"]
    if bytes(tensor["data"]) != raw[8 + length + begin : 8 + length + end]:
        sys.exit("bytes of %s differ" % name)
    if list(tensor["shape"]) != header[name]["shape"] or tensor["dtype"] != header[name]["dtype"]:
        sys.exit("shape or dtype of %s differ" % name)
