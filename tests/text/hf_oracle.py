#!/usr/bin/env python3
"""What Hugging Face tokenizers makes of random multilingual text; the tests compare skein with it.

    hf_oracle.py split OUT COUNT          pieces of each published regex
    hf_oracle.py trained FOLDER COUNT     tokenizer.json files made here, and their ids
    hf_oracle.py characters OUT           every kind of code point through BERT's normalizers and pre-tokenizer
    hf_oracle.py gguf MODEL OUT COUNT     ids with the vocabulary and merges of a GGUF file
    hf_oracle.py exported FILE OUT COUNT  ids by a tokenizer.json that skein has written
    hf_oracle.py speed MODEL OUT BYTES    a mixed text, and the seconds of CPU that encoding it takes
Every output is lines of JSON, the same on every run.
"""
import json
import os
import random
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
REGEXES = [
    GPT2,  # GPT-2, GPT-NeoX, MPT; StarCoder after single digits
    LLAMA3,
    QWEN2,
    r"\p{N}",  # StarCoder, SmolLM
    LEAD + UPPER + "*" + LOWER + "+|" + LEAD + UPPER + "+" + LOWER
    + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES,  # Tekken
    LEAD + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?|" + LEAD + UPPER + "+" + LOWER + "*" + CONTRACTIONS
    + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES,  # o200k
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + SPACES,  # Qwen3.5
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    + SPACES,  # DeepSeek-V3
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + SPACES,  # Seed-Coder
    " ?[^(\\s|.,!?…。，、।۔،)]+",  # Bloom
    r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", "[一-龥぀-ゟ゠-ヿ]+", r"\p{N}{1,3}", "[0-9][0-9][0-9]",
    "\\s?[!-/:-~！-／：-～‘-‟　-。]+", r"[^\n]+|[\n]+",
]

RANGES = [(0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39), (0x21, 0x2F), (0x3A, 0x40), (0xC0, 0x17F), (0x370, 0x3FF),
          (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x66F), (0x900, 0x97F), (0xE00, 0xE5B), (0x1780, 0x17F9),
          (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x2070, 0x209C), (0x20A0, 0x20C0), (0x2150, 0x218B), (0x2200, 0x22FF),
          (0x3000, 0x303F), (0x3040, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xFF01, 0xFF5E), (0x300, 0x36F),
          (0x1F300, 0x1F64F), (0x1C4, 0x1F5), (0x2B0, 0x2FF), (0x10D40, 0x10D8F), (0x1D400, 0x1D7FF), (0x0, 0x20)]
SNIPPETS = [" ", " ", " ", "  ", "\n", "\r\n", "\n\n", "\t", " \n ", "\u00a0", "\u3000", "\u2028", "'s", "'S", "'LL", "'re",
            "'Ve", "'ſ", "'d", "don't", "I'M", "...", "!!!", "http://a.b/c?d=1", "1234567", "3.14", "½", "Ⅷ", "²",
            "ǅ", "ʰ", "é", "e\u0301", "👩‍💻", "🇩🇪", "中文", "日本語テスト", "한국어", "привет", "العربية", "हिन्दी", "ภาษาไทย",
            "the ", " of", "Hello", " World", "camelCase", "HTTPServer", "x_y", "==", "//", "/*", "\n/", "<|im_end|>",
            "<s>", "</s>", "<0x0A>", "\u2581", "\u2581\u2581a", "\x00", "\x7f", "\u200b", "\ufeff", "\U0010ffff", "ﬁ", "ﷺ"]


def random_text(rng):
    parts = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.randrange(10)
        if kind < 4:
            low, high = rng.choice(RANGES)
            parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 8))))
        elif kind < 9:
            parts.append(rng.choice(SNIPPETS))
        else:
            c = rng.randrange(0x10FFFF)
            parts.append(chr(c) if not 0xD800 <= c < 0xE000 else "?")
    return "".join(parts)


def random_texts(count, seed):
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(count)]


def mixed_text(size, seed):
    """Documents of about 4 kB: prose in several scripts, code, numbers."""
    rng = random.Random(seed)
    words = [[("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 10)))) for _ in range(4000)]
             for alphabet in ("etaoinshrdlucmfwypvbgk" * 3 + "jxqz", "оеаинтсрвлкмдпуяызьбгчй", "的一是不了人我在有他这为之大来以个中上们",
                              "aeioué èàçñüöäß", "αβγδεζηθικλμν")]
    common = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an".split()
    code = ["def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n", "    }\n", "if x is None:\n", "#include <vector>\n"]
    documents, total = [], 0
    while total < size:
        parts = []
        while sum(map(len, parts)) < 3000:
            kind = rng.randrange(20)
            if kind < 13:
                parts.append(" ".join(rng.choice(common) if rng.random() < 0.6 else rng.choice(words[0]) for _ in range(12)) + ". ")
            elif kind < 17:
                parts.append(" ".join(rng.choice(words[rng.randrange(1, 5)]) for _ in range(8)) + "\n")
            elif kind < 19:
                parts.append(rng.choice(code))
            else:
                parts.append(f"{rng.random():.6f}, {rng.randrange(10**9)}; ")
        documents.append("".join(parts))
        total += len(documents[-1].encode())
    return documents


def dump(out, value):
    out.write(json.dumps(value) + "\n")


def write_splits(path, count):
    splitters = [pre_tokenizers.Split(Regex(r), "isolated") for r in REGEXES]
    with open(path, "w") as out:
        dump(out, REGEXES)
        for text in random_texts(count, 1):
            dump(out, [text] + [[len(p.encode()) for p, _ in s.pre_tokenize_str(text)] for s in splitters])


def sentences():
    return [d for document in mixed_text(300_000, 3) for d in document.split(". ")]


def training_corpus():
    return sentences() + [t for t in random_texts(2000, 7) if "<" not in t]


def byte_level(split, ignore_merges=False, normalizer=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(training_corpus(), trainers.BpeTrainer(
        vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|begin|>", "<|end|>"],
        show_progress=False))
    return tokenizer


def split_then_bytes(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def make_llama3():
    tokenizer = byte_level(split_then_bytes(LLAMA3), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])])
    return tokenizer


def make_falcon():
    return byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))


def make_neox():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), normalizer=normalizers.NFC())


def make_added():
    """A tokenizer whose added tokens use every option there is."""
    tokenizer = byte_level(split_then_bytes(QWEN2))
    tokenizer.add_tokens([AddedToken("don't", single_word=True), AddedToken("中文", lstrip=True), AddedToken("==", rstrip=True),
                          AddedToken("Hello World", normalized=True), AddedToken("x_y", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", lstrip=True, rstrip=True)])
    return tokenizer


def make_spm_bpe():
    """Llama-2's form: no pre-tokenizer, byte fallback."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=True)  # for training only
    tokenizer.train_from_iterator(training_corpus(), trainers.BpeTrainer(
        vocab_size=4000, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=600,
        show_progress=False))
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def make_unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(sentences(), trainers.UnigramTrainer(
        vocab_size=3000, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    return tokenizer


def make_words():
    """What is left: Whitespace, Digits, Lowercase, Strip, an unknown token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    tokenizer.train_from_iterator(training_corpus(), trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<unk>"], limit_alphabet=200, show_progress=False))
    return tokenizer


def make_bert(cased=False):
    """BERT's own, small: lower case and no accents, or neither."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20 if cased else 100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=not cased)
    tokenizer.train_from_iterator(training_corpus(), trainers.WordPieceTrainer(
        vocab_size=3000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=700, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def make_bert_cased():
    tokenizer = make_bert(cased=True)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


MAKERS = {"llama3": make_llama3, "falcon": make_falcon, "neox": make_neox, "added": make_added, "spm_bpe": make_spm_bpe,
          "unigram": make_unigram, "words": make_words, "bert": make_bert, "bert_cased": make_bert_cased}


def write_ids(tokenizer, texts, out):
    """Lines of text, ids as user text, the text of these, ids with special tokens parsed and added.

    The second and third are null where the text spells out a control token: there Hugging Face's model may find it as a
    piece even when asked not to look for special tokens, and skein never does."""
    control = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special] + ["<0x"]
    for text in texts:
        plain = decoded = None
        if not any(c in text for c in control):
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            decoded = tokenizer.decode(plain, skip_special_tokens=False)
        dump(out, [text, plain, decoded, tokenizer.encode(text, add_special_tokens=True).ids])


def write_trained(folder, count):
    for number, (name, make) in enumerate(MAKERS.items()):
        tokenizer = make()
        tokenizer.save(os.path.join(folder, name + ".json"))
        with open(os.path.join(folder, name + ".ids"), "w") as out:
            write_ids(tokenizer, random_texts(count, 100 + number), out)


def write_characters(path):
    """Lines of code points, 64 at a time, as a text, and the words that BERT makes of it: as it is, and in lower case."""
    # Of planes that Unicode leaves empty or to private use, which are all alike, the first and the last 64.
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and (c >> 16 in (0, 1, 2, 3, 14) or c & 0xFFFF < 64 or c & 0xFFFF >= 0xFFC0)]
    split = pre_tokenizers.BertPreTokenizer()
    with open(path, "w") as out:
        for i in range(0, len(points), 64):
            text = "".join(f" a{chr(c)}b" for c in points[i:i + 64])
            words = [[w for w, _ in split.pre_tokenize_str(normalizers.BertNormalizer(lowercase=lower).normalize_str(text))]
                     for lower in (False, True)]
            dump(out, [text] + words)


def from_gguf(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    pieces = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(p, normalized=False) for p, t in zip(pieces, types) if t == 3])
    return tokenizer


def write_speed(model, path, size):
    tokenizer = from_gguf(model)
    documents = mixed_text(size, 5)
    tokenizer.encode_special_tokens = True
    tokenizer.encode_batch(documents[:20])  # warm
    started = time.process_time()
    count = sum(len(tokenizer.encode(d, add_special_tokens=False).ids) for d in documents)
    seconds = time.process_time() - started
    with open(path, "w") as out:
        dump(out, [seconds, count])
        for document in documents:
            dump(out, document)


def main():
    mode, *arguments = sys.argv[1:]
    if mode == "split":
        write_splits(arguments[0], int(arguments[1]))
    elif mode == "trained":
        write_trained(arguments[0], int(arguments[1]))
    elif mode == "characters":
        write_characters(arguments[0])
    elif mode == "gguf":
        with open(arguments[1], "w") as out:
            write_ids(from_gguf(arguments[0]), random_texts(int(arguments[2]), 2), out)
    elif mode == "exported":
        with open(arguments[1], "w") as out:
            write_ids(Tokenizer.from_file(arguments[0]), random_texts(int(arguments[2]), 6), out)
    elif mode == "speed":
        write_speed(arguments[0], arguments[1], int(arguments[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
