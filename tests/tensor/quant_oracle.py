#!/usr/bin/env python3
"""Writes random quantized blocks and the float32 values that others find in them, as safetensors:
NAME.facts (GGUF id, elements and bytes of a block), NAME.blocks and NAME.values by the package gguf, and
affine.BITS.GROUP.DTYPE.{packed,scales,biases,values} (values by NumPy). usage: quant_oracle.py OUT"""
import json
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
BLOCKS = 500
DTYPES = {np.dtype("uint8"): "U8", np.dtype("uint16"): "U16", np.dtype("uint32"): "U32", np.dtype("float32"): "F32",
          np.dtype("float16"): "F16"}
rng = np.random.default_rng(20240229)
tensors = {}


def add_quantized(name):
    kind = GGMLQuantizationType[name]
    _, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)  # any bits are a block, NaN scales too
    tensors[name + ".blocks"] = blocks
    tensors[name + ".values"] = dequantize(blocks, kind).astype(np.float32)


def add_affine(bits, group, dtype):
    rows, columns = 5, 384
    q = rng.integers(0, 1 << bits, (rows, columns), dtype=np.uint32)
    per_word = 32 // bits
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    packed = np.bitwise_or.reduce(q.reshape(rows, -1, per_word) << shifts, axis=-1).astype(np.uint32)
    scales, biases = (rng.standard_normal((rows, columns // group)).astype(np.float32) for _ in "sb")
    if dtype == "F16":
        scales, biases = scales.astype(np.float16), biases.astype(np.float16)
    if dtype == "BF16":  # truncated: what matters is that both sides see the same bits
        scales, biases = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in (scales, biases))

    def wide(x):
        return (x.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else x.astype(np.float32)

    values = np.repeat(wide(scales), group, axis=1) * q.astype(np.float32) + np.repeat(wide(biases), group, axis=1)
    prefix = f"affine.{bits}.{group}.{dtype}."
    tensors[prefix + "packed"] = packed
    tensors[prefix + "scales"] = (dtype, scales)
    tensors[prefix + "biases"] = (dtype, biases)
    tensors[prefix + "values"] = values.astype(np.float32)


def main():
    np.seterr(all="ignore")
    for kind, (elements, size) in GGML_QUANT_SIZES.items():
        tensors[kind.name + ".facts"] = np.array([kind.value, elements, size], dtype=np.uint32)
    for name in TYPES:
        add_quantized(name)
    halves = np.arange(65536, dtype=np.uint16)
    tensors["F16.blocks"] = halves
    tensors["F16.values"] = halves.view(np.float16).astype(np.float32)
    tensors["BF16.blocks"] = halves
    tensors["BF16.values"] = (halves.astype(np.uint32) << 16).view(np.float32)
    for bits in (4, 8):
        for group in (32, 64, 128):
            for dtype in ("F32", "F16", "BF16"):
                add_affine(bits, group, dtype)
    header, data = {}, b""
    for name, value in tensors.items():
        dtype, array = value if isinstance(value, tuple) else (DTYPES[value.dtype], value)
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(sys.argv[1], "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
