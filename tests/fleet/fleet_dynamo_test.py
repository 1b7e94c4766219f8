#!/usr/bin/env python3
"""Three nodes behind NVIDIA Dynamo as it comes from PyPI: its frontend, and its sidecar for vLLM beside each node.

    tests/fleet/fleet_dynamo_test.py build/skein [routing kill tenants cost front shared] [--full]

    routing  conversations find their beginnings in a cache: hits by Dynamo's kv router against round-robin
    kill     a node with its sidecar is killed under 12 streams, greedy and seeded: each is whole, and byte for byte that of one node
    tenants  two tenants by x-tenant-id with one prompt: nothing is found across, everything within
    cost     what frontend and sidecar add to a token
    front    packaging/dynamo/nginx.conf before them: keys, tenants, limits
    shared   the nodes on one PostgreSQL, behind that nginx: a key's limit is of all nodes, a node is killed under streams and a batch

`make fleet-dynamo` runs it, with Dynamo in build/dynamo (tools/dynamo_env.sh); --full is the long form. `shared` takes a PostgreSQL
(tests/fleet/with_postgres.sh)."""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server/batch"))
sys.path.insert(0, str(HERE))
from batch_kill_test import lines_of, write_tiny_model  # noqa: E402
from dynamo_fleet import MODEL, NGINX, PATIENCE_S, Fleet, start_nginx  # noqa: E402
from fleet_batch_test import reference, schema_of, wait_for  # noqa: E402
from fleet_store_test import create, finished  # noqa: E402
from fleet_test import Front, make_key  # noqa: E402

DYNAMO = HERE.parents[1] / "build/dynamo/bin/python"
WORDS = pathlib.Path(__file__).read_text().split()


def say(text):
    print(f"fleet dynamo: {text}", flush=True)


def at_once(clients, work, jobs):
    """Runs work(job) for all jobs by so many clients; the first error is the caller's."""
    left, errors, lock = list(enumerate(jobs)), [], threading.Lock()

    def client():
        while True:
            with lock:
                if not left or errors:
                    return
                number, job = left.pop(0)
            try:
                work(number, job)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# ---- routing

def hits(options, router, chats, turns):
    """The part of the prompts' tokens that was found in a cache."""
    with Fleet(options, router) as fleet:
        before = [fleet.sum(f"vllm:prefix_cache_{what}_total") for what in ("hits", "queries")]
        loads = [worker.figure("vllm:prompt_tokens_total") for worker in fleet.workers]

        def talk(number, _):
            rng, text = random.Random(number), f"Conversation {number}. "
            for turn in range(turns):
                text += f"{turn}: " + " ".join(rng.choices(WORDS, k=20)) + " "
                text += fleet.complete(text, max_tokens=4).encode("ascii", "replace").decode() + " "

        at_once(8, talk, range(chats))
        found, asked = (fleet.sum(f"vllm:prefix_cache_{what}_total") - old for what, old in zip(("hits", "queries"), before))
        done = [worker.figure("vllm:prompt_tokens_total") - old for worker, old in zip(fleet.workers, loads)]
    return found / asked, max(done) * len(done) / sum(done)


def routing(options):
    chats, turns, rounds = (24, 4, 3) if options.full else (12, 4, 1)
    ratios, kv, plain, busiest = [], [], [], []
    for _ in range(rounds):
        (by_kv, load), (by_turns, _) = (hits(options, router, chats, turns) for router in ("kv", "round-robin"))
        ratios.append(by_kv / by_turns)
        kv.append(by_kv)
        plain.append(by_turns)
        busiest.append(load)
    ratio = statistics.median(ratios)
    say(f"{chats} chats of {turns} turns: {100 * statistics.median(kv):.0f} % of the prompts' tokens found by the kv router, "
        f"{100 * statistics.median(plain):.0f} % by round-robin: {ratio:.2f} times (medians of {rounds}); the busiest node "
        f"{statistics.median(busiest):.2f} of the mean")
    assert ratio >= 1.3, ratio


# ---- kill

def wishes(count, tokens):
    """Half of them greedy, half of them drawn from a seed."""
    for i in range(count):
        drawn = {"temperature": 0.8, "seed": 1000 + i} if i % 2 else {"temperature": 0}
        yield f"Stream {i} begins here and is long enough to fill a block or two.", {"max_tokens": tokens, "ignore_eos": True, **drawn}


def kill(options):
    count, tokens, rounds = 12, 3500, 5 if options.full else 1
    jobs, moved, gaps = list(wishes(count, tokens)), 0, []
    with Fleet(options, nodes=1) as alone:
        expected = [alone.stream(prompt, **fields) for prompt, fields in jobs]
    assert all(end == "length" for _, end in expected), expected
    whole = 0
    for turn in range(rounds):
        with Fleet(options, router="round-robin") as fleet:
            texts, times = [None] * count, [[] for _ in range(count)]

            def run(number, job):
                texts[number] = fleet.stream(job[0], times=times[number], **job[1])

            load = threading.Thread(target=at_once, args=(count, run, jobs))
            load.start()
            victim = fleet.workers[turn % 3]
            wait_for("streams on the node", lambda: sum(len(t) > 20 for t in times) == count, 60)
            victim.kill()
            at = time.monotonic()
            load.join()
            time.sleep(0.3)  # the last lines of logs are on their way
            # A stream that was moved comes to another node with what it had said as a part of its prompt.
            here = sum(int(tokens) > 100 for worker in fleet.workers if worker is not victim
                       for tokens in worker.node.said(r'"prompt_tokens":(\d+)'))
            assert here > 0, "nothing ran there any more"
            moved += here
            whole += sum(text == want for text, want in zip(texts, expected))
            gaps += [max(b - a for a, b in zip(t, t[1:]) if b > at) for t in times if t[-1] > at]
    say(f"kill -9 of a node and its sidecar under {count} streams, {rounds} times: {whole} of {count * rounds} whole and byte-equal to one "
        f"node's, {moved:.0f} of them moved; longest gap {max(gaps):.2f} s")
    assert whole == count * rounds
    assert max(gaps) <= 1, gaps


# ---- tenants

def tenants(options):
    prompt = "The same text of two who do not know each other, and who must not learn of each other. " * 3
    with Fleet(options) as fleet:
        def found(tenant):
            before = fleet.sum("vllm:prefix_cache_hits_total")
            fleet.complete(prompt, {"x-tenant-id": tenant}, max_tokens=2)
            return fleet.sum("vllm:prefix_cache_hits_total") - before

        first, second = found("alice"), found("bob")
        time.sleep(0.5)  # events are on their way
        again = found("alice"), found("bob")
        # The router finds them, too: it knows tenants by its own name for them.
        several = [found("alice") for _ in range(5)]
    say(f"two tenants, one prompt of {len(prompt)} tokens: {first:.0f} and {second:.0f} cached across, {again[0]:.0f} and {again[1]:.0f} within; "
        f"5 more of one: {min(several):.0f} at least")
    assert first == second == 0
    assert min(*again, *several) > 0


# ---- cost

def cost(options):
    count = 200 if options.full else 40
    with Fleet(options, nodes=1) as fleet:
        def direct(prompt, **fields):
            fleet.workers[0].node.json("POST", "/v1/completions", {"prompt": prompt, "temperature": 0, **fields})

        def timed(ask):
            prompt, begin = f"Question {random.random()}", time.monotonic()
            ask(prompt, max_tokens=1)
            return time.monotonic() - begin

        pairs = [(timed(fleet.complete), timed(direct)) for _ in range(count)]
    added = statistics.median(a - b for a, b in pairs)
    say(f"one token through frontend and sidecar: {1e3 * statistics.median(a for a, _ in pairs):.1f} ms p50, without "
        f"{1e3 * statistics.median(b for _, b in pairs):.1f} ms; {1e3 * added:.1f} ms more (median of {count} pairs)")
    assert added <= 0.005 or not options.full, added


# ---- front

def front(options):
    if NGINX is None:
        return say("front: there is no nginx")
    with Fleet(options, nodes=1) as fleet:
        node = fleet.workers[0].node
        keys = [subprocess.run([options.binary, "keys", "add", "--name", name, "--print-key-only", "--state-dir", node.state, *more], check=True,
                               capture_output=True, text=True).stdout.strip()
                for name, *more in (("alice",), ("bob", "--tier", "low"), ("carol", "--tier", "high", "--rpm", "2"))]
        nginx, port, log = start_nginx(fleet)

        def ask(key, path="/v1/completions", method="POST", **headers):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            try:
                body = json.dumps({"model": MODEL, "prompt": "Who is there?", "max_tokens": 2, "temperature": 0}) if method == "POST" else None
                bearer = {"Authorization": f"Bearer {key}"} if key else {}
                connection.request(method, path, body, {"Content-Type": "application/json", **bearer, **headers})
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()

        def is_up():
            with contextlib.suppress(OSError):
                return ask(None)[0] == 401  # and the node has seen that there are keys

        try:
            wait_for("nginx", is_up, 30)
            for key in keys:
                wait_for("the keys", lambda: ask(key, "/v1/models", "GET")[0] == 200, 30)
            statuses = [ask(key, **{"x-tenant-id": "mallory", "x-dynamo-request-priority": "1"})[0] for key in (None, "sk-wrong", *keys[:2])]
            assert statuses == [401, 401, 200, 200], (statuses, log.read_text()[-500:])
            for name, kind in (("alice", "normal"), ("bob", "low")):
                wait_for(f"{name}'s request in the log", lambda: node.said(f'"key":"{name}","model":"tiny","class":"{kind}"'), 10)
            assert [ask(keys[2])[0] for _ in range(3)] == [200, 200, 429]
            wait_for("carol's requests in the log", lambda: len(node.said('"key":"carol","model":"tiny","class":"high"')) == 2, 10)
            assert [ask(keys[0], path, "GET")[0] for path in ("/v1/models", "/v1/files", "/metrics", "/admin/keys")] == [200, 200, 404, 404]
        finally:
            nginx.terminate()  # and with it its worker
            nginx.wait()
    say("nginx as shipped: 401 without a key, the key's tenant and class whatever a client says, 429 beyond its limit, files at the node")


# ---- shared

def status_at(port, key, body):
    with contextlib.suppress(OSError):  # nginx is not there yet
        return Front(port, key).ask("POST", "/v1/completions", body)[0]


def kill_under_all(fleet, port, key, expected, lines):
    """A node and its sidecar die under streams and a batch -> (streams that are as they should be, the batch's answers)."""
    jobs = list(wishes(len(expected), 1000))
    texts, times, client = [None] * len(jobs), [[] for _ in jobs], Front(port, key)
    batch = create(client, lines_of(lines, 60))

    def run(number, job):
        texts[number] = fleet.stream(job[0], {"Authorization": f"Bearer {key}"}, times[number], port, **job[1])

    load = threading.Thread(target=at_once, args=(len(jobs), run, jobs))
    load.start()
    wait_for("streams", lambda: all(len(t) > 20 for t in times), 60)
    wait_for("lines", lambda: client.json("GET", f"/v1/batches/{batch}")["request_counts"]["completed"] > 0, 60)
    fleet.workers[0].kill()
    load.join()
    return sum(text == want for text, want in zip(texts, expected)), finished(client, batch, lines)


def shared(options):
    url, streams, lines, rpm = os.environ.get("SKEIN_TEST_STORE"), 6, 200, 12
    if NGINX is None or url is None:
        return say("shared: there is no nginx, or no PostgreSQL")
    with Fleet(options, nodes=1) as alone:
        expected = [alone.stream(prompt, **fields) for prompt, fields in wishes(streams, 1000)]
    answers = reference(options.binary, options.model, options.folder / "alone", lines, 60)
    with Fleet(options, store=schema_of(url, f"dynamo{os.getpid()}")) as fleet:
        key, few = (make_key(options.binary, fleet.store, name, *more) for name, *more in (("alice",), ("carol", "--rpm", str(rpm))))
        nginx, port, _ = start_nginx(fleet)
        body = {"model": MODEL, "prompt": "Who is there?", "max_tokens": 1, "temperature": 0}
        try:
            # A key that was made at none of them is known to all, before nginx and behind it.
            wait_for("nginx", lambda: status_at(port, key, body) == 200, 30)
            for worker in fleet.workers:  # a node that has heard of no key yet lets everybody in
                for one, status in ((None, 401), (key, 200), (few, 200)):
                    wait_for("the keys everywhere", lambda: Front(worker.node.port, one).ask("GET", "/v1/models")[0] == status, 30)
            statuses = [status_at(port, few, body) for _ in range(3 * rpm)]
            whole, said = kill_under_all(fleet, port, key, expected, lines)
        finally:
            nginx.terminate()
            nginx.wait()
    say(f"three nodes on one PostgreSQL behind nginx and Dynamo: {statuses.count(200)} of {len(statuses)} requests of a key of {rpm} a minute; a node killed under "
        f"{streams} streams and a batch of {lines} lines: {whole} streams byte-equal to one node's, {len(said)} lines, each once and as on one node")
    assert set(statuses) == {200, 429} and rpm <= statuses.count(200) <= rpm + 2, statuses  # a minute gives some back meanwhile
    assert whole == streams and said == answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("cases", nargs="*", default=[])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--python", default=str(DYNAMO))
    options = parser.parse_intermixed_args()
    if not pathlib.Path(options.python).exists():
        print(f"fleet dynamo: {options.python} is not there; tools/dynamo_env.sh makes it")
        return 77
    options.folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-dynamo-"))
    try:
        options.model = write_tiny_model(options.folder / MODEL)
        config = json.loads((options.model / "config.json").read_text())
        (options.model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
        # Dynamo takes no model without a template, whatever is asked of it.
        (options.model / "tokenizer_config.json").write_text("{}")
        shutil.copy(HERE.parent / "dialog/templates/no_tools.jinja", options.model / "chat_template.jinja")
        options.tokenizer = options.folder / "tokenizer"
        subprocess.run([options.binary, "export-tokenizer", options.model, options.tokenizer], check=True, stdout=subprocess.DEVNULL)
        for case in options.cases or ["front", "shared", "tenants", "cost", "routing", "kill"]:
            {"routing": routing, "kill": kill, "tenants": tenants, "cost": cost, "front": front, "shared": shared}[case](options)
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
