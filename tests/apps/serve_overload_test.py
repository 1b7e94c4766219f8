"""More work than the machine can do: who waits, who is refused, who is served.

SKEIN_TEST_FULL=1: `make overload` and `make fairness`. Times are compared within one run. The small form runs beside
other tests, so it checks what is decided, and times only where they are off by a multiple.
"""
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import random
import tempfile
import time
import unittest

import load
import serving
from serving import FULL, Server, needs_model, percentile

COMPLETIONS = "/v1/completions"


def words(rng, tokens):
    """A prompt of about that many tokens that no other shares."""
    return [rng.randrange(1000, 40000) for _ in range(tokens)]


@contextlib.contextmanager
def server_with_tiers(*arguments):
    """A server and its keys, by tier."""
    with tempfile.TemporaryDirectory() as folder:
        state_dir = pathlib.Path(folder, "state")
        keys = {tier: serving.add_key(state_dir, tier, "--tier", tier) for tier in ("high", "normal", "low")}
        with Server("--log-level", "warning", *arguments, state_dir=state_dir) as server:
            server.key = keys["normal"]
            yield server, keys


class Probe:
    """One client that asks now and then: its times to the first token, and how long steps took. No two ask alike: the
    prefix cache would make one phase of a comparison cheaper than the other."""

    seeds = itertools.count(8)

    def __init__(self, server, key, prompt_tokens):
        self.server, self.key, self.prompt_tokens = server, key, prompt_tokens
        self.rng = random.Random(next(self.seeds))
        self.asked, self.ttfts, self.steps = [], [], []

    async def once(self):
        asked = time.monotonic()
        body = {"prompt": words(self.rng, self.prompt_tokens), "max_tokens": 5, "ignore_eos": True, "stream": True}
        reply = await load.ask(self.server, COMPLETIONS, body, self.key)
        assert reply.done, (reply.status, reply.error, reply.body)
        self.asked.append(asked)
        self.ttfts.append(reply.ttft)
        self.steps += [b - a for a, b in zip(reply.times, reply.times[1:])]

    async def times(self, count):
        for _ in range(count):
            await self.once()
        return self

    async def during(self, task, pause_s):
        while not task.done():
            await self.once()
            await asyncio.sleep(pause_s)
        return self

    def between(self, start, end):
        """The part of it that asked in that time; steps are those of all of it."""
        part = Probe(self.server, self.key, self.prompt_tokens)
        chosen = [i for i, asked in enumerate(self.asked) if start <= asked < end]
        part.asked, part.ttfts = [self.asked[i] for i in chosen], [self.ttfts[i] for i in chosen]
        part.steps = self.steps
        return part

    def p95(self):
        return percentile(self.ttfts, 0.95)

    def bound(self, idle):
        """What is allowed."""
        return 1.2 * idle.p95() + 2 * percentile(self.steps, 0.95)

    def says(self, idle):
        return (f"p95 to the first token {1e3 * self.p95():.0f} ms in {len(self.ttfts)} probes, at most "
                f"{1e3 * self.bound(idle):.0f} (idle {1e3 * idle.p95():.0f}, "
                f"p95 of a step {1e3 * percentile(self.steps, 0.95):.0f})")


@needs_model
class OverloadTest(unittest.TestCase):
    """Ten times the capacity."""

    SECONDS = 60 if FULL else 3
    ROWS, QUEUE = (8, 32) if FULL else (2, 4)
    PROMPT, ANSWER = 32, 16
    PROBE_PROMPT = 256 if FULL else 64
    PROBES = 20 if FULL else 3
    PAUSE_S = 0.3  # between two requests of HIGH

    def body(self, rng):
        return {"prompt": words(rng, self.PROMPT), "max_tokens": self.ANSWER, "ignore_eos": True}

    async def peak(self, server, keys):
        """Answers a second when there is always work, and nobody is refused; the better of two turns. HIGH asks as
        often as it does in the flood, so that both have the same machine."""
        turns = []
        for turn in range(2):
            task = asyncio.create_task(self.peak_of(server, keys["normal"], turn))
            await Probe(server, keys["high"], self.PROBE_PROMPT).during(task, self.PAUSE_S)
            turns.append(await task)
        return max(turns)

    async def peak_of(self, server, key, turn):
        rng, done, begun = random.Random(turn), 0, time.monotonic()
        until = begun + self.SECONDS / 6

        async def client():
            nonlocal done
            while time.monotonic() < until or done < 2 * self.ROWS:
                reply = await load.ask(server, COMPLETIONS, self.body(rng), key)
                done += reply.status == 200

        await asyncio.gather(*(client() for _ in range(2 * self.ROWS)))
        return done / (time.monotonic() - begun)

    async def flood(self, server, key, rate):
        """Requests at that rate, answered or not."""
        rng, tasks, begun = random.Random(1000), [], time.monotonic()
        while (now := time.monotonic() - begun) < self.SECONDS:
            while len(tasks) < now * rate:
                tasks.append(asyncio.create_task(load.ask(server, COMPLETIONS, self.body(rng), key)))
            await asyncio.sleep(0.005)
        flooded = time.monotonic()
        replies = await asyncio.gather(*tasks)
        in_time = sum(reply.status == 200 and reply.answered <= flooded for reply in replies)
        return replies, in_time / (flooded - begun)

    async def run_all(self, server, keys):
        idle = await Probe(server, keys["high"], self.PROBE_PROMPT).times(self.PROBES)
        peak = await self.peak(server, keys)
        # At least ten times what fits, however slow the machine is.
        rate = max(10 * peak, 10 * (self.ROWS + self.QUEUE) / self.SECONDS)
        flood = asyncio.create_task(self.flood(server, keys["normal"], rate))
        longest = asyncio.create_task(self.longest_queue(server, flood))
        probe = await Probe(server, keys["high"], self.PROBE_PROMPT).during(flood, self.PAUSE_S)
        replies, goodput = await flood
        return idle, probe, peak, replies, goodput, await longest

    async def longest_queue(self, server, task):
        longest = 0
        while not task.done():
            page = await asyncio.get_running_loop().run_in_executor(None, server.metrics)
            longest = max(longest, *(v for k, v in page.items() if k.startswith("vllm:num_requests_waiting")))
            await asyncio.sleep(0.2)
        return longest

    def test_the_excess_is_refused_and_the_rest_served(self):
        load.allow_files(4096)
        with server_with_tiers("--batch-max-batch-size", self.ROWS, "--max-queue", self.QUEUE) as (server, keys):
            idle, probe, peak, replies, goodput, longest = asyncio.run(self.run_all(server, keys))
        refused = [reply for reply in replies if reply.status in (429, 503)]
        self.assertEqual(len(refused) + sum(reply.status == 200 for reply in replies), len(replies))
        self.assertTrue(all(1 <= int(reply.headers["retry-after"]) <= 60 for reply in refused))
        # HIGH may use an eighth and one more; what it preempts waits again.
        self.assertLessEqual(longest, self.QUEUE + self.QUEUE // 8 + 1 + self.ROWS)
        late = percentile([reply.latency for reply in refused], 0.99)
        print(f"overload: {len(replies)} requests in {self.SECONDS} s, {len(refused)} refused, p99 within {1e3 * late:.1f} ms; "
              f"{goodput:.2f} answers a second of at most {peak:.2f}; queue at most {longest:.0f}")
        print(f"overload: HIGH {probe.says(idle)}")
        self.assertGreater(len(refused), len(replies) / 2)
        self.assertGreaterEqual(len(replies) - len(refused), self.QUEUE)
        if FULL:
            self.assertGreaterEqual(goodput, 0.9 * peak)
            self.assertLess(late, 0.05)
            self.assertLessEqual(probe.p95(), probe.bound(idle))


@needs_model
@unittest.skipUnless(FULL, "takes a minute; `make latecomer`")
class LatecomerTest(unittest.TestCase):
    """A request of four tokens that comes while 64 streams of 512 tokens run, by default settings: its first token is there
    within two seconds, for the batch is as large as the machine makes it."""

    STREAMS, TOKENS, LATE, MOST_S = 64, 512, 5, 2

    async def run_all(self, server):
        rng = random.Random(11)

        async def stream():
            body = {"prompt": words(rng, 32), "max_tokens": self.TOKENS, "ignore_eos": True, "stream": True}
            return await load.ask(server, COMPLETIONS, body)

        begun = time.monotonic()
        streams = [asyncio.create_task(stream()) for _ in range(self.STREAMS)]
        while server.gauge("vllm:num_requests_running") + server.gauge("vllm:num_requests_waiting") < self.STREAMS:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)  # they are under way
        late = []
        for _ in range(self.LATE):
            body = {"prompt": words(rng, 16), "max_tokens": 4, "ignore_eos": True, "stream": True}
            late.append(await load.ask(server, COMPLETIONS, body))
            ran = sum(not stream.done() for stream in streams)
            self.assertEqual(ran, self.STREAMS, "streams ended before the latecomers were served")
        replies = await asyncio.gather(*streams)
        self.assertTrue(all(reply.done for reply in replies + late))
        return [reply.ttft for reply in late], self.STREAMS * self.TOKENS / (time.monotonic() - begun)

    def test_first_token(self):
        # As many threads as the machine has cores, which is the default of a server.
        with Server("--log-level", "warning", threads=len(os.sched_getaffinity(0))) as server:
            waits, rate = asyncio.run(self.run_all(server))
        print(f"latecomer: first token after {percentile(waits, 0.5):.2f} s (median of {self.LATE}; the longest {max(waits):.2f} s) "
              f"beside {self.STREAMS} streams of {self.TOKENS} tokens, {rate:.0f} tokens/s in all")
        self.assertLess(percentile(waits, 0.5), self.MOST_S)


@needs_model
class AgingTest(unittest.TestCase):
    """While HIGH has more than enough to do, a LOW request starts within gap / rate and one request.

    What arrived less than the gap after it goes first; the last of that has ended after one request, as its client
    sees it.
    """

    RATE = 0.1 if FULL else 1
    ROWS = 2  # and twice as many HIGH clients: whichever rows get free, others wait for them

    async def run_all(self, server, keys):
        rng, stop, longest = random.Random(3), asyncio.Event(), 0

        async def admitted(path, body, key):
            """On a slow machine a key's share of the queue is small once another key asks: it asks again then."""
            while (reply := await load.ask(server, path, body, key)).status == 429:
                await asyncio.sleep(0.05)
            return reply

        async def client():
            nonlocal longest
            body = {"prompt": words(rng, 16), "max_tokens": 24, "ignore_eos": True, "stream": True}
            while not stop.is_set():
                reply = await admitted(COMPLETIONS, body, keys["high"])
                assert reply.done, (reply.status, reply.error)
                longest = max(longest, reply.last - reply.begun)

        clients = [asyncio.create_task(client()) for _ in range(2 * self.ROWS)]
        while server.gauge("vllm:num_requests_waiting") < self.ROWS:
            await asyncio.sleep(0.01)
        body = {"prompt": words(rng, 16), "max_tokens": 2, "ignore_eos": True, "stream": True}
        by_key = admitted(COMPLETIONS, body, keys["low"])
        by_route = admitted("/v1/batch/completions", body, keys["high"])
        low = await asyncio.gather(by_key, by_route)
        stop.set()
        await asyncio.gather(*clients)
        return low, longest

    def test_low_is_not_starved_by_high(self):
        with server_with_tiers("--batch-max-batch-size", self.ROWS, "--aging-rate", self.RATE) as (server, keys):
            low, longest = asyncio.run(self.run_all(server, keys))
        gap = 2 / self.RATE
        waits = [reply.ttft for reply in low]
        print(f"aging: LOW began after {', '.join(f'{wait:.1f}' for wait in waits)} s: gap / rate is {gap:.0f} s, the longest "
              f"HIGH request {longest:.1f} s")
        self.assertTrue(all(reply.done for reply in low))
        self.assertGreater(min(waits), 0.8 * gap, "HIGH did not go first")
        self.assertLess(max(waits), gap + longest + (0 if FULL else 10))


@needs_model
class BatchFairnessTest(unittest.TestCase):
    """Lines of a batch do not slow down those who wait for an answer."""

    LINES = 1000 if FULL else 100
    PROBES = 60 if FULL else 4

    def create_batch(self, server):
        line = {"method": "POST", "url": COMPLETIONS,
                "body": {"prompt": "Write a long story.", "max_tokens": 200, "ignore_eos": True}}
        text = "".join(json.dumps({"custom_id": str(i), **line}) + "\n" for i in range(self.LINES))
        form = ("--X\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--X\r\nContent-Disposition: "
                f"form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{text}\r\n--X--\r\n")
        connection = server.connect()
        connection.request("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=X",
                                                       "Authorization": f"Bearer {server.key}"})
        file = serving.Answer(connection, connection.getresponse()).json()["id"]
        return server.post("/v1/batches", {"input_file_id": file, "endpoint": COMPLETIONS}).json()["id"]

    def test_a_batch_does_not_slow_down_who_waits(self):
        with server_with_tiers() as (server, keys):
            idle = asyncio.run(Probe(server, keys["normal"], 64).times(self.PROBES))
            batch = self.create_batch(server)
            self.assertTrue(server.settle(lambda: server.gauge("vllm:num_requests_running") > 0))
            probe = asyncio.run(Probe(server, keys["normal"], 64).times(self.PROBES))
            counts = server.get(f"/v1/batches/{batch}").json()["request_counts"]
            self.assertLess(counts["completed"], self.LINES, "the batch was over too early")
        print(f"batch: {self.LINES} lines queued, {counts['completed']} done: interactive {probe.says(idle)}")
        self.assertLessEqual(probe.p95(), probe.bound(idle) if FULL else 5 * probe.bound(idle) + 1)


@needs_model
class KeyFairnessTest(unittest.TestCase):
    """One LOW key floods: completions of many prompts and many single ones. NORMAL and HIGH keys always get in, and do not
    notice, neither while what was queued is young nor when it has aged by a class."""

    ROWS, QUEUE = (32, 1024) if FULL else (2, 64)
    PROMPTS, N, SINGLES = (128, 4, 40) if FULL else (16, 2, 10)
    SECONDS = 30 if FULL else 0
    PROBES = 20 if FULL else 3
    GAP_S = 10  # 1 / --aging-rate
    PART = 5  # probes of a key in each part

    async def flood(self, server, key, stop, replies, prompts, n):
        """One client that asks again whenever it was answered, or as it was told to when it was refused."""
        rng = random.Random(prompts)
        while not stop.is_set():
            body = {"prompt": [words(rng, 16) for _ in range(prompts)], "n": n, "max_tokens": 32, "ignore_eos": True}
            reply = await load.ask(server, COMPLETIONS, body, key)
            replies.append(reply)
            if reply.status == 429:
                pause = asyncio.create_task(asyncio.sleep(int(reply.headers["retry-after"])))
                stopped = asyncio.create_task(stop.wait())
                await asyncio.wait((pause, stopped), return_when=asyncio.FIRST_COMPLETED)

    async def start_flood(self, server, key, stop, replies):
        """The large ones are in, as far as there are places for them, before the small ones come, which would make them fail."""
        start = lambda *size: asyncio.create_task(self.flood(server, key, stop, replies, *size))
        tasks = [start(self.PROMPTS, self.N) for _ in range(2)]
        begun = -1
        while (now := server.gauge("vllm:num_requests_waiting") + server.gauge("vllm:num_requests_running")) != begun:
            begun = now
            await asyncio.sleep(0.1)
        return tasks + [start(1, 1) for _ in range(self.SINGLES)]

    async def probe_while_low_floods(self, server, keys, probes):
        """When the flood began, and what it was told."""
        stop, replies = asyncio.Event(), []
        for probe in probes:
            await probe.once()  # they ask from the start
        tasks = await self.start_flood(server, keys["low"], stop, replies)
        begun = time.monotonic()
        while not replies:  # it has all that it can get
            await asyncio.sleep(0.01)
        while len(probes[-1].ttfts) < self.PROBES or time.monotonic() - begun < self.SECONDS:
            for probe in probes:
                await probe.once()  # fails where it is refused
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return begun, replies

    def test_who_asks_from_the_start_does_not_notice(self):
        with server_with_tiers("--batch-max-batch-size", self.ROWS, "--max-queue", self.QUEUE) as (server, keys):
            idle, probes = {}, {}
            for tier in ("normal", "high"):
                idle[tier] = asyncio.run(Probe(server, keys[tier], 64).times(self.PROBES))
                probes[tier] = Probe(server, keys[tier], 64)
            begun, replies = asyncio.run(self.probe_while_low_floods(server, keys, list(probes.values())))
        refused = [reply for reply in replies if reply.status == 429]
        print(f"One LOW key floods: {len(replies)} of its requests answered, {len(refused)} of them with 429")
        self.assertTrue(refused, "a flood that nobody refuses is none")
        for reply in refused:
            self.assertIn(reply.json()["error"]["code"], ("tenant_share", "queue_full"))
            self.assertTrue(1 <= int(reply.headers["retry-after"]) <= 60)
        for tier, probe in probes.items():
            parts = {"in the first class gap": probe.between(begun, begun + self.GAP_S),
                     "after it": probe.between(begun + self.GAP_S, float("inf"))}
            for when, part in parts.items():
                if part.ttfts:
                    print(f"  {tier.upper()} {when}: {part.says(idle[tier])}")
                if FULL:
                    self.assertGreaterEqual(len(part.ttfts), self.PART, f"{tier} {when}")
                    self.assertLessEqual(part.p95(), part.bound(idle[tier]), f"{tier} {when}")

    async def ask_after_the_flood(self, server, keys):
        stop, replies = asyncio.Event(), []
        tasks = await self.start_flood(server, keys["low"], stop, replies)
        while server.gauge("vllm:num_requests_waiting") < self.QUEUE / 2:
            await asyncio.sleep(0.01)
        probe = await Probe(server, keys["normal"], 64).times(self.PROBES)
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return probe

    def test_who_comes_later_finds_a_place(self):
        with server_with_tiers("--batch-max-batch-size", self.ROWS, "--max-queue", self.QUEUE) as (server, keys):
            probe = asyncio.run(self.ask_after_the_flood(server, keys))
        self.assertEqual(len(probe.ttfts), self.PROBES)


if __name__ == "__main__":
    unittest.main()
