"""Loading a model, from the outside: the memory that it takes at most, and what a terminal shows of it."""
import json
import os
import pathlib
import pty
import random
import re
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import serving

# name: (GGUF's number, weights in a block, bytes of one, where its float16 scales are)
TYPES = {
    "F32": (0, 1, 4, ()),
    "Q4_0": (2, 32, 18, (0,)),
    "Q5_K": (13, 256, 176, (0, 2)),
    "Q6_K": (14, 256, 210, (208,)),
}
HIDDEN, FFN, VOCABULARY, LAYERS, HEADS = 1024, 4096, 16384, 14, 8
KV_BYTES = 2 << 20  # the one block that these tests touch, in a huge page


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    return text(key) + struct.pack("<II", 4, value)


def shapes_of(quant):
    """Name, columns, rows and type of every tensor: a llama whose output matrix is its token table."""
    yield "token_embd.weight", HIDDEN, VOCABULARY, "Q6_K"
    yield "output_norm.weight", HIDDEN, 1, "F32"
    for layer in range(LAYERS):
        for name, columns, rows in (("attn_q", HIDDEN, HIDDEN), ("attn_k", HIDDEN, HIDDEN),
                                    ("attn_v", HIDDEN, HIDDEN), ("attn_output", HIDDEN, HIDDEN),
                                    ("ffn_gate", HIDDEN, FFN), ("ffn_up", HIDDEN, FFN), ("ffn_down", FFN, HIDDEN)):
            yield f"blk.{layer}.{name}.weight", columns, rows, quant
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", HIDDEN, 1, "F32"


def random_blocks(kind, noise):
    _, _, size, scales = TYPES[kind]
    if kind == "F32":
        return struct.pack("<f", 1)
    block = bytearray(noise.randbytes(size * 64))
    for at in range(0, len(block), size):
        for scale in scales:
            block[at + scale:at + scale + 2] = struct.pack("<H", 0x1C00)
    return bytes(block)


def write_model(path, quant):
    """A GGUF file of somewhat over 100 MB that means nothing."""
    tensors = list(shapes_of(quant))
    pairs = {"general.architecture": "llama", "llama.block_count": LAYERS, "llama.context_length": 256,
             "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN,
             "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": HEADS,
             "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0}
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    head += b"".join(pair(key, value) for key, value in pairs.items())
    offset, sizes = 0, []
    for name, columns, rows, kind in tensors:
        number, weights, size, _ = TYPES[kind]
        dimensions = (columns,) if rows == 1 else (columns, rows)
        head += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, number, offset)
        sizes.append(columns * rows // weights * size)
        offset += (sizes[-1] + 31) // 32 * 32
    noise = random.Random(1)
    pattern = {kind: random_blocks(kind, noise) for kind in TYPES}
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for (_, _, _, kind), size in zip(tensors, sizes):
            whole, rest = divmod(size, len(pattern[kind]))
            file.write(pattern[kind] * whole + pattern[kind][:rest] + bytes(-size % 32))


def evaluation(model, folder):
    """The shortest run there is: one token."""
    tokens = pathlib.Path(folder, "tokens.json")
    tokens.write_text(json.dumps([[1]]))
    return [serving.BINARY, "eval", "logits", "--model", str(model), "--tokens", str(tokens), "--threads", "2"]


def status_of(pid, field):
    """A line of /proc's status of a process, in bytes; 0 while there is none."""
    found = re.search(rf"^{field}:\s*(\d+) kB$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[1]) * 1024 if found else 0


def peak_of(command):
    """The most memory that a command had at a time, in bytes. Read again and again while it runs: what wait4()
    says of a child has this process's own memory in it."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, status_of(process.pid, "VmHWM"))
            time.sleep(0.0005)
    assert process.returncode == 0, command
    return peak


class MemoryTest(unittest.TestCase):
    def check(self, model, folder, bound):
        # What the program itself takes, which is no matter of the model.
        own = peak_of(evaluation(serving.tiny_model(folder), folder))
        size, peak = model.stat().st_size, peak_of(evaluation(model, folder))
        print(f"{model.name}: {size / 1e6:.1f} MB, peak {peak / 1e6:.1f} MB, of which the program {own / 1e6:.1f}")
        self.assertLess(peak - own - KV_BYTES, bound * size)

    def test_of_four_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "q4_0.gguf")
            write_model(model, "Q4_0")
            self.check(model, folder, 1.15)

    def test_of_five_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "q5_k.gguf")
            write_model(model, "Q5_K")
            self.check(model, folder, 1.25)  # 1.6 would do

    @serving.needs_model
    def test_of_the_default_model(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(serving.MODEL, folder, 1.15)


class Loading:
    """A command that is held for a while when it has begun to load; what its stderr then gets."""

    def __init__(self, command, has_terminal, seconds, begun_bytes):
        ours, theirs = pty.openpty() if has_terminal else os.pipe()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        self.ours = ours
        while status_of(self.process.pid, "RssAnon") < begun_bytes:
            if self.process.poll() is not None:
                raise AssertionError(f"ended before it had {begun_bytes} bytes")
        if seconds > 0:
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.process.send_signal(signal.SIGCONT)

    def end(self):
        shown = b""
        try:
            while data := os.read(self.ours, 65536):
                shown += data
        except OSError:  # a terminal whose other side is gone
            pass
        os.close(self.ours)
        self.process.wait(serving.PATIENCE_S)
        return shown.decode()


class ProgressTest(unittest.TestCase):
    BEGUN = 40 << 20

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        model = pathlib.Path(cls.folder.name, "q4_0.gguf")
        write_model(model, "Q4_0")
        cls.command = evaluation(model, cls.folder.name)

    def test_a_terminal_shows_a_load_that_takes_long(self):
        loading = Loading(self.command, has_terminal=True, seconds=1.2, begun_bytes=self.BEGUN)
        shown = loading.end()
        self.assertEqual(loading.process.returncode, 0)
        steps = re.findall(r"loading \[(#*)(\.*)\] +(\d+) % \S*q4_0\.gguf \d+\.\d s\r", shown)
        self.assertTrue(steps, shown)
        for filled, empty, percent in steps:
            self.assertEqual(len(filled + empty), 24)
            self.assertAlmostEqual(len(filled), 24 * int(percent) / 100, delta=1.2)
        self.assertGreater(int(steps[0][2]), 10)
        self.assertTrue(shown.endswith("\x1b[K"), "the line is wiped when the model is there")

    def test_nothing_is_shown_of_a_load_that_does_not(self):
        with tempfile.TemporaryDirectory() as folder:
            command = evaluation(serving.tiny_model(folder), folder)
            self.assertEqual(Loading(command, has_terminal=True, seconds=0, begun_bytes=0).end(), "")

    def test_nothing_is_shown_without_a_terminal(self):
        loading = Loading(self.command, has_terminal=False, seconds=1.2, begun_bytes=self.BEGUN)
        self.assertEqual(loading.end(), "")

    def test_ctrl_c_ends_it(self):
        loading = Loading(self.command, has_terminal=True, seconds=1.2, begun_bytes=self.BEGUN)
        loading.process.send_signal(signal.SIGINT)
        loading.end()
        self.assertEqual(loading.process.returncode, -signal.SIGINT)


if __name__ == "__main__":
    unittest.main()
