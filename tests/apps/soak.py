#!/usr/bin/env python3
"""`make soak`: a server at four fifths of its capacity for a long time, with everything that clients do.

    soak.py [--binary build/skein] [--minutes 30]

Memory may grow by less than 1 MiB a minute (the slope of a straight line through what was seen after the first tenth), the files that
are open when the server rests are those of the beginning, and no request fails. The last line is the figure.
"""
import argparse
import asyncio
import os
import random
import sys
import tempfile
import time

MOST_MIB_A_MINUTE = 1.0
LOAD = 0.8
CLIENTS = 16  # that measure the capacity
RESERVE = 50  # requests that may be under way beyond those, before the server counts as too slow


def slope(points):
    """Of the straight line through (x, y) points, by least squares."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


class Soak:
    def __init__(self, server, load, seed):
        self.server, self.load, self.rng = server, load, random.Random(seed)
        self.requests, self.errors = 0, []
        self.samples = []  # (minutes, MiB)

    def request(self):
        """One of the things that clients ask for: (path, body, when they leave)."""
        words = "".join(self.rng.choice("abcdefgh ") for _ in range(self.rng.randrange(1, 200)))
        tokens = self.rng.randrange(1, 48)
        draw = self.rng.random()
        if draw < 0.3:
            return "/v1/completions", {"prompt": words, "max_tokens": tokens, "ignore_eos": True}, None
        if draw < 0.6:
            messages = [{"role": "user", "content": words}]
            return "/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "stream": True, "n": 1 + (draw < 0.4)}, None
        if draw < 0.7:
            return "/v1/messages", {"messages": [{"role": "user", "content": words}], "max_tokens": tokens}, None
        if draw < 0.8:
            return "/tokenize", {"prompt": words}, None
        if draw < 0.9:
            body = {"prompt": words, "max_tokens": 60, "ignore_eos": True, "stream": True, "logprobs": 3}
            after = self.rng.randrange(60)
            return "/v1/completions", body, lambda reply: reply.tokens >= after
        return "/v1/completions", {"prompt": words, "max_tokens": -1}, "refused"

    async def one(self):
        path, body, leave = self.request()
        reply = await self.load.ask(self.server, path, body, leave=leave if callable(leave) else None)
        self.requests += 1
        good = reply.left or (reply.status == (400 if leave == "refused" else 200) and reply.error is None)
        if not good:
            self.errors.append((path, reply.status, str(reply.error)))

    async def capacity(self, seconds):
        """Requests a second when CLIENTS always have one under way."""
        begun, before = time.monotonic(), self.requests

        async def client():
            while time.monotonic() - begun < seconds:
                await self.one()

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return (self.requests - before) / (time.monotonic() - begun)

    async def hold(self, rate, seconds):
        """Requests at that rate; memory is looked at a few hundred times."""
        begun, sent, running, looked = time.monotonic(), 0, set(), 0.0
        while (now := time.monotonic() - begun) < seconds:
            while sent < now * rate and len(running) < CLIENTS + RESERVE:
                task = asyncio.create_task(self.one())
                running.add(task)
                task.add_done_callback(running.discard)
                sent += 1
            if now - looked >= seconds / 300:
                looked = now
                self.samples.append((now / 60, self.server.resident_bytes() / 2**20))
            await asyncio.sleep(0.005)
        await asyncio.gather(*running)

    def growth(self):
        """MiB a minute after the first tenth, in which caches and allocators take what they need."""
        return slope(self.samples[len(self.samples) // 10:])


def resting_files(server):
    server.settle(server.is_idle, 30)
    least = server.files()
    for _ in range(50):  # connections close when their turn comes
        time.sleep(0.05)
        least = min(least, server.files())
    return least


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=os.environ.get("SKEIN_TEST_BINARY", "build/skein"))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["SKEIN_TEST_BINARY"] = options.binary
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import load
    import serving

    load.allow_files(4096)
    with tempfile.TemporaryDirectory() as folder:
        with serving.Server("--log-level", "warning", "--batch-block-pool-size", "256", models=(serving.tiny_model(folder),)) as server:
            soak = Soak(server, load, options.seed)
            seconds = options.minutes * 60
            peak = asyncio.run(soak.capacity(max(2, seconds / 60)))
            before = resting_files(server)
            asyncio.run(soak.hold(LOAD * peak, seconds))
            after, growth = resting_files(server), soak.growth()
            alive = server.process.poll() is None
    for error in soak.errors[:10]:
        print("error:", *error)
    # A short run sees an allocator's steps, not a slope: what it may grow by is never less than a minute's worth in all.
    allowed = MOST_MIB_A_MINUTE * max(1.0, 1 / options.minutes)
    good = alive and not soak.errors and growth < allowed and after == before
    print(f"soak: {options.minutes:g} minutes at {LOAD * peak:.0f} of {peak:.0f} requests a second, {soak.requests} requests, "
          f"{len(soak.errors)} errors, {growth:+.2f} MiB a minute, files {before} and {after}: {'held' if good else 'NOT HELD'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
