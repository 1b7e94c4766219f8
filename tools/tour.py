#!/usr/bin/env python3
"""Makes docs/img/tour.svg: a terminal in which skein's commands are typed and say what they said on this machine, in twenty seconds.

  tools/tour.py [--binary build/skein] [--out docs/img/tour.svg]

Every command below is run against a real server with the default model, and what it prints is kept with the time at which it came. A scene that
took longer than it is shown for is played faster; nothing else is changed. Where a reader wants no motion the last scene stands still.
"""
import argparse
import html
import http.client
import json
import os
import pathlib
import re
import selectors
import socket
import subprocess
import tempfile
import threading
import time
import unicodedata
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS, ROWS, WIDE, HIGH, MARGIN, TOP, PATIENCE_S = 108, 22, 7.2, 17, 20, 44, 300
SCHEMA = ('{"messages": [{"role": "user", "content": "Describe Lisbon."}],\n'
          '   "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": {\n'
          '     "type": "object", "required": ["city", "country", "coastal"], "properties": {\n'
          '       "city": {"type": "string", "maxLength": 20}, "country": {"type": "string", "maxLength": 20},\n'
          '       "coastal": {"type": "boolean"}}}}}}')
CLIENTS = 12
# What is typed, what is run where that is something else, for how many seconds it is shown, and how long it may run.
SCENES = [
    ("build/skein serve --model default --device cpu", None, 3.0, "ready"),
    ("curl -s 127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' -d '\n  " + SCHEMA + "'", None, 5.0, None),
    ("build/skein chat --model default --seed 6   # the same without a server\n> Write a Python function that reverses a string",
     "printf 'Write a Python function that reverses a string\\n' | build/skein chat --model default --seed 6 --max-tokens 200", 5.5, None),
    ("build/skein top                    # while twelve clients are answered", "build/skein top --url http://127.0.0.1:8080 | cut -c1-108", 6.5, None),
]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Run:
    """A command, and what it says when: [(seconds, text)]."""

    def __init__(self, command, environment, until=None):
        self.process = subprocess.Popen(["bash", "-c", "exec 2>&1; " + command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.said = []
        began, whole = time.monotonic(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while time.monotonic() - began < PATIENCE_S and selector.select(PATIENCE_S):
                data = os.read(self.process.stdout.fileno(), 65536)
                if not data:
                    break
                whole += data
                self.said.append((time.monotonic() - began, data.decode(errors="replace")))
                if until and until.encode() in whole:
                    break
        if until is None and self.process.wait() != 0:
            raise SystemExit(f"tour: {command}: {whole.decode(errors='replace')}")

    def close(self):
        self.process.terminate()
        self.process.wait()


def running(port):
    """How many requests run, as /metrics has it."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).read().decode()
    return sum(float(value) for value in re.findall(r"^vllm:num_requests_running\S* (\S+)", text, re.M))


def crowd(port, stop):
    """Clients that are answered again and again; returns when all of them are being answered."""
    def client(at):
        while not stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            body = {"prompt": f"Tell me story {at % 4} about a ball of yarn. " * 8, "max_tokens": 150, "ignore_eos": True}
            try:
                connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                connection.getresponse().read()
            except OSError:
                return
            finally:
                connection.close()

    for at in range(CLIENTS):
        threading.Thread(target=client, args=(at,), daemon=True).start()
    until = time.monotonic() + PATIENCE_S
    while running(port) < CLIENTS and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(2)


def plain(text):
    """Without what moves a cursor or colours; the tour's own colours are the page's."""
    return "".join(c for c in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "") if c == "\n" or unicodedata.category(c) != "Cc")


def record(binary):
    """[(what is typed, seconds to show, [(seconds, text)])]"""
    port, stop, scenes, server = free_port(), threading.Event(), [], None
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "SKEIN_PORT": str(port), "SKEIN_STATE_DIR": state}
        for typed, command, seconds, until in SCENES:
            command = (command or typed).replace("build/skein", str(binary)).replace(":8080", f":{port}")
            if "skein top" in typed:
                crowd(port, stop)
            run = Run(command, environment, until)
            server = server or run
            said = [(at, plain(text).replace(f":{port}", ":8080").replace(state, "~/.local/share/skein")) for at, text in run.said]
            scenes.append((typed, seconds, said))
        stop.set()
        server.close()
    return scenes


class Screen:
    """Text that appears at times, on rows of a terminal."""

    def __init__(self):
        self.row = self.column = 0
        self.pieces = []  # (seconds, row, column, kind, text)

    def write(self, at, text, kind):
        for line in re.split(r"(\n)", text):
            if line == "\n":
                self.row, self.column = self.row + 1, 0
            while line and line != "\n":
                if self.column >= COLUMNS:
                    self.row, self.column = self.row + 1, 0
                part, line = line[:COLUMNS - self.column], line[COLUMNS - self.column:]
                if part.strip() and self.row < ROWS:
                    self.pieces.append((at, self.row, self.column, kind, part))
                self.column += len(part)


def play(typed, seconds, said):
    """A screen whose last word comes before the scene's last second or so."""
    screen = Screen()
    screen.write(0.1, "$ ", "prompt")
    words = re.findall(r"\S+\s*", typed)
    for at, word in enumerate(words):
        screen.write(0.3 + 0.9 * at / len(words), word, "typed")
    screen.write(1.3, "\n", "said")
    length = max((at for at, _ in said), default=0)
    fast = min(1.0, max(0.2, seconds - 2.8) / max(length, 0.01))
    held, last = "", -1.0
    for at, text in said:
        held += text
        if at * fast - last >= 0.06:  # what comes in the same moment is one piece
            screen.write(1.4 + at * fast, held, "said")
            held, last = "", at * fast
    screen.write(1.4 + length * fast, held, "said")
    return screen


def draw(scenes):
    total = sum(seconds for _, seconds, _ in scenes)
    width, height = 2 * MARGIN + COLUMNS * WIDE, TOP + ROWS * HIGH + MARGIN
    rules, body, began = [], [], 0.0
    names = {}

    def shown(start, end, last):
        """The class of what is to be seen from one time to another."""
        key = (round(100 * start / total, 2), round(100 * end / total, 2))
        if key not in names:
            names[key] = f"t{len(names)}"
            close = f"{key[1]}%,to{{visibility:hidden}}" if key[1] < 100 else "to{visibility:visible}"
            rules.append(f"@keyframes {names[key]}{{from{{visibility:hidden}}{key[0]}%{{visibility:visible}}{close}}}"
                         f".{names[key]}{{animation:{names[key]} {total}s steps(1) infinite}}")
        return names[key] + (" last" if last else "")

    for number, (typed, seconds, said) in enumerate(scenes):
        for at, row, column, kind, text in play(typed, seconds, said).pieces:
            name = shown(began + min(at, seconds - 0.3), began + seconds, number == len(scenes) - 1)
            text = text.rstrip()
            indent = len(text) - len(text.lstrip())
            body.append(f'<text class="{name} {kind}" x="{MARGIN + (column + indent) * WIDE:g}" y="{TOP + (row + 1) * HIGH - 5}" '
                        f'textLength="{len(text.strip()) * WIDE:g}" xml:space="preserve">{html.escape(text.strip(), quote=False)}</text>')
        began += seconds
    dots = "".join(f'<circle cx="{MARGIN + 6 + 20 * i}" cy="22" r="5.500" class="dot"/>' for i in range(3))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img">\n'
            "<title>A terminal: skein serves, answers with a form, chats, and shows what it does</title>\n<style>\n"
            ".page{fill:#16181d}@media(prefers-color-scheme: dark){.page{stroke:#3a3e47}}.dot{fill:#3a3e47}text{font:12px ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;visibility:hidden;fill:#cfccc5}\n"
            ".prompt{fill:#f0997a}.typed{fill:#fff}\n" + "\n".join(rules) +
            "\n@media (prefers-reduced-motion:reduce){text{animation:none!important}.last{visibility:visible}}\n</style>\n"
            f'<rect class="page" width="{width:g}" height="{height:g}" rx="10"/>{dots}\n' + "\n".join(body) + "\n</svg>\n")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/skein")
    arguments.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/img/tour.svg")
    wanted = arguments.parse_args()
    text = draw(record(wanted.binary.resolve()))
    wanted.out.write_text(text)
    print(f"tour: {sum(seconds for _, _, seconds, *_ in SCENES):g} s, {len(text):,} bytes")


if __name__ == "__main__":
    main()
