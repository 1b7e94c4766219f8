#!/usr/bin/env python3
"""Records tests/engine/encoders.json: what Hugging Face transformers makes of texts with the tiny BERT of tests/engine/tiny_encoder.h.

    make_encoders.py tests/engine/encoders.json        (needs torch, transformers, tokenizers)

Both sides make the weights of the same formula and the vocabulary of the same list, so that the file holds nothing but texts, ids and
what came of them.
"""
import json
import random
import sys

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

HIDDEN, HEADS, FFN, LAYERS, CONTEXT = 64, 4, 96, 3, 96
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(LETTERS) + ["##" + c for c in LETTERS]
          + [".", ",", "?", "!", "中", "the", "cat", "dog", "sat", "##ing", "##ed", "mat", "on"])
LAYER = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
         "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"]
TEXTS = ["the cat sat on the mat.", "a", "", "Dogs!", "sitting, running, wanted?", "中中 the 中", "the " * 90,
         "x" * 120, "éÀ ü the\tcat\n\nsat", "[CLS] [SEP] the"]


def numbers(stream, shape, offset=0.0):
    """As tests/model/model_writer.h makes them."""
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        x = (np.arange(count, dtype=np.uint32) + np.uint32(stream * 100003)) * np.uint32(2654435761)
        x ^= x >> np.uint32(15)
        x *= np.uint32(2246822519)
        x ^= x >> np.uint32(13)
    return torch.from_numpy((x >> np.uint32(16)).astype(np.float32) / 65536 - 0.5 + np.float32(offset)).reshape(shape)


def fill(model, prefix):
    """The streams of tiny_encoder.h, by the names of the parameters."""
    streams = {"embeddings.word_embeddings.weight": 1, "embeddings.position_embeddings.weight": 2,
               "embeddings.token_type_embeddings.weight": 3, "embeddings.LayerNorm.weight": 4, "embeddings.LayerNorm.bias": 5,
               "pooler.dense.weight": 200, "pooler.dense.bias": 201}
    for layer in range(LAYERS):
        for index, name in enumerate(LAYER):
            for part, suffix in enumerate(["weight", "bias"]):
                streams[f"encoder.layer.{layer}.{name}.{suffix}"] = 10 + 20 * layer + 2 * index + part
    streams = {prefix + name: stream for name, stream in streams.items()}
    streams.update({"classifier.weight": 202, "classifier.bias": 203})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = name.endswith("LayerNorm.weight")
            parameter.copy_(numbers(streams[name], tuple(parameter.shape), 1.0 if is_norm else 0.0))
    return model.float().eval()


def make_tokenizer():
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def rounded(values):
    return [float(f"{v:.8g}") for v in values.tolist()]


def main():
    torch.set_grad_enabled(False)
    config = transformers.BertConfig(
        vocab_size=len(PIECES), hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=FFN,
        max_position_embeddings=CONTEXT, type_vocab_size=2, layer_norm_eps=1e-12, hidden_act="gelu", num_labels=1,
        attn_implementation="eager")
    tokenizer = make_tokenizer()
    bert = fill(transformers.BertModel(config), "")
    ranker = fill(transformers.BertForSequenceClassification(config), "bert.")
    out = {"made_with": f"Hugging Face transformers {transformers.__version__}, float32; weights of tests/engine/tiny_encoder.h",
           "texts": [], "pairs": []}
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        rows = bert(input_ids=torch.tensor([ids])).last_hidden_state[0]
        out["texts"].append({"text": text, "ids": ids, "cls": rounded(rows[0]), "mean": rounded(rows.mean(0))})
    rng = random.Random(5)
    for _ in range(12):
        query, document = ("".join(rng.choice(LETTERS + "   ") for _ in range(rng.randrange(1, 30))) for _ in range(2))
        pair = tokenizer.encode(query, document)
        logit = ranker(input_ids=torch.tensor([pair.ids]), token_type_ids=torch.tensor([pair.type_ids])).logits[0, 0]
        out["pairs"].append({"query": query, "document": document, "ids": pair.ids, "second_from": pair.type_ids.index(1),
                             "score": torch.sigmoid(logit).item()})
    with open(sys.argv[1], "w") as file:
        file.write(json.dumps(out, ensure_ascii=False, separators=(",", ":")).replace('{"text"', '\n{"text"').replace(
            '{"query"', '\n{"query"') + "\n")


if __name__ == "__main__":
    main()
