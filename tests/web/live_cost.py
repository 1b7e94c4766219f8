"""What watching costs: the same work, 32 streams of the default model, with nobody, one and fifty pages on /v1/live, in turns.

    SKEIN_TEST_BINARY=build/skein python3 tests/web/live_cost.py [--rounds 5] [--requests 96] [--tokens 64]

It is counted for each frame, in CPU time of the server by thread, and then set against all cores: frames come four times a second however slow
the machine is, so that a share of what a server got beside others would say more about them. For each frame there are the thread that makes it,
what the I/O threads and workers take more than with nobody watching, and the engine's answer, which is too short to be seen among a step's
work: BM_View of skein_microbench measures it, and --view-us names it. The last line is the figure; it fails above 0.5 % for one page or 2 % for fifty.
"""
import argparse
import os
import pathlib
import selectors
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))
import serving  # noqa: E402

STREAMS, FRAMES_A_SECOND, LIMITS = 32, 4, {1: 0.5, 50: 2.0}
PROMPT = "Once upon a time there was a ball of yarn that {}. "


class Watchers:
    """Pages that watch, as far as the server can tell: they take every frame at once."""

    def __init__(self, port, count):
        self.sockets, self.bytes, self.frames, self.open = [], 0, 0, True
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
                data = key.fileobj.recv(1 << 20)
                self.bytes += len(data)
                self.frames += data.count(b"data: {")

    def close(self):
        self.open = False
        self.thread.join()
        for one in self.sockets:
            one.close()


def cpu_ns(pid):
    """Of every thread, by its id: (name, nanoseconds)."""
    times = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            times[task.name] = ((task / "comm").read_text().strip(), int((task / "schedstat").read_text().split()[0]))
        except OSError:
            continue  # it has just ended
    return times


def work(server, requests, tokens):
    """Answers so many requests, 32 at a time; the seconds that it took."""
    left = list(range(requests))
    began = time.monotonic()

    def client(_):
        while left:
            try:
                at = left.pop()
            except IndexError:
                return
            server.stream(prompt=PROMPT.format(at) * 4, max_tokens=tokens, ignore_eos=True).read()

    serving.in_parallel(STREAMS, client)
    return time.monotonic() - began


def measure(server, watching, wanted, computing):
    """Of one round: CPU ns of the thread that makes frames, and of all others that do not compute; seconds; frames; bytes of a frame."""
    watchers = Watchers(server.port, watching)
    time.sleep(0.6)
    before, frames = cpu_ns(server.process.pid), watchers.frames
    seconds = work(server, wanted.requests, wanted.tokens)
    after, frames = cpu_ns(server.process.pid), watchers.frames - frames
    watchers.close()
    spent = {task: (name, ns - before.get(task, (name, 0))[1]) for task, (name, ns) in after.items()}
    return {"live": sum(ns for name, ns in spent.values() if name == "live"), "seconds": seconds, "frames": frames / max(1, watching),
            "rest": sum(ns for task, (name, ns) in spent.items() if name != "live" and task not in computing),
            "bytes": watchers.bytes / max(1, watchers.frames)}


def threads_that_compute(server, wanted):
    """Those that take more than a tenth of the server's time each: the engine's and the pool's."""
    before = cpu_ns(server.process.pid)
    work(server, wanted.requests, wanted.tokens)
    spent = {task: ns - before.get(task, ("", 0))[1] for task, (_, ns) in cpu_ns(server.process.pid).items()}
    return {task for task, ns in spent.items() if ns > 0.1 * sum(spent.values())}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--requests", type=int, default=96)
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--view-us", type=float, default=25.0, help="of one view() with 32 requests, by BM_View")
    wanted = arguments.parse_args()
    rows = {0: [], 1: [], 50: []}
    with serving.Server() as server:
        computing = threads_that_compute(server, wanted)  # and the prefix cache is warm
        for turn in range(wanted.rounds):
            for watching in ((0, 1, 50) if turn % 2 == 0 else (50, 1, 0)):
                rows[watching].append(measure(server, watching, wanted, computing))

    def median(watching, field):
        return statistics.median(row[field] for row in rows[watching])

    cores, quiet = len(os.sched_getaffinity(0)), median(0, "rest")
    print(f"  0 watch: {quiet / wanted.requests / wanted.tokens / 1000:.1f} us of I/O and workers for each token")
    costs = {}
    for watching in LIMITS:
        frames = median(watching, "frames")
        made, sent = median(watching, "live") / frames / 1000, max(0, median(watching, "rest") - quiet) / frames / 1000
        costs[watching] = 100 * FRAMES_A_SECOND * (made + sent + wanted.view_us) / 1e6 / cores
        print(f"{watching:3} watch: for each frame {made:.0f} us to make it, {sent:.0f} us to send it, {wanted.view_us:.0f} us of the engine; {median(watching, 'bytes') / 1024:.1f} KiB; "
              f"{frames:.0f} frames in a round of {median(watching, 'seconds'):.0f} s")
    failed = [watching for watching, limit in LIMITS.items() if costs[watching] > limit]
    print(f"live cost: one page {costs[1]:.2f} % (limit {LIMITS[1]} %), fifty {costs[50]:.2f} % (limit {LIMITS[50]} %) of {cores} cores that compute {STREAMS} streams")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
