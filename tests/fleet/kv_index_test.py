#!/usr/bin/env python3
"""NVIDIA Dynamo's own index, unchanged, fed by a node's KV events: what it says of a prompt is what the node then finds.

    tests/fleet/kv_index_test.py build/skein [--queries 1000]

It is what `make fleet-index` runs, with the wheels of tools/requirements-dynamo.txt in build/dynamo. In the middle the
index leaves, misses a part, and comes back, which takes a replay. The last line is the figure.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DYNAMO = HERE.parents[1] / "build/dynamo/bin/python"
BLOCK = 32
MODEL = "tiny"


def ask(port, method, path, body=None, patience_s=60):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience_s)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def wait_for(what, condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.01)


class Index:
    def __init__(self, python, port, log):
        self.port = port
        self.process = subprocess.Popen([python, "-m", "dynamo.indexer", "--port", str(port), "--threads", "1"], stdout=log, stderr=log)
        wait_for("the index", self.is_up)

    def is_up(self):
        assert self.process.poll() is None, "the index has ended"
        try:
            return ask(self.port, "GET", "/workers")[0] == 200
        except OSError:
            return False

    def register(self, events, replay):
        status, said = ask(self.port, "POST", "/register", {"instance_id": 1, "endpoint": f"tcp://127.0.0.1:{events}", "model_name": MODEL,
                                                           "block_size": BLOCK, "replay_endpoint": f"tcp://127.0.0.1:{replay}"})
        assert status == 201, said

    def unregister(self):
        status, said = ask(self.port, "POST", "/unregister", {"instance_id": 1, "model_name": MODEL})
        assert status == 200, said

    def found(self, tokens):
        """Tokens of a prompt that it believes to be cached."""
        status, said = ask(self.port, "POST", "/query", {"token_ids": tokens, "model_name": MODEL})
        return said["scores"].get("1", {}).get("0", 0) if status == 200 else 0

    def blocks(self):
        """How many blocks it believes to be cached."""
        return json.dumps(ask(self.port, "GET", "/dump")[1]).count('"tokens_hash"')

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Run:
    def __init__(self, server, index, rng):
        self.server, self.index, self.rng = server, index, rng
        self.texts, self.equal, self.asked, self.hits = ["The beginning of a story. " * 3], 0, 0, 0

    def text(self):
        text = self.rng.choice(self.texts) + "".join(self.rng.choice("abcdef ") for _ in range(self.rng.randrange(1, 90)))
        self.texts = (self.texts + [text[:600]])[-8:]
        return text

    def complete(self, text):
        usage = self.server.complete(text, max_tokens=4, temperature=0, ignore_eos=True).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    def cached_blocks(self):
        page = self.server.metrics()
        held, cached = (page[f'skein:kv_blocks{{model_name="{MODEL}",state="{state}"}}'] for state in ("held", "cached"))
        return cached if held == 0 else -1

    def query(self):
        text = self.text()
        tokens = self.server.post("/tokenize", {"prompt": text}).json()["tokens"]
        wait_for("the index to know all", lambda: self.index.blocks() == self.cached_blocks(), 60)
        believed = min(self.index.found(tokens), len(tokens) - 1)
        found = self.complete(text)
        self.asked, self.equal, self.hits = self.asked + 1, self.equal + (found == believed), self.hits + (found > 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=str(DYNAMO))
    options = parser.parse_args()
    os.environ["SKEIN_TEST_BINARY"] = options.binary
    sys.path.insert(0, str(HERE.parent / "apps"))
    sys.path.insert(0, str(HERE.parent / "server/batch"))
    from batch_kill_test import free_port
    from serving import Server, tiny_model
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder, "log"), "wb") as log:
        index = Index(options.python, free_port(), log)
        with Server("--kv-events", "127.0.0.1:0", "--batch-block-pool-size", "60", models=[tiny_model(folder)]) as server:
            events, replay = server.logged(r"KV events of tiny: port (\d+), again from port (\d+)").groups()
            run = Run(server, index, random.Random(options.seed))
            for _ in range(3):
                run.complete(run.text())  # before the index is there: it has to ask for what was said
            index.register(events, replay)
            run.complete(run.text())
            for i in range(options.queries):
                if i == options.queries // 2:
                    index.unregister()
                    for _ in range(10):
                        run.complete(run.text())
                    index.register(events, replay)
                    time.sleep(0.5)  # its subscription is on its way; what it misses it asks for
                    run.complete(run.text())
                run.query()
        index.end()
    print(f"fleet-index: {run.equal} of {run.asked} answers of Dynamo's index are what the node found, {run.hits} of them not nothing")
    sys.exit(run.equal != run.asked)


if __name__ == "__main__":
    main()
