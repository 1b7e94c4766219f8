#!/usr/bin/env python3
"""PostgreSQL, three nodes and HAProxy with packaging/haproxy/skein.cfg as it is shipped, and what they do together.

    tests/fleet/with_postgres.sh tests/fleet/fleet_test.py build/skein [--chats 30]

It is what `make fleet` runs. Every step says what it saw, a step that is not as it should be ends it, and the last line
is the figure.
"""
import argparse
import collections
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server/batch"))
sys.path.insert(0, str(HERE))
from batch_kill_test import check_output, free_port, lines_of, write_tiny_model  # noqa: E402
from fleet_batch_test import Node, schema_of, wait_for  # noqa: E402

CONFIG = HERE.parents[1] / "packaging/haproxy/skein.cfg"
HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"


class Front:
    """A client of one address, with a key."""

    host = "127.0.0.1"

    def __init__(self, port, key=None):
        self.port, self.key = port, key

    def ask(self, method, path, body=None, content_type="application/json"):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None:
            headers["Content-Type"] = content_type
            body = json.dumps(body) if isinstance(body, (dict, list)) else body
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, method, path, body=None):
        status, _, text = self.ask(method, path, body)
        assert status == 200, f"{method} {path}: {status} {text[:300]}"
        return json.loads(text)

    def upload(self, text):
        line = "fleet-boundary"
        form = (f"--{line}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--{line}\r\nContent-Disposition: "
                f"form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{text}\r\n--{line}--\r\n")
        status, _, answer = self.ask("POST", "/v1/files", form.encode(), f"multipart/form-data; boundary={line}")
        assert status == 200, answer
        return json.loads(answer)["id"]

    def content(self, file):
        return self.ask("GET", f"/v1/files/{file}/content")[2]

    def chat(self, messages):
        """-> the node that answered."""
        status, headers, text = self.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 8, "temperature": 0})
        assert status == 200, f"{status} {text[:300]}"
        return headers["X-Skein-Node"], json.loads(text)


def say(text):
    print(f"fleet: {text}", flush=True)


def make_key(binary, store, name, *more):
    return subprocess.run([binary, "keys", "add", "--store", store, "--name", name, "--print-key-only", *more], check=True,
                          capture_output=True, text=True).stdout.strip()


def start_haproxy(folder, nodes, config=CONFIG):
    port = free_port()
    env = dict(os.environ, FLEET_BIND=f"127.0.0.1:{port}", **{f"FLEET_N{i + 1}": f"127.0.0.1:{node.port}" for i, node in enumerate(nodes)})
    log = open(folder / "haproxy.log", "wb")
    process = subprocess.Popen([HAPROXY, "-db", "-f", str(config)], env=env, stdout=log, stderr=log)
    front = Front(port)
    wait_for("HAProxy", lambda: process.poll() is not None or is_up(front), 30)
    assert process.poll() is None, (folder / "haproxy.log").read_text()
    return process, port


def is_up(front):
    try:
        return front.ask("GET", "/health")[0] == 200
    except OSError:
        return False


def show_conversations(front, chats, turns=3):
    """Turns of a conversation stay on its node, and conversations spread over all of them. A turn that comes while its node still
    counts the one before may be answered elsewhere, since no node gets more than half again its share; that is seldom."""
    moved, places = 0, collections.Counter()
    for chat in range(chats):
        messages, homes = [{"role": "user", "content": f"Conversation {chat} begins."}, {"role": "assistant", "content": "Yes."}], []
        for turn in range(turns):
            messages.append({"role": "user", "content": f"Turn {turn}."})
            node, answer = front.chat(messages)
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or "."})
            homes.append(node)
            places[node] += 1
        moved += len(set(homes)) - 1
    assert len(places) == 3, places
    assert moved <= chats // 4, f"{moved} turns went elsewhere"
    say(f"{chats} conversations of {turns} turns through HAProxy: {moved} turns went elsewhere, {dict(places)}")


def show_files(fronts):
    text = lines_of(2000, 5)
    for i in range(9):
        file = fronts[i % 3].upload(text)
        assert fronts[(i + 1) % 3].content(file) == text.encode(), "another node has another file"
    say("9 files were uploaded at one node and read at the next at once")


def run_batch(front, count):
    """-> how many of its lines each node ran."""
    batch = front.json("POST", "/v1/batches", {"input_file_id": front.upload(lines_of(count, 60)), "endpoint": "/v1/chat/completions",
                                               "completion_window": "24h"})["id"]
    wait_for("the batch", lambda: front.json("GET", f"/v1/batches/{batch}")["status"] == "completed", 300)
    answers = check_output(front, front.json("GET", f"/v1/batches/{batch}"), count)
    return collections.Counter(answer["id"].split("-")[1] for answer in answers.values())


def show_batch(front, count):
    """A node looks for work of others at every tick of its store. A batch that the first one ends before the others have looked
    shows nothing, so the next one is four times as long."""
    for length in (count, 4 * count, 16 * count):
        ran = run_batch(front, length)
        if len(ran) > 1:
            say(f"a batch of {length} lines ran on {dict(ran)}")
            return
    raise AssertionError(f"one node ran all of a batch: {ran}")


def show_requests(front):
    """What is asked about a request goes to its node."""
    for turn in range(3):
        _, answer = front.chat([{"role": "user", "content": f"Ask about {turn}"}])
        status, headers, _ = front.ask("GET", f"/v1/requests/{answer['id']}")
        assert headers["X-Skein-Node"] == answer["id"].split("-")[1], (status, answer["id"], headers["X-Skein-Node"])
    assert front.ask("GET", "/metrics")[0] == 404 and front.ask("GET", "/admin/stats")[0] == 404
    say("requests are asked about at their nodes; /admin and /metrics are not to be had")


def show_limits(binary, store, nodes):
    """30 a minute at three nodes at once are 30, and what came in the meantime."""
    key = make_key(binary, store, "limited", "--rpm", "30")
    fronts = [Front(node.port, key) for node in nodes]
    wait_for("the key", lambda: all(front.ask("GET", "/v1/models")[0] == 200 for front in fronts), 5)
    admitted, began = [0], time.monotonic()

    def knock(front):
        for _ in range(30):
            status, headers, _ = front.ask("GET", "/v1/auth/check")
            assert status in (200, 429), status
            if status == 200:
                assert headers["X-Tenant-Id"] and headers["X-Request-Priority"] == "normal"
                admitted[0] += 1

    threads = [threading.Thread(target=knock, args=(front,)) for front in fronts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    most = 30 + (time.monotonic() - began) / 2
    assert 30 <= admitted[0] <= most, f"{admitted[0]} were admitted, and {most:.1f} is the most"
    say(f"a key of 30 requests a minute got {admitted[0]} of 90 at three nodes at once")


def show_revoked(binary, store, nodes):
    key = make_key(binary, store, "short-lived")
    fronts = [Front(node.port, key) for node in nodes]
    wait_for("the key", lambda: all(front.ask("GET", "/v1/models")[0] == 200 for front in fronts), 5)
    subprocess.run([binary, "keys", "revoke", "--store", store, "short-lived"], check=True, capture_output=True)
    began = time.monotonic()
    wait_for("the end of the key", lambda: all(front.ask("GET", "/v1/models")[0] == 401 for front in fronts), 5)
    took_s = time.monotonic() - began
    assert took_s <= 1, f"a revoked key was taken for {took_s:.2f} s"
    say(f"a revoked key was refused everywhere within {took_s:.2f} s")
    return took_s


def show_broken_connections(fronts, url):
    """Every connection of every node breaks; they are made anew, from within the sandbox, by socket and by TCP."""
    subprocess.run(["psql", "-q", url, "-o", "/dev/null", "-c",
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'skein'"], check=True)
    for front in fronts:
        front.chat([{"role": "user", "content": "Without a store"}])  # answers need none
        wait_for("the store", lambda: front.ask("GET", "/v1/batches")[0] == 200, 10)
        wait_for("uploads", lambda: front.upload(lines_of(3, 3)), 10)
    say("every connection to PostgreSQL was cut: answers went on, and the nodes connected anew")


def show_death(front, victim, requests=60):
    """Plain requests go on while a node is killed: what had begun on it may be cut, what comes later is answered elsewhere."""
    failed, killed_at = [], [float("inf")]

    def one(i):
        began = time.monotonic()
        try:
            front.chat([{"role": "user", "content": f"While a node dies {i}"}])
        except (AssertionError, OSError, http.client.HTTPException) as error:
            failed.append((began, str(error)))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(requests)]
    for i, thread in enumerate(threads):
        if i == requests // 3:
            killed_at[0] = time.monotonic()
            victim.process.send_signal(signal.SIGKILL)
            victim.process.wait()
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    late = [error for began, error in failed if began > killed_at[0]]
    assert not late, late[:3]
    assert len(failed) <= requests // 3, failed[:3]
    for i in range(20):
        front.chat([{"role": "user", "content": f"After it died {i}"}])
    say(f"a node was killed under load: {len(failed)} of {requests} requests ended with it, the next 20 were answered")


def run(options, folder, store):
    binary = options.binary
    key = make_key(binary, store, "chat")
    model = write_tiny_model(folder / "tiny")
    over_tcp = store.replace(os.environ["SKEIN_TEST_STORE"], os.environ["SKEIN_TEST_STORE_TCP"])
    nodes = [Node(binary, model, folder / name, name, over_tcp if name == "n2" else store, 5) for name in ("n1", "n2", "n3")]
    haproxy = None
    try:
        for node in nodes:
            node.start()
        haproxy, port = start_haproxy(folder, nodes)
        say(f"PostgreSQL, 3 nodes and HAProxy at http://127.0.0.1:{port}")
        front, fronts = Front(port, key), [Front(node.port, key) for node in nodes]
        show_conversations(front, options.chats)
        show_files(fronts)
        show_requests(front)
        show_batch(front, options.lines)
        show_limits(binary, store, nodes)
        revoked_s = show_revoked(binary, store, nodes)
        show_broken_connections(fronts, store)
        for node in nodes:
            assert node.said("sandbox: "), "it runs without a sandbox"
        show_death(front, nodes[2])
        nodes[0].stop()
        say("a node that is stopped ends in good order")
        print(f"fleet: 3 nodes behind HAProxy: {options.chats} conversations had their nodes, a batch on several, "
              f"limits exact, a revoked key refused within {revoked_s:.2f} s, a kill survived")
    except BaseException:
        for node in nodes:
            sys.stderr.write(f"--- {node.name}\n{node.path.read_text(errors='replace')[-3000:]}\n")
        raise
    finally:
        if haproxy:
            haproxy.terminate()
            haproxy.wait()
        for node in nodes:
            node.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--chats", type=int, default=30)
    parser.add_argument("--lines", type=int, default=120)
    options = parser.parse_args()
    url = os.environ.get("SKEIN_TEST_STORE")
    if not url:
        sys.exit("fleet: run it with tests/fleet/with_postgres.sh")
    if not os.access(HAPROXY, os.X_OK):
        print("fleet: there is no haproxy; tools/setup.sh fleet installs it")
        return 1 if os.environ.get("SKEIN_REQUIRE") == "all" else 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-fleet-"))
    try:
        run(options, folder, schema_of(url, "fleet"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
