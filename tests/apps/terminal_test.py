"""What a model says reaches a terminal and a log harmless, and a pipe as it is; `skein top` in both."""
import os
import pty
import re
import select
import struct
import subprocess
import tempfile
import time
import unittest

import serving


def in_terminal(*arguments, stdin="", seconds=serving.PATIENCE_S):
    """What a command writes to a terminal as its stdout."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([serving.BINARY, *map(str, arguments)], stdin=subprocess.PIPE, stdout=theirs, stderr=subprocess.DEVNULL,
                               env=serving.clean_environment(TERM="xterm"))
    os.close(theirs)
    process.stdin.write(stdin.encode())
    process.stdin.close()
    written, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        written += piece
    process.wait(serving.PATIENCE_S)
    os.close(ours)
    return written.decode("utf-8", "replace")


class TerminalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = serving.tiny_model(folder.name)
        self.forced = ("--model", self.model, "-n", 6, "--allowed-token-ids", self.escape_id(), "--ignore-eos")

    def escape_id(self):
        done = serving.run("tokenize", "--model", self.model, "--text", "\x1b")
        return int(re.findall(r"\d+", done.stdout)[0])

    def test_run_and_chat_show_escapes_and_do_not_send_them(self):
        for shown in (in_terminal("run", "-p", "a", *self.forced), in_terminal("chat", *self.forced, stdin="a\n")):
            self.assertIn("\u241b" * 6, shown)
            self.assertNotIn("\x1b\x1b", shown)
            self.assertNotIn("\x1b[31", shown)

    def test_a_pipe_gets_what_the_model_said(self):
        self.assertIn("\x1b" * 6, serving.run("run", "-p", "a", *self.forced).stdout)

    def test_a_log_has_no_escapes(self):
        """Neither those that a model says nor those that a client sends."""
        evil = "\x1b]0;owned\x07\x1b[31m\x9b2J"
        with serving.Server("--log-level", "debug", models=(self.model,)) as server:
            said = server.complete("a", max_tokens=6, ignore_eos=True, logit_bias={self.escape_id(): 100}).json()
            self.assertEqual(said["choices"][0]["text"], "\x1b" * 6)
            for body in ({"prompt": evil, "max_tokens": 1, "user": evil}, {"prompt": "a", "max_tokens": 1, "model": evil},
                         {"prompt": "a", "max_tokens": 1, "response_format": {"type": evil}}):
                server.post("/v1/completions", body, headers={"User-Agent": "\x9b31m", "X-Request-Id": "\x9b31m"})
            server.get("/v1/%1b%5b31m")
            server.get("/v1/models/%1b%5d0;owned%07")
            server.settle(lambda: server.messages().count('"route":"/v1/completions"') == 3)
            shown = server.messages()
        self.assertEqual(shown.count('"route":"/v1/completions"'), 3, shown)
        self.assertEqual([line for line in shown.split("\n") if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", line)], [])

    def test_a_file_with_escapes_is_named_without_them(self):
        names = b"general.architecture", b"\x1b]0;owned\x07evil", b"general.name", b"\x1b[31mred"
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "evil\x1b[31m.gguf")
            texts = [struct.pack("<Q", len(name)) + name for name in names]
            with open(path, "wb") as file:
                file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 2))
                for key, value in (texts[:2], texts[2:]):
                    file.write(key + struct.pack("<I", 8) + value)
            for command in (("inspect", path), ("run", "--model", path, "-p", "a"), ("serve", "--port", 0, "--model", path)):
                done = serving.run(*command)
                self.assertIn(r"\x1b]0;owned\x07evil" if command[0] != "serve" else "cannot be a model's name", done.stdout + done.stderr)
                self.assertNotIn("\x1b", (done.stdout + done.stderr).replace(path, ""))

    def test_top_is_plain_text_without_a_terminal(self):
        with serving.Server(models=(self.model,)) as server:
            url = f"http://127.0.0.1:{server.port}"
            done = serving.run("top", "--url", url)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("\x1b", done.stdout)
            for word in ("tiny", "queue", "KV", "batch", "REQUEST"):
                self.assertIn(word, done.stdout)
            shown = in_terminal("top", "--url", url, "--frames", 2)
            self.assertTrue(shown.startswith("\x1b[?1049h"), shown[:40])
            self.assertTrue(shown.endswith("\x1b[?1049l"), shown[-40:])
        missing = serving.run("top", "--url", url)
        self.assertEqual(missing.returncode, 1)
        self.assertIn(url, missing.stderr)


if __name__ == "__main__":
    unittest.main()
