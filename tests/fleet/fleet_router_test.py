#!/usr/bin/env python3
"""Three nodes behind HAProxy with packaging/haproxy/skein.cfg as it is shipped, against nodes without it.

    tests/fleet/with_postgres.sh tests/fleet/fleet_router_test.py build/skein [affinity restart kill gaps errors] [--full]

    affinity  conversations find their beginnings in a cache: hits against round-robin and against one node
    restart   every node is stopped and started again under load: no error, no stream that is cut
    kill      a node is killed under load: its streams are cut, nothing else
    gaps      what HAProxy adds to the time between the tokens of a stream
    errors    bad requests without end, and good ones beside them; a fleet that is full

Each says its figure; --full is the long form.
"""
import argparse
import collections
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server/batch"))
sys.path.insert(0, str(HERE))
from batch_kill_test import write_tiny_model  # noqa: E402
from fleet_batch_test import Node, schema_of, wait_for  # noqa: E402
from fleet_test import CONFIG, HAPROXY, Front, make_key, start_haproxy  # noqa: E402

MODEL = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "skein/models/SmolLM2-135M-Instruct.Q4_1.gguf")
WORDS = pathlib.Path(__file__).read_text().split()


def say(text):
    print(f"fleet router: {text}", flush=True)


def set_option(node, name, value):
    if name in node.command:
        node.command[node.command.index(name) + 1] = str(value)
    else:
        node.command += [name, str(value)]


class Fleet:
    """Nodes on a store of their own behind HAProxy."""

    made = itertools.count()

    def __init__(self, options, config=CONFIG, **settings):
        self.folder = options.folder / f"fleet{next(self.made)}"
        self.folder.mkdir()
        store = schema_of(os.environ["SKEIN_TEST_STORE"], self.folder.name)
        self.key = make_key(options.binary, store, "tests")
        self.nodes = [Node(options.binary, options.model, self.folder / name, name, store, 5) for name in ("n1", "n2", "n3")]
        for node in self.nodes:
            for name, value in {"batch-block-pool-size": 2048, "batch-max-batch-size": 16, **settings}.items():
                set_option(node, f"--{name}", value)
        self.config, self.haproxy = config, None

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.__exit__(BaseException)
            raise

    def start(self):
        for node in self.nodes:
            node.start()
        self.haproxy, port = start_haproxy(self.folder, self.nodes, self.config)
        self.front = Front(port, self.key)
        self.fronts = [Front(node.port, self.key) for node in self.nodes]
        # HAProxy has seen every node twice before it sends it anything.
        seen = set()
        wait_for("every node", lambda: seen.add(self.front.ask("GET", "/v1/models")[1]["X-Skein-Node"]) or len(seen) == 3, 30)
        return self

    def __exit__(self, kind, *_):
        if self.haproxy:
            self.haproxy.kill()
            self.haproxy.wait()
        for node in self.nodes:
            node.end()
            if kind is not None:
                sys.stderr.write(f"--- {node.name}\n{node.path.read_text(errors='replace')[-2000:]}\n")


# ---- affinity

def round_robin(options):
    """The shipped file but for how it chooses a node."""
    text = CONFIG.read_text()
    changed = re.sub(r"balance hash .*\n\s*hash-type .*\n\s*hash-balance-factor .*\n", "balance roundrobin\n", text)
    assert changed != text
    path = options.folder / "round-robin.cfg"
    path.write_text(changed)
    return path


def talk(front, number, turns, record):
    """One conversation: half of them have words of a system first."""
    rng = random.Random(number)
    messages = [{"role": "system", "content": f"You are helper {number}."}] if number % 2 else []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{number}.{turn} " + " ".join(rng.choices(WORDS, k=12))})
        node, answer = front.chat(messages)
        usage = answer["usage"]
        record.append((number, node, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or "."})


def conversations(front_of, chats, turns, clients):
    """-> (hit rate, share of the busiest node in the mean, turns that moved)"""
    record, waiting = [], list(range(chats))
    lock = threading.Lock()

    def client():
        while True:
            with lock:
                if not waiting:
                    return
                number = waiting.pop()
            talk(front_of(number), number, turns, record)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(record) == chats * turns, f"{len(record)} of {chats * turns} turns were answered"
    loads = collections.Counter(node for _, node, _, _ in record)
    homes = collections.defaultdict(list)
    for number, node, _, _ in record:
        homes[number].append(node)
    moved = sum(a != b for places in homes.values() for a, b in zip(places, places[1:]))
    rate = sum(cached for *_, cached in record) / sum(tokens for _, _, tokens, _ in record)
    return rate, max(loads.values()) * 3 / len(record), moved


def affinity(options):
    """E6."""
    chats, turns, clients, rounds = (30, 4, 12, 5 if options.full else 1)
    hashed, turned, alone, busiest, moved = [], [], [], [], []
    for _ in range(rounds):
        with Fleet(options) as fleet:
            rate, share, moves = conversations(lambda _: fleet.front, chats, turns, clients)
            hashed.append(rate), busiest.append(share), moved.append(moves)
        with Fleet(options, round_robin(options)) as fleet:
            turned.append(conversations(lambda _: fleet.front, chats, turns, clients)[0])
            # The same conversations again would be found in the caches; one node that has seen none of them is n3 of nobody.
        with Fleet(options) as fleet:
            alone.append(conversations(lambda _: fleet.fronts[0], chats, turns, clients)[0])
    a, b, c = (statistics.median(rates) for rates in (hashed, turned, alone))
    say(f"affinity: {chats} chats of {turns} turns, {clients} clients: {a:.0%} of prompt tokens were found, {a / b:.2f} times round-robin "
        f"({b:.0%}), {a / c:.2f} of one node's ({c:.0%}); {statistics.median(moved):.0f} turns moved, the busiest node had "
        f"{statistics.median(busiest):.2f} of the mean (medians of {rounds})")
    # One round alone is as lucky as its hashes are.
    least, kept, most = (1.8, 0.85, 1.5) if options.full else (1.5, 0.75, 1.7)
    assert a >= least * b and a >= kept * c and statistics.median(busiest) <= most


# ---- restart, kill

class Load:
    """Plain and streamed requests through HAProxy until stop(), and what became of each."""

    def __init__(self, front, clients=6, tokens=40):
        self.front, self.tokens = front, tokens
        self.running, self.answers, self.errors = True, [], []
        self.threads = [threading.Thread(target=self._client, args=(i,)) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def _client(self, number):
        for turn in itertools.count():
            if not self.running:
                return
            streamed, began = (number + turn) % 2 == 1, time.monotonic()
            try:
                node = self.stream(f"{number} {turn}") if streamed else self.plain(f"{number} {turn}")
                self.answers.append((began, time.monotonic(), node))
            except (AssertionError, OSError, http.client.HTTPException) as error:
                self.errors.append((streamed, getattr(error, "node", None), f"{type(error).__name__}: {error}"))

    def plain(self, text):
        status, headers, body = self.front.ask("POST", "/v1/chat/completions", self.body(text))
        assert status == 200, f"{status} {body[:200]}"
        assert json.loads(body)["usage"]["completion_tokens"] == self.tokens
        return headers["X-Skein-Node"]

    def stream(self, text):
        connection = http.client.HTTPConnection("127.0.0.1", self.front.port, timeout=60)
        node = None
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(self.body(text, stream=True)),
                               {"Authorization": f"Bearer {self.front.key}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200, f"{answer.status} {answer.read()[:200]}"
            node = answer.headers["X-Skein-Node"]
            body = answer.read()
            assert body.rstrip().endswith(b"data: [DONE]") and b'"error"' not in body, "the stream was cut"
            return node
        except (AssertionError, OSError, http.client.HTTPException) as error:
            error.node = node
            raise
        finally:
            connection.close()

    def body(self, text, **more):
        return {"messages": [{"role": "user", "content": text}], "max_tokens": self.tokens, "ignore_eos": True, **more}

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()
        return self


def restart(options):
    """E7, first half."""
    rounds = 5 if options.full else 1
    with Fleet(options) as fleet:
        load = Load(fleet.front)
        for node in fleet.nodes * rounds:
            time.sleep(0.5)
            node.stop()
            node.start()
            before = len(load.answers)
            wait_for("HAProxy to use it again", lambda: any(answer[2] == node.name for answer in load.answers[before:]) or not load.running, 30)
        load.stop()
    assert not load.errors, (len(load.errors), load.errors[:3])
    say(f"restart: every node was stopped and started again {rounds} times under load: {len(load.answers)} answers, 0 errors, 0 cut streams")


def kill(options):
    """E7, second half."""
    rounds, cut, total, slowest = (10 if options.full else 1), 0, 0, 0.0
    with Fleet(options) as fleet:
        for turn in range(rounds):
            victim = fleet.nodes[turn % 3]
            load = Load(fleet.front, clients=8, tokens=200)
            time.sleep(1)
            victim.process.kill()
            at = time.monotonic()
            victim.process.wait()
            time.sleep(1.5)
            load.stop()
            plain = [error for error in load.errors if not error[0]]
            assert not plain, f"plain requests failed: {plain[:3]}"
            strange = [error for error in load.errors if error[1] not in (victim.name, None)]
            assert not strange, f"streams of other nodes were cut: {strange[:3]}"
            after = [end - begin for begin, end, _ in load.answers if begin > at]
            before = [end - begin for begin, end, _ in load.answers if end < at]
            # What was sent after the kill is answered elsewhere, with what trying again costs.
            slowest = max(slowest, statistics.median(after[:8]) - statistics.median(before))
            cut, total = cut + len(load.errors), total + len(load.answers)
            victim.start()
            wait_for("the node", lambda: fleet.front.ask("GET", "/health")[0] == 200, 10)
            time.sleep(1.2)  # two checks
    assert slowest <= 0.5, f"new work waited {slowest:.2f} s"
    say(f"kill: {rounds} nodes were killed under load: {total} answers, {cut} streams of the killed nodes cut and none else, 0 plain requests "
        f"failed, new work at most {max(0, slowest):.2f} s later than before")


# ---- gaps

def gaps_of(port, key, tokens):
    """Milliseconds between the frames of a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"messages": [{"role": "user", "content": "Gaps"}], "max_tokens": tokens, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    answer, times = connection.getresponse(), []
    while line := answer.readline():
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    connection.close()
    assert len(times) >= tokens // 2, f"{len(times)} frames of {tokens} tokens"
    return [1000 * (b - a) for a, b in zip(times, times[1:])]


def p99(values):
    return sorted(values)[int(len(values) * 0.99)]


def gaps(options):
    """E7, third part: streams with and without it in turn, so that what else the machine does meets both. The tiny model is so quick
    that a frame has many tokens; the default one is as slow as models are."""
    if not MODEL.exists():
        assert os.environ.get("SKEIN_REQUIRE") != "all", f"{MODEL} is not there; `make model` fetches it"
        return say(f"gaps: not run, {MODEL} is not there")
    rounds, streams, tokens, pairs = *((5, 12) if options.full else (1, 2)), 48, []
    with Fleet(options, **{"model": MODEL, "memory": "1GiB", "batch-block-pool-size": 128}) as fleet:
        for _ in range(rounds):
            direct, through = [], []
            for _ in range(streams):
                direct += gaps_of(fleet.fronts[0].port, fleet.key, tokens)
                through += gaps_of(fleet.front.port, fleet.key, tokens)
            pairs.append((p99(direct), p99(through)))
    without, added = statistics.median(a for a, _ in pairs), statistics.median(b - a for a, b in pairs)
    say(f"gaps: HAProxy adds {added:+.2f} ms to the p99 of the time between two frames of a stream, which is {without:.2f} ms without it "
        f"(medians of {rounds} times {streams} streams of {tokens} tokens each way)")
    # The short form runs beside other tests, and a machine that is busy has its own share in both.
    most = 2 if options.full else max(10, without)
    assert added <= most, f"HAProxy adds {added:.2f} ms"


# ---- errors

BAD = [({"messages": "none"}, 400), ({"messages": [{"role": "user", "content": "x"}], "temperature": 9}, 400),
       ({"messages": [{"role": "user", "content": "x"}], "model": "none"}, 404), ({}, 400)]


def errors(options):
    """E8, the part that clients' libraries do not show."""
    bad = 1000 if options.full else 200
    with Fleet(options, **{"max-queue": 2, "batch-max-batch-size": 2}) as fleet:
        wrong = Front(fleet.front.port, "sk-wrong")
        for i in range(bad):
            if i % 5 == 4:
                assert wrong.ask("POST", "/v1/chat/completions", BAD[1][0])[0] == 401
            else:
                body, status = BAD[i % 5]
                seen = fleet.front.ask("POST", "/v1/chat/completions", body)[0]
                assert seen == status, f"{body}: {seen}"
            if i % 10 == 9:
                fleet.front.chat([{"role": "user", "content": f"Good {i}"}])
        refused = full_fleet(fleet)
    say(f"errors: {bad} bad requests got their own codes, and {bad // 10} of {bad // 10} good ones between them were answered; a full fleet says {refused}")


def full_fleet(fleet):
    """Every node has as many as it takes: the answer is 503 and says when to come again, and afterwards all is well."""
    body = {"messages": [{"role": "user", "content": "Long"}], "max_tokens": 900, "ignore_eos": True}
    full = threading.Event()

    def crowd(front):
        while not full.is_set():
            front.ask("POST", "/v1/chat/completions", body)

    threads = [threading.Thread(target=crowd, args=(front,)) for front in fleet.fronts * 6]
    for thread in threads:
        thread.start()
    try:
        for _ in range(400):
            status, headers, text = fleet.front.ask("POST", "/v1/chat/completions", {**body, "max_tokens": 1})
            if status != 200:
                break
    finally:
        full.set()
        for thread in threads:
            thread.join()
    assert status == 503 and headers["Retry-After"], f"{status} {text[:300]}"
    assert json.loads(text)["error"]["code"] == "queue_full", text
    assert fleet.front.ask("POST", "/v1/chat/completions", {**body, "max_tokens": 1})[0] == 200
    return f"{status} with Retry-After"


CASES = {"affinity": affinity, "restart": restart, "kill": kill, "gaps": gaps, "errors": errors}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("cases", nargs="*", choices=[*CASES, []])
    parser.add_argument("--full", action="store_true")
    options = parser.parse_intermixed_args()
    if not os.environ.get("SKEIN_TEST_STORE"):
        sys.exit("fleet router: run it with tests/fleet/with_postgres.sh")
    if not os.access(HAPROXY, os.X_OK):
        print("fleet router: there is no haproxy; tools/setup.sh fleet installs it")
        return 1 if os.environ.get("SKEIN_REQUIRE") == "all" else 77
    options.folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-router-"))
    try:
        options.model = write_tiny_model(options.folder / "tiny")
        for name in options.cases or CASES:
            CASES[name](options)
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
