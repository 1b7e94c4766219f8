#!/usr/bin/env python3
"""A Hugging Face folder of a Llama's shape with random bfloat16 weights, to measure a server with; what it says is noise.

    tools/random_model.py llama-1b|llama-8b|llama-200m FOLDER [DRAFT]

Needs nothing but Python. Weights repeat every few megabytes, so that writing is as fast as the disk; the vocabulary is bytes and words
that nothing merges into. With DRAFT the layers from an eighth of them on add a 4,096th of what the others add, and DRAFT is a model of that
first eighth: a small one that mostly says what the large one says, to show what `--draft-model` does.
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
    "llama-200m": {"num_hidden_layers": 24, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_key_value_heads": 4,
                   "head_dim": 64, "tie_word_embeddings": False, "vocab_size": 8192},
}


def tensors(c):
    """(name, shape), in the order of the file."""
    width, inner = c["hidden_size"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", [c["vocab_size"], width]
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
        yield "lm_head.weight", [c["vocab_size"], width]


def random_weights(count):
    """Bytes of `count` bfloat16 numbers between 1/512 and 1/32, either sign: the upper half of a float32."""
    numbers = bytearray(os.urandom(2 * count))
    low, high = numbers[0::2], numbers[1::2]
    table = bytes((b & 0x80) | 0x3B + (b & 1) for b in range(256))
    numbers[0::2], numbers[1::2] = low, high.translate(table)
    return bytes(numbers)


def is_quiet(name, loud):
    """Whether it is what a layer from `loud` on adds."""
    return name.endswith(("o_proj.weight", "down_proj.weight")) and int(name.split(".")[2]) >= loud


def write_weights(c, pool, loud, path):
    header, offset = {}, 0
    for name, shape in tensors(c):
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    quiet = bytearray(pool)
    quiet[1::2] = bytes(b - 6 for b in quiet[1::2])  # twelve less in the exponent
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            left = entry["data_offsets"][1] - entry["data_offsets"][0]
            if len(entry["shape"]) == 1:
                out.write(b"\x80\x3f" * (left // 2))  # ones
                continue
            rng = random.Random(name)  # the same in a model and in its draft
            while left > 0:
                begin = 2 * rng.randrange(len(pool) // 4)
                piece = memoryview(quiet if is_quiet(name, loud) else pool)[begin:begin + left]
                out.write(piece)
                left -= len(piece)


def write_tokenizer(words, path):
    """Bytes as GPT-2 spells them, then words that no merge makes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    for i in range(len(letters), words):
        vocabulary[f"w{i}"] = i
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level,
                                "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))


def write_model(c, pool, loud, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 131072,
        "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0, **c}))
    write_tokenizer(c["vocab_size"], folder / "tokenizer.json")
    write_weights(c, pool, loud, folder / "model.safetensors")


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    c = {"vocab_size": 128256, **SHAPES[sys.argv[1]]}
    pool, layers = random_weights(1 << 24), c["num_hidden_layers"]
    loud = layers // 8 if len(sys.argv) == 4 else layers
    write_model(c, pool, loud, Path(sys.argv[2]))
    if len(sys.argv) == 4:
        write_model({**c, "num_hidden_layers": loud}, pool, loud, Path(sys.argv[3]))


if __name__ == "__main__":
    main()
