#!/usr/bin/env python3
"""KV events as a router sees them: unmodified pyzmq and msgpack, and vLLM's structures as they are documented.

    build/venv/bin/python tests/fleet/kv_events_test.py

A subscriber that applies all events must know what the prefix cache holds: of any next prompt it can say how many tokens
will be found, which `cached_tokens` of the answer confirms.
"""
import contextlib
import os
import pathlib
import random
import socket
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE.parents[1] / "build/venv"
try:
    import msgpack
    import zmq
except ImportError:
    zmq = None
    if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
        os.execv(VENV / "bin/python", [str(VENV / "bin/python"), "-X", f"pycache_prefix={VENV}/pycache", *sys.argv])

sys.path.insert(0, str(HERE.parent / "apps"))
from serving import PATIENCE_S, Server, add_key, needs, run, tiny_model  # noqa: E402

BLOCK = 32
END = (-1).to_bytes(8, "big", signed=True)


def event_of(raw):
    """One event in either encoding, as a dictionary."""
    if isinstance(raw, dict):
        return raw
    fields = {"BlockStored": ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
                              "extra_keys"),
              "BlockRemoved": ("block_hashes", "medium"), "AllBlocksCleared": ()}[raw[0]]
    return {"type": raw[0], **dict(zip(fields, raw[1:]))}


class Index:
    """What a router keeps: by (tenant, prefix of tokens) whether a block is there."""

    def __init__(self):
        self.blocks = {}  # hash -> (tenant, all tokens up to its end)
        self.cleared = 0

    def apply(self, event):
        if event["type"] == "AllBlocksCleared":
            self.blocks.clear()
            self.cleared += 1
        elif event["type"] == "BlockRemoved":
            assert event["medium"] == "GPU"
            for block in event["block_hashes"]:
                del self.blocks[block]
        else:
            assert event["block_size"] == BLOCK and event["medium"] == "GPU", event
            tokens, parent = event["token_ids"], event["parent_block_hash"]
            assert len(tokens) == BLOCK * len(event["block_hashes"])
            if parent is None:
                tenant, before = event["extra_keys"][0][0], ()
            else:
                tenant, before = self.blocks[parent]
                assert event.get("extra_keys") is None
            for i, block in enumerate(event["block_hashes"]):
                assert 0 < block < 2**63 and block not in self.blocks
                before += tuple(tokens[BLOCK * i:BLOCK * (i + 1)])
                self.blocks[block] = (tenant, before)

    def found(self, tokens, tenant):
        """Tokens of a prompt that will be found; the last one is always computed."""
        known = {prefix for owner, prefix in self.blocks.values() if owner == tenant}
        count = 0
        while tuple(tokens[:count + BLOCK]) in known and count + BLOCK <= len(tokens):
            count += BLOCK
        return min(count, len(tokens) - 1)

    def tenants(self):
        return {tenant for tenant, _ in self.blocks.values()}


class Subscriber:
    def __init__(self, port, replay_port, topic=""):
        self.context = zmq.Context()
        self.topic, self.index, self.next = topic, Index(), 0
        self.replay = self.context.socket(zmq.DEALER)
        self.replay.connect(f"tcp://127.0.0.1:{replay_port}")
        self.port, self.socket = port, None
        self.connect()

    def connect(self):
        self.socket = self.context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.HEARTBEAT_IVL, 100)
        self.socket.setsockopt_string(zmq.SUBSCRIBE, self.topic)
        self.socket.connect(f"tcp://127.0.0.1:{self.port}")

    def take(self, topic, number, payload):
        number = int.from_bytes(number, "big")
        if number < self.next:
            return  # was replayed
        assert number == self.next, f"message {number} after {self.next - 1}"
        assert topic == self.topic.encode(), topic
        self.next += 1
        time_s, events, rank = msgpack.unpackb(payload)
        assert time_s > 1.7e9 and rank == 0
        for raw in events:
            self.index.apply(event_of(raw))

    def catch_up(self):
        """All that was ever said and is kept, by asking for it."""
        self.replay.send_multipart([b"", self.next.to_bytes(8, "big")])
        while True:
            assert self.replay.poll(1000 * PATIENCE_S), "no replay came"
            empty, topic, number, payload = self.replay.recv_multipart()
            assert empty == b""
            if number == END:
                assert payload == b""
                return
            self.take(topic, number, payload)

    def hear(self, until):
        """What is sent by itself, up to that number."""
        while self.next < until:
            assert self.socket.poll(1000 * PATIENCE_S), f"message {self.next} of {until} did not come"
            self.take(*self.socket.recv_multipart())

    def close(self):
        self.context.destroy(linger=0)


def ports_of(server, model="tiny"):
    match = server.logged(rf"KV events of {model}: port (\d+), again from port (\d+)")
    return int(match[1]), int(match[2])


@needs(zmq is not None, "pyzmq and msgpack are not there; `tools/python_env.sh` installs them")
class KvEvents(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def serve(self, *arguments, blocks=40, **more):
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        server = self.stack.enter_context(
            Server("--kv-events", "127.0.0.1:0", "--batch-block-pool-size", blocks, *arguments,
                   models=[tiny_model(folder)], **more))
        return server

    def subscribe(self, server, topic=""):
        subscriber = Subscriber(*ports_of(server), topic)
        self.stack.callback(subscriber.close)
        return subscriber

    def messages(self, server):
        return int(server.gauge("skein:kv_event_messages_total"))

    def sync(self, server, subscriber, model="tiny", hear=False):
        """Until the subscriber knows as many blocks as the idle server has; events are on their way for a moment."""
        def knows_all():
            subscriber.hear(self.messages(server)) if hear else subscriber.catch_up()
            page = server.metrics()
            known = page[f'skein:kv_blocks{{model_name="{model}",state="cached"}}'], page[f'skein:kv_blocks{{model_name="{model}",state="held"}}']
            return known == (len(subscriber.index.blocks), 0)
        self.assertTrue(server.settle(knows_all), f"the subscriber knows {len(subscriber.index.blocks)} blocks")

    def tokens(self, server, prompt):
        return server.post("/tokenize", {"prompt": prompt}).json()["tokens"]

    def cached(self, server, prompt, tokens=4):
        usage = server.complete(prompt, max_tokens=tokens, temperature=0, ignore_eos=True).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    def check(self, server, subscriber, rounds, seed=1, hear=False):
        """Random conversations: what the subscriber predicts is what is found."""
        rng, texts = random.Random(seed), ["The beginning of a story. " * 3]
        for _ in range(rounds):
            text = rng.choice(texts) + "".join(rng.choice("abcdef ") for _ in range(rng.randrange(1, 90)))
            texts = (texts + [text[:600]])[-8:]
            self.sync(server, subscriber, hear=hear)
            tenants = subscriber.index.tenants()
            expected = max((subscriber.index.found(self.tokens(server, text), t) for t in tenants), default=0)
            self.assertEqual(self.cached(server, text), expected)

    def test_subscriber_knows_what_will_be_found(self):
        for encoding in ("array", "map"):
            with self.subTest(encoding):
                server = self.serve("--kv-events-encoding", encoding)
                subscriber = self.subscribe(server)
                self.assertTrue(server.settle(lambda: server.gauge("skein:kv_event_subscribers") == 1))
                self.sync(server, subscriber)
                self.assertEqual(subscriber.index.cleared, 1, "it begins with nothing")
                self.check(server, subscriber, 60, hear=True)
                self.assertGreater(server.gauge("skein:kv_evictions_total"), 20)
                self.assertEqual(server.gauge("skein:kv_event_resets_total"), 0)
                server.logged("sandbox:")

    def test_who_was_cut_off_asks_again(self):
        server = self.serve()
        subscriber = self.subscribe(server)
        self.check(server, subscriber, 5)
        subscriber.socket.close(linger=0)
        for i in range(30):
            self.cached(server, f"Somebody else says {i} things, and this is the text of them. " * 3)
        subscriber.connect()
        self.check(server, subscriber, 10, seed=2)
        self.assertGreater(subscriber.next, 30)

    def test_topics_and_second_models(self):
        folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        server = self.stack.enter_context(
            Server("--kv-events", "127.0.0.1:0", "--kv-events-topic", "kv@10.0.0.1@{model}",
                   models=[tiny_model(folder, "one"), tiny_model(folder, "two")]))
        for model in ("one", "two"):
            subscriber = Subscriber(*ports_of(server, model), f"kv@10.0.0.1@{model}")
            self.stack.callback(subscriber.close)
            server.complete("This text is of one model alone, and no other is told. " * 2, max_tokens=1, model=model)
            self.sync(server, subscriber, model)
            self.assertGreater(len(subscriber.index.blocks), 1)

    def test_tenants_are_apart(self):
        folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        keys = [add_key(folder / "state", name) for name in ("alice", "bob")]
        server = self.serve(state_dir=folder / "state", wait=False)
        server.key = keys[0]
        server.wait_for("/health", 200)
        subscriber = self.subscribe(server)
        prompt = "The same text of two who do not know each other. " * 3
        for count, key in enumerate(keys, 1):
            server.key = key
            self.assertEqual(self.cached(server, prompt), 0)
            self.assertGreater(self.cached(server, prompt), 0)
            self.sync(server, subscriber)
            self.assertEqual(len(subscriber.index.tenants()), count)

    def test_same_contents_have_the_same_hash_after_a_restart(self):
        folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        seen = []
        for _ in range(2):
            server = self.serve(state_dir=folder / "state")
            subscriber = self.subscribe(server)
            self.cached(server, "What a store keeps is the key of the hashes, so they stay. " * 3)
            self.sync(server, subscriber)
            seen.append(dict(subscriber.index.blocks))
            server.signal(15)
            server.wait()
        self.assertGreater(len(seen[0]), 3)
        self.assertEqual(seen[0], seen[1])

    def test_strangers_do_no_harm(self):
        server = self.serve()
        port, replay = ports_of(server)
        rng, kept = random.Random(4), []
        for i in range(200):
            peer = socket.create_connection(("127.0.0.1", (port, replay)[i % 2]))
            peer.sendall((b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f\x03", rng.randbytes(200), b"")[i % 4])
            kept.append(peer)
        subscriber = self.subscribe(server)
        self.check(server, subscriber, 5)
        self.assertGreater(server.gauge("skein:kv_event_dropped_total"), 50)
        self.assertLess(server.files(), 150)
        for peer in kept:
            peer.close()

    def test_wrong_options_say_so(self):
        for wrong, why in ((["0.0.0.0:5557"], "--kv-events-insecure-open"), (["5557"], "ADDR:PORT"),
                           (["example.org:5557"], "is no address"), (["127.0.0.1:65535"], "beyond 65535"),
                           (["127.0.0.1:5557", "--no-prefix-cache"], "--no-prefix-cache"),
                           (["127.0.0.1:5557", "--no-enable-batching"], "--no-enable-batching")):
            with self.subTest(wrong), tempfile.TemporaryDirectory() as folder:
                done = run("serve", "--port", "0", "--state-dir", folder + "/state", "--model", tiny_model(folder), "--kv-events", *wrong)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
