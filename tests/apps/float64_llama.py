"""Float64 logits of a llama GGUF, computed from the definition and from nothing of skein's.

    float64_llama.py model.gguf ids.json out.npy

ids.json is a list of id lists; out.npy gets float32 [ids of all lists, vocabulary], as
`skein eval logits --all` writes it. Weights are dequantized by the gguf package.
"""
import json
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate(x, base):
    """Turns neighbouring pairs: the rows of q and k lie so in the GGUF files of this family."""
    length, _, dims = x.shape
    angles = np.outer(np.arange(length), base ** (-np.arange(0, dims, 2) / dims))[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    out[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return out


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Llama:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.tensors = {t.name: t for t in reader.tensors}

        def field(key):
            return reader.fields["llama." + key].contents()

        self.layers = int(field("block_count"))
        self.heads = int(field("attention.head_count"))
        self.kv_heads = int(field("attention.head_count_kv"))
        self.epsilon = float(field("attention.layer_norm_rms_epsilon"))
        self.base = float(field("rope.freq_base"))

    def weight(self, name):
        tensor = self.tensors[name]
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    def attention(self, x, layer):
        length = len(x)
        q, k, v = (x @ self.weight(f"blk.{layer}.attn_{n}.weight").T for n in "qkv")
        q = rotate(q.reshape(length, self.heads, -1), self.base)
        k = rotate(k.reshape(length, self.kv_heads, -1), self.base)
        v = v.reshape(length, self.kv_heads, -1)
        shared = self.heads // self.kv_heads
        mask = np.triu(np.full((length, length), -np.inf), 1)
        out = np.empty_like(q)
        for head in range(self.heads):
            scores = q[:, head] @ k[:, head // shared].T / np.sqrt(q.shape[-1])
            out[:, head] = softmax(scores + mask) @ v[:, head // shared]
        return out.reshape(length, -1) @ self.weight(f"blk.{layer}.attn_output.weight").T

    def feed_forward(self, x, layer):
        gate = x @ self.weight(f"blk.{layer}.ffn_gate.weight").T
        up = x @ self.weight(f"blk.{layer}.ffn_up.weight").T
        return (gate / (1 + np.exp(-gate)) * up) @ self.weight(f"blk.{layer}.ffn_down.weight").T

    def logits(self, ids):
        embedding = self.weight("token_embd.weight")
        h = embedding[ids]
        for layer in range(self.layers):
            h = h + self.attention(
                norm(h, self.weight(f"blk.{layer}.attn_norm.weight"), self.epsilon), layer)
            h = h + self.feed_forward(
                norm(h, self.weight(f"blk.{layer}.ffn_norm.weight"), self.epsilon), layer)
        h = norm(h, self.weight("output_norm.weight"), self.epsilon)
        head = self.weight("output.weight") if "output.weight" in self.tensors else embedding
        return h @ head.T


def main():
    model, ids, out = sys.argv[1:]
    llama = Llama(model)
    with open(ids) as file:
        np.save(out, np.concatenate([llama.logits(i) for i in json.load(file)]).astype(np.float32))


if __name__ == "__main__":
    main()
