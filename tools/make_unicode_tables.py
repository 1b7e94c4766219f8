#!/usr/bin/env python3
"""Writes src/text/unicode_data.inc: the general category of every code point, and whether it is \\s
and \\w, as runs of equal values.

The truth is the regex engine inside Hugging Face tokenizers, because that is what models were
trained with. Its Unicode version (16.0 in tokenizers 0.21) is newer than Debian 12's utf8proc (15.0)
and Python (14.0), so the classes are read out of the engine itself:

    build/venv/bin/python tools/make_unicode_tables.py src/text/unicode_data.inc src/text/bert_classes.inc

The second file is where BERT's normalizer and pre-tokenizer, whose classes are those of Unicode 8, differ from them.
"""
import sys

from tokenizers import Regex
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, Split, Whitespace

# In the order of the enum Category in src/text/unicode.h.
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co "
              "Cs").split()
SPACE, WORD = 0x20, 0x40
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CHUNK = 4096


def members(pattern):
    """The code points that the engine's class `pattern` matches."""
    split = Split(Regex(pattern), "removed")
    for i in range(0, len(CODE_POINTS), CHUNK):
        chunk = CODE_POINTS[i:i + CHUNK]
        kept = set()
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, chunk))):
            kept.update(range(begin, end))
        yield from (c for k, c in enumerate(chunk) if k not in kept)


def word_members():
    """The code points that the pre-tokenizer Whitespace takes as part of a word."""
    for i in range(0, len(CODE_POINTS), CHUNK):
        chunk = CODE_POINTS[i:i + CHUNK]
        spans = {span for _, span in Whitespace().pre_tokenize_str("".join(f"a{chr(c)} " for c in chunk))}
        yield from (c for k, c in enumerate(chunk) if (3 * k, 3 * k + 2) in spans)


def bert_differences(value):
    """Per class of bert_text.cpp, where BERT's own notion differs from what the categories say."""
    def changed(normalizer):
        return {c for c in CODE_POINTS if normalizer.normalize_str("a" + chr(c)) == "a"}

    def in_categories(first_letters):
        return {c for c in CODE_POINTS if CATEGORIES[value[c] & 0x1F].startswith(first_letters)}

    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    dropped = changed(BertNormalizer(**{**off, "clean_text": True})) - {0, 0xFFFD}
    accents = changed(BertNormalizer(**{**off, "strip_accents": True}))
    split = BertPreTokenizer()
    punctuation = {c for c in CODE_POINTS if len(split.pre_tokenize_str(f"a{chr(c)}b")) == 3}
    return {"kOtherControls": dropped ^ in_categories(("Cc", "Cf", "Co")) - {0, 9, 10, 13},
            "kOtherAccents": accents ^ in_categories("Mn"),
            "kOtherPunctuation": {c for c in punctuation ^ in_categories("P") if c >= 0x80}}


def write_bert(differences, path):
    with open(path, "w") as out:
        out.write("// Made by tools/make_unicode_tables.py: where BERT's classes differ from the categories.\n")
        for name, points in differences.items():
            ranges = []
            for c in sorted(points):
                if ranges and ranges[-1][1] == c - 1:
                    ranges[-1][1] = c
                else:
                    ranges.append([c, c])
            out.write(f"constexpr Range {name}[] = {{\n")
            write_items([f"{{0x{a:x}, 0x{b:x}}}," for a, b in ranges], out)
            out.write("};\n")


def write_items(items, out):
    line = ""
    for item in items:
        if len(line) + len(item) > 98:
            out.write(line.rstrip() + "\n")
            line = ""
        line += item + " "
    out.write(line.rstrip() + "\n")


def main():
    value = [0] * 0x110000
    for c in range(0xD800, 0xE000):
        value[c] = CATEGORIES.index("Cs")
    for index, name in enumerate(CATEGORIES[1:-1], 1):
        for c in members(r"\p{%s}" % name):
            value[c] = index
    for c in members(r"\s"):
        value[c] |= SPACE
    for c in word_members():
        value[c] |= WORD
    runs = [(c, v) for c, v in enumerate(value) if c == 0 or v != value[c - 1]]
    items = [f"{{0x{c:x}, 0x{v:02x}}}," for c, v in runs]
    with open(sys.argv[1], "w") as out:
        out.write("// Made by tools/make_unicode_tables.py; {first code point of a run, category | space | word}.\n")
        write_items(items, out)
    if len(sys.argv) > 2:
        write_bert(bert_differences(value), sys.argv[2])
    print(f"{len(runs)} runs")


if __name__ == "__main__":
    main()
