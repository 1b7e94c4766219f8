#!/usr/bin/env python3
"""A Hugging Face folder of a Llama's shape with random bfloat16 weights, to measure a server with; what it says is noise.

    tools/random_model.py llama-1b|llama-8b FOLDER

Needs nothing but Python. Weights repeat every few megabytes, so that writing is as fast as the disk; the vocabulary is bytes and words
that nothing merges into.
"""
import json
import os
import random
import struct
import sys
from pathlib import Path

SHAPES = {
    "llama-1b": {"num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8,
                 "head_dim": 64, "tie_word_embeddings": True},
    "llama-8b": {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
                 "head_dim": 128, "tie_word_embeddings": False},
}
VOCABULARY = 128256


def tensors(c):
    """(name, shape), in the order of the file."""
    width, inner = c["hidden_size"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", [VOCABULARY, width]
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", [width]
        yield at + "post_attention_layernorm.weight", [width]
        for name, rows, columns in (("self_attn.q_proj", q, width), ("self_attn.k_proj", kv, width), ("self_attn.v_proj", kv, width),
                                    ("self_attn.o_proj", width, q), ("mlp.gate_proj", inner, width), ("mlp.up_proj", inner, width),
                                    ("mlp.down_proj", width, inner)):
            yield f"{at}{name}.weight", [rows, columns]
    yield "model.norm.weight", [width]
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", [VOCABULARY, width]


def random_weights(count):
    """Bytes of `count` bfloat16 numbers between 1/512 and 1/32, either sign: the upper half of a float32."""
    numbers = bytearray(os.urandom(2 * count))
    low, high = numbers[0::2], numbers[1::2]
    table = bytes((b & 0x80) | 0x3B + (b & 1) for b in range(256))
    numbers[0::2], numbers[1::2] = low, high.translate(table)
    return bytes(numbers)


def write_weights(c, path):
    header, offset = {}, 0
    for name, shape in tensors(c):
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pool = random_weights(1 << 24)
    rng = random.Random(1)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for entry in header.values():
            left = entry["data_offsets"][1] - entry["data_offsets"][0]
            if len(entry["shape"]) == 1:
                out.write(b"\x80\x3f" * (left // 2))  # ones
                continue
            while left > 0:
                begin = 2 * rng.randrange(len(pool) // 4)
                piece = memoryview(pool)[begin:begin + left]
                out.write(piece)
                left -= len(piece)


def write_tokenizer(path):
    """Bytes as GPT-2 spells them, then words that no merge makes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    for i in range(len(letters), VOCABULARY):
        vocabulary[f"w{i}"] = i
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level,
                                "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    c, folder = SHAPES[sys.argv[1]], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "max_position_embeddings": 131072,
        "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0, **c}))
    write_tokenizer(folder / "tokenizer.json")
    write_weights(c, folder / "model.safetensors")


if __name__ == "__main__":
    main()
