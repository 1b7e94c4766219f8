"""Clients that come in crowds, leave, or do not read. SKEIN_TEST_FULL=1: `make storm`."""
import asyncio
import random
import signal
import socket
import tempfile
import time
import unittest

import load
import serving
from serving import FULL, Server, needs_model, percentile

COMPLETIONS = "/v1/completions"
TCP_ESTABLISHED = 1


def tiny_server(test, *arguments):
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    server = Server("--log-level", "warning", *arguments, models=(serving.tiny_model(folder.name),))
    test.addCleanup(server.close)
    return server


class DisconnectTest(unittest.TestCase):
    """Many streams at once, of which three in ten are left, one in ten before its first byte."""

    STREAMS = 1000 if FULL else 100
    ROUNDS = 10 if FULL else 2
    WARM_UP = 2  # after which the allocator has what it needs for such a crowd
    TOKENS = 60

    def leaving(self, rng):
        draw = rng.random()
        if draw < 0.1:
            return lambda reply: True
        if draw < 0.3:
            after = rng.randrange(1, self.TOKENS)
            return lambda reply: reply.tokens >= after
        return None

    async def storm(self, server, rng):
        async def one(i):
            body = {"prompt": f"Stream {i}", "max_tokens": self.TOKENS, "ignore_eos": True, "stream": True, "seed": i}
            return await load.ask(server, COMPLETIONS, body, leave=self.leaving(rng))

        return await asyncio.gather(*(one(i) for i in range(self.STREAMS)))

    def test_disconnects_leave_nothing_behind(self):
        if not load.allow_files(2 * self.STREAMS + 100):
            self.skipTest("too few files are allowed")
        # A pool that the first rounds fill: what grows after them is a leak.
        server = tiny_server(self, "--batch-block-pool-size", "256")
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        base = resident = None
        for turn in range(self.WARM_UP + self.ROUNDS):
            replies = asyncio.run(self.storm(server, rng))
            kept = [reply for reply in replies if not reply.left]
            bad = [(r.status, r.error, r.tokens) for r in kept if not r.done or r.status != 200]
            self.assertEqual(bad, [], f"seed {seed}")
            at_rest = lambda: server.is_idle() and (base is None or (server.files(), server.tasks()) <= base)
            self.assertTrue(server.settle(at_rest, 5 if FULL else 20), f"seed {seed}: {server.metrics()}")
            if turn == self.WARM_UP - 1:
                server.settle(lambda: server.files() < 40, 5)
                base, resident = (server.files(), server.tasks()), server.resident_bytes()
        grown = server.resident_bytes() / resident - 1
        if not serving.SANITIZED:
            self.assertLess(grown, 0.05 if FULL else 0.2)
        print(f"storm: {self.ROUNDS} rounds of {self.STREAMS} streams, kept ones all ended with [DONE]; "
              f"{base[0]} files, {base[1]} tasks, no block in use; memory {100 * grown:+.1f} %")


@needs_model
class PrefillTest(unittest.TestCase):
    """Others leave while one long prompt is being read."""

    PROMPT = 8000 if FULL else 400
    OTHERS = 50 if FULL else 12

    async def run_with_others(self, server):
        """The long one's reply, and how many came and left meanwhile."""
        body = {"prompt": [1 + i % 1000 for i in range(self.PROMPT)], "max_tokens": 4, "ignore_eos": True,
                "stream": True}
        long = asyncio.create_task(load.ask(server, COMPLETIONS, body))
        while not server.gauge("vllm:num_requests_running") and not long.done():
            await asyncio.sleep(0.01)
        rng = random.Random(6)
        small = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True}
        left = 0

        async def others():
            nonlocal left
            while not long.done() and left < self.OTHERS:
                tokens, patience = rng.randrange(4), rng.random()
                ask = load.ask(server, COMPLETIONS, small, leave=lambda reply: reply.tokens >= tokens)
                try:
                    await asyncio.wait_for(ask, patience)
                except asyncio.TimeoutError:
                    pass
                left += not long.done()

        await asyncio.gather(*(others() for _ in range(10)))
        return await long, left

    def test_a_long_prompt_survives_others_that_leave(self):
        # A machine that is busy with other things must not make a step of this prompt count as hung.
        with Server("--batch-max-batch-size", "64", "--step-timeout", "600") as server:
            reply, left = asyncio.run(self.run_with_others(server))
            self.assertEqual((reply.status, reply.done, reply.error), (200, True, None))
            self.assertGreaterEqual(left, self.OTHERS if FULL else 1)
            self.assertEqual(server.complete(max_tokens=2).status, 200)
            self.assertTrue(server.settle(server.is_idle, 20))
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            print(f"prefill: a prompt of {self.PROMPT} tokens was read in {reply.ttft:.1f} s while {left} streams left")


class SlowReaders:
    """Streams of clients that take a byte a second."""

    def __init__(self, server, count, body, path=COMPLETIONS):
        self.sockets, self.last = [], time.monotonic()
        for _ in range(count):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", server.port))
            sock.sendall(load.request_bytes("POST", path, {"stream": True, "ignore_eos": True, **body}))
            sock.setblocking(False)
            self.sockets.append(sock)

    def take_a_byte(self):
        """To be called often. How many were cut off so far."""
        if time.monotonic() < self.last + 1:
            return 0
        self.last = time.monotonic()
        return sum(map(self.is_cut, self.sockets))

    @staticmethod
    def is_cut(sock):
        try:
            sock.recv(1)
            return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self):
        for sock in self.sockets:
            sock.close()


class SlowReaderTest(unittest.TestCase):
    """Half-open connections and readers of a byte a second, beside healthy clients."""

    HALF_OPEN = 500 if FULL else 60
    SLOW = 64 if FULL else 32
    PROBES = 300 if FULL else 40

    def half_open(self, server):
        """Nothing at all, half a head, half a body."""
        sent = (b"", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        sockets = []
        for i in range(self.HALF_OPEN):
            sockets.append(socket.create_connection(("127.0.0.1", server.port)))
            sockets[-1].sendall(sent[i % 3])
        return sockets

    def probe(self, server, slow=None):
        """Seconds that a healthy client's requests take, in p99."""
        times = []
        for _ in range(self.PROBES):
            begun = time.monotonic()
            self.assertEqual(server.complete(max_tokens=4, ignore_eos=True).status, 200)
            times.append(time.monotonic() - begun)
            if slow:
                slow.take_a_byte()
        return percentile(times, 0.99)

    def test_those_who_do_not_read_harm_nobody(self):
        if not load.allow_files(self.HALF_OPEN + self.SLOW + 100):
            self.skipTest("too few files are allowed")
        # A pool that one crowd fills, and a crowd before the one that counts: so all of its pages, and what
        # the allocator keeps, are there already.
        server = tiny_server(self, "--batch-max-batch-size", "64", "--batch-block-pool-size", str(14 * self.SLOW))
        body = {"prompt": "Slow", "max_tokens": 400}
        for _ in range(2):
            asyncio.run(self.read_fast(server, body))
        idle = self.probe(server)
        files, before = server.files(), server.resident_bytes()
        slow = SlowReaders(server, self.SLOW, body)
        self.addCleanup(slow.close)
        self.assertTrue(server.settle(server.is_idle), "a slow reader pauses its row")
        each = (server.resident_bytes() - before) / self.SLOW
        self.assertLess(each, 64 << 10)
        self.assertGreater(server.files(), files + self.SLOW / 2, "nobody is stalled")
        sockets = self.half_open(server)
        busy = self.probe(server, slow)
        self.assertLessEqual(busy, max(0.1 if FULL else 1, 3 * idle))
        print(f"slow readers: {self.HALF_OPEN} half-open clients, {self.SLOW} at a byte a second: p99 of the healthy ones "
              f"{1e3 * busy:.1f} ms, idle {1e3 * idle:.1f} ms; {each / 1024:.1f} KiB a stalled stream")
        if FULL:
            began = time.monotonic()
            cut = lambda: (slow.take_a_byte(), server.files() <= files)[1]
            self.assertTrue(server.settle(cut, 120), "nobody cuts them off")
            print(f"slow readers: all {self.HALF_OPEN + self.SLOW} cut off within {time.monotonic() - began:.0f} s")
        slow.close()
        for sock in sockets:
            sock.close()
        self.assertTrue(server.settle(lambda: server.files() <= files, 20), server.files())

    async def read_fast(self, server, body):
        body = {"stream": True, "ignore_eos": True, **body}
        await asyncio.gather(*(load.ask(server, COMPLETIONS, body) for _ in range(self.SLOW)))


@needs_model
class IdleStreamTest(unittest.TestCase):
    """A stream that waits for its turn costs less than 64 KiB."""

    STREAMS = 960 if FULL else 200  # a key that is alone may hold 992 of the queue's 1,024 places

    def test_waiting_streams_are_small(self):
        if not load.allow_files(self.STREAMS + 100):
            self.skipTest("too few files are allowed")
        with Server("--batch-max-batch-size", "1") as server:
            running = server.stream(max_tokens=8000).read(until_first=True)
            before = server.resident_bytes()
            body = {"prompt": "Once upon a time", "max_tokens": 100, "stream": True}
            request = load.request_bytes("POST", COMPLETIONS, body)
            sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(self.STREAMS)]
            for sock in sockets:
                sock.sendall(request)
            waiting = lambda: server.gauge("vllm:num_requests_waiting")
            self.assertTrue(server.settle(lambda: waiting() == self.STREAMS), waiting())
            each = (server.resident_bytes() - before) / self.STREAMS
            for sock in sockets:
                sock.close()
            self.assertTrue(server.settle(lambda: waiting() == 0), waiting())
            running.close()
            print(f"{self.STREAMS} streams that wait cost {each / 1024:.1f} KiB each")
            self.assertLess(each, 64 << 10)


@needs_model
class StallTest(unittest.TestCase):
    """A row whose reader takes nothing for the stall timeout is ended, and its blocks are free."""

    SLOW = 8 if FULL else 3
    STALL_S = 60 if FULL else 1

    def test_a_stalled_row_is_ended(self):
        # Frames with all the extras are large: a few dozen tokens fill what lies between.
        body = {"prompt": "Tell me a story.", "max_tokens": 8000, "timings_per_token": True, "return_token_ids": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        with Server("--stall-timeout", self.STALL_S) as server:
            began = time.monotonic()
            slow = SlowReaders(server, self.SLOW, body)
            running = lambda: server.gauge("vllm:num_requests_running")
            self.assertTrue(server.settle(lambda: running() == self.SLOW))
            ended = lambda: (slow.take_a_byte(), server.is_idle())[1]
            self.assertTrue(server.settle(ended, self.STALL_S + 300), running())
            took = time.monotonic() - began
            self.assertGreaterEqual(took, self.STALL_S)
            self.assertLess(server.gauge("vllm:generation_tokens_total"), self.SLOW * 7999)
            self.assertEqual(server.complete(max_tokens=2).status, 200)
            slow.close()
            print(f"slow readers: {self.SLOW} rows of stalled readers ended after {took:.1f} s (stall timeout {self.STALL_S} s), "
                  "their blocks are free")


if __name__ == "__main__":
    unittest.main()
