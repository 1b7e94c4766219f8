"""What watching takes from answers: the rate of 32 streams of the default model while nobody, one and fifty pages are on /v1/live.

    SKEIN_TEST_BINARY=build/skein python3 tests/web/live_throughput.py [--rounds 14] [--seconds 2]

The streams never end. Windows in which somebody watches stand between windows in which nobody does, and each is compared with the two beside it,
so that a machine that grows slower or quicker for a while slows or quickens both. In each round one window of nobody is compared with its neighbours
likewise: what that gives is what such figures are worth. A window's rate is that of its tokens from the first to the last, stream by stream, so that
no step is cut in two. What the pages themselves take of the machine to read their frames is counted, too. live_cost.py has the same in CPU time, to
a hundredth of a percent. The last line is the figure; it fails where the median loses more than 0.5 % for one page or 2 % for fifty, and twice what
medians of so many windows are uncertain by.
"""
import argparse
import json
import pathlib
import selectors
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from live_cost import LIMITS, STREAMS, Watchers, serving  # noqa: E402

TOKENS = 512
ORDER = (1, 50, 0)  # with a window of nobody before each and one behind the last


class Streams:
    """So many at a time, each followed by another, and when the frames of each came."""

    def __init__(self, port, count):
        self.port, self.lock, self.open = port, threading.Lock(), True
        self.selector, self.times, self.made = selectors.DefaultSelector(), {}, 0
        for at in range(count):
            self.begin(TOKENS * (at + 1) // count)  # they do not end together
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def begin(self, tokens):
        body = json.dumps({"prompt": f"Once upon a time, {self.made}", "max_tokens": tokens, "ignore_eos": True, "stream": True})
        one = socket.create_connection(("127.0.0.1", self.port))
        one.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        self.selector.register(one, selectors.EVENT_READ, self.made)
        self.times[self.made] = []
        self.made += 1

    def read(self):
        while self.open:
            for key, _ in self.selector.select(0.1):
                data, now = key.fileobj.recv(1 << 16), time.monotonic()
                with self.lock:
                    self.times[key.data] += [now] * data.count(b"data: {")
                    if data:
                        continue
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self.begin(TOKENS)

    def rate(self, seconds):
        """Tokens a second of all together, over the next seconds."""
        with self.lock:
            self.times = {at: [] for at in self.times if at + 2 * STREAMS > self.made}
        time.sleep(seconds)
        with self.lock:
            taken = [times for times in self.times.values() if len(times) > 4]
            assert len(taken) >= STREAMS // 2, f"{len(taken)} of {STREAMS} streams went on for {seconds} s"
            return sum((len(times) - 1) / (times[-1] - times[0]) for times in taken) * STREAMS / len(taken)

    def close(self):
        self.open = False
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()


def window(server, streams, watching, seconds):
    watchers = Watchers(server.port, watching)
    try:
        time.sleep(0.3)
        return streams.rate(seconds)
    finally:
        watchers.close()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=14)
    arguments.add_argument("--seconds", type=float, default=2, help="of a window")
    wanted = arguments.parse_args()
    losses = {watching: [] for watching in ORDER}
    with serving.Server("--batch-max-batch-size", str(STREAMS)) as server:
        streams = Streams(server.port, STREAMS)
        try:
            time.sleep(3)
            before = window(server, streams, 0, wanted.seconds)
            for _ in range(wanted.rounds):
                for watching in ORDER:
                    rate = window(server, streams, watching, wanted.seconds)
                    after = window(server, streams, 0, wanted.seconds)
                    losses[watching].append(100 * (1 - 2 * rate / (before + after)))
                    before = after
        finally:
            streams.close()
    # Of a median of n values that scatter by s it is 1.25 s / sqrt(n).
    medians = {watching: statistics.median(values) for watching, values in losses.items()}
    unsure = {watching: 1.25 * statistics.stdev(values) / len(values) ** 0.5 for watching, values in losses.items()}
    print(f"live throughput: {after:.0f} tokens a second of {STREAMS} streams; " + ", ".join(
        f"{name} {-medians[watching]:+.2f} % (± {unsure[watching]:.2f})" for watching, name in ((1, "one page"), (50, "fifty"), (0, "nobody"))) +
        f" (medians of {wanted.rounds} windows of {wanted.seconds:g} s, each beside two of nobody)")
    return int(any(medians[watching] > limit + 2 * unsure[watching] for watching, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
