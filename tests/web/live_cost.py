"""What watching costs: 32 streams of the default model with nobody, one and fifty pages on /v1/live, in turns.

    SKEIN_TEST_BINARY=build/skein python3 tests/web/live_cost.py [--seconds 10] [--rounds 2]

Two figures for each: tokens a second, which need a quiet machine, and the CPU time of the thread that makes the frames as a share of the
server's, which does not.
"""
import argparse
import http.client
import json
import os
import pathlib
import selectors
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))
import serving  # noqa: E402

STREAMS, TICKS = 32, os.sysconf("SC_CLK_TCK")


class Watchers:
    """Pages that watch, as far as the server can tell: they take every frame at once."""

    def __init__(self, port, count):
        self.sockets, self.bytes, self.open = [], 0, True
        self.selector = selectors.DefaultSelector()
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", port))
            one.sendall(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.selector.register(one, selectors.EVENT_READ)
            self.sockets.append(one)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while self.open:
            for key, _ in self.selector.select(0.1) if self.sockets else time.sleep(0.1) or ():
                self.bytes += len(key.fileobj.recv(1 << 20))

    def close(self):
        self.open = False
        self.thread.join()
        for one in self.sockets:
            one.close()


def cpu_seconds(pid, thread=None):
    """Of the process, or of its threads of that name."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if thread is None or name == thread:
            total += sum(map(int, rest.split()[11:13]))
    return total / TICKS



def load(server, stop):
    while not stop.is_set():
        try:
            server.stream(max_tokens=200).read()
        except (OSError, http.client.HTTPException):
            return  # the server has ended, and with it the measurement


def tokens_of(server):
    """As the engine counts them, from a frame of its own."""
    connection, response = server.send("GET", "/v1/live")
    frame = json.loads(response.readline()[6:])
    connection.close()
    return sum(model.get("engine", {}).get("generated_tokens", 0) for model in frame["models"])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=10)
    arguments.add_argument("--rounds", type=int, default=2)
    wanted = arguments.parse_args()
    with serving.Server() as server:
        stop = threading.Event()
        crowd = [threading.Thread(target=load, args=(server, stop), daemon=True) for _ in range(STREAMS)]
        for one in crowd:
            one.start()
        time.sleep(3)
        totals = {}
        for turn in range(wanted.rounds):
            for watching in ((0, 1, 50) if turn % 2 == 0 else (50, 1, 0)):
                watchers = Watchers(server.port, watching)
                time.sleep(0.5)
                began, tokens = time.monotonic(), tokens_of(server)
                cpu, live = cpu_seconds(server.process.pid), cpu_seconds(server.process.pid, "live")
                time.sleep(wanted.seconds)
                now = tokens_of(server)
                row = totals.setdefault(watching, [0.0] * 5)
                for i, value in enumerate((now - tokens, time.monotonic() - began, cpu_seconds(server.process.pid) - cpu,
                                           cpu_seconds(server.process.pid, "live") - live, watchers.bytes)):
                    row[i] += value
                watchers.close()
        stop.set()
        for watching, (tokens, seconds, cpu, live, received) in sorted(totals.items()):
            print(f"{watching:3} watch: {tokens / seconds:8.1f} tokens/s, {1e6 * cpu / max(1, tokens):7.1f} us of CPU a token, "
                  f"frames {100 * live / cpu:.2f} % of the server's CPU, {received / max(1, watching) / seconds / 1024:.1f} KiB/s a page")


if __name__ == "__main__":
    main()
