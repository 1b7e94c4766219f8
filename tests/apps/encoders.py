"""Tiny models that make vectors, written anew for each test."""
import array
import json
import pathlib
import random
import string
import struct


def tiny_encoder(folder, model="encoder", ranks=False):
    """A BERT of random numbers whose words are letters and digits; its files ask for the mean, or make it rank."""
    hidden, ffn, layers, context = 64, 96, 3, 128
    letters = string.ascii_lowercase + string.digits
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + list(letters) + ["##" + c for c in letters]
    shapes = {"embeddings.word_embeddings.weight": [len(pieces), hidden], "embeddings.position_embeddings.weight": [context, hidden],
              "embeddings.token_type_embeddings.weight": [2, hidden], "embeddings.LayerNorm.weight": [hidden],
              "embeddings.LayerNorm.bias": [hidden]}
    for layer in range(layers):
        for name, outputs, inputs in (("attention.self.query", hidden, hidden), ("attention.self.key", hidden, hidden),
                                      ("attention.self.value", hidden, hidden), ("attention.output.dense", hidden, hidden),
                                      ("attention.output.LayerNorm", hidden, 0), ("intermediate.dense", ffn, hidden),
                                      ("output.dense", hidden, ffn), ("output.LayerNorm", hidden, 0)):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = [outputs, inputs] if inputs else [outputs]
            shapes[f"encoder.layer.{layer}.{name}.bias"] = [outputs]
    if ranks:
        shapes |= {"pooler.dense.weight": [hidden, hidden], "pooler.dense.bias": [hidden]}
        shapes = {"bert." + part: shape for part, shape in shapes.items()}
        shapes |= {"classifier.weight": [1, hidden], "classifier.bias": [1]}
    header, data, rng = {}, array.array("f"), random.Random(3)
    for name, shape in shapes.items():
        begin = 4 * len(data)
        data.extend(rng.uniform(-0.3, 0.3) for _ in range(shape[0] * (shape[1] if len(shape) > 1 else 1)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(data)]}
    text = json.dumps(header).encode()
    path = pathlib.Path(folder, model)
    (path / "1_Pooling").mkdir(parents=True)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())
    if not ranks:
        (path / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (path / "config.json").write_text(json.dumps({
        "model_type": "bert", "architectures": ["BertForSequenceClassification" if ranks else "BertModel"], "vocab_size": len(pieces), "hidden_size": hidden,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": 4, "max_position_embeddings": context,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}))
    (path / "tokenizer.json").write_text(json.dumps({
        "added_tokens": [{"id": i, "content": piece, "special": True} for i, piece in enumerate(pieces[:4])],
        "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {piece: i for i, piece in enumerate(pieces)}}}))
    return path
