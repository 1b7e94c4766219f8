#!/usr/bin/env python3
"""Nodes whose store is away.

    tests/fleet/fleet_away_test.py build/skein [partition freeze gone] [--full]

    partition  a node is cut off from PostgreSQL and still asked by clients (needs root: a network namespace)
    freeze     PostgreSQL stands still with its connections open: answers go on
    gone       PostgreSQL is killed: nodes say so all the while, take keys for --store-grace and nobody after it

Each says its figure; --full is the long form.
"""
import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server/batch"))
sys.path.insert(0, str(HERE))
from batch_kill_test import lines_of  # noqa: E402
from fleet_batch_test import Node, reference, wait_for  # noqa: E402
from fleet_store_test import LEASE_S, Place, counts, create, finished, is_back, run_cases  # noqa: E402
from fleet_test import Front, make_key  # noqa: E402
from postgres import Postgres  # noqa: E402


def say(text):
    print(f"fleet away: {text}", flush=True)


class Namespace:
    """A network of its own with two ways out: 10.231.0.1 to the store, 10.231.1.1 to clients."""

    NAME = f"skein{os.getpid()}"

    def __enter__(self):
        commands = [f"ip netns add {self.NAME}"]
        for i, kind in enumerate("sc"):
            out, into = f"sk{kind}o{os.getpid() % 100000}", f"sk{kind}i{os.getpid() % 100000}"
            commands += [f"ip link add {out} type veth peer name {into}", f"ip link set {into} netns {self.NAME}",
                         f"ip addr add 10.231.{i}.1/30 dev {out}", f"ip link set {out} up",
                         f"ip netns exec {self.NAME} ip addr add 10.231.{i}.2/30 dev {into}",
                         f"ip netns exec {self.NAME} ip link set {into} up"]
        commands.append(f"ip netns exec {self.NAME} ip link set lo up")
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True)
            if done.returncode != 0:
                self.__exit__()
                raise PermissionError(f"{command}: {done.stderr.strip()}")
        return self

    def cut(self):
        subprocess.run(["ip", "link", "set", f"skso{os.getpid() % 100000}", "down"], check=True)

    def mend(self):
        subprocess.run(["ip", "link", "set", f"skso{os.getpid() % 100000}", "up"], check=True)

    def __exit__(self, *_):
        for kind in "sc":
            subprocess.run(["ip", "link", "del", f"sk{kind}o{os.getpid() % 100000}"], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.NAME], capture_output=True)


class FarNode(Node):
    """In the namespace."""

    HOST = "10.231.1.2"

    def __init__(self, binary, model, folder, name, store, lease_s):
        super().__init__(binary, model, folder, name, store.replace("127.0.0.1", "10.231.0.1"), lease_s)
        self.command = ["ip", "netns", "exec", Namespace.NAME, *self.command, "--host", self.HOST]

    def ask(self, method, path, body=None, content_type="application/json"):
        front = Front(self.port)
        front.host = self.HOST
        status, _, text = front.ask(method, path, body, content_type)
        return status, text


class Hammer:
    """One client that asks without end; what it was answered."""

    def __init__(self, ask):
        self.statuses, self.failures, self.running = [], [], True
        self.thread = threading.Thread(target=self._run, args=(ask,))
        self.thread.start()

    def _run(self, ask):
        while self.running:
            try:
                self.statuses.append(ask())
            except (AssertionError, OSError, http.client.HTTPException) as error:
                self.failures.append(str(error))
            time.sleep(0.01)

    def stop(self):
        self.running = False
        self.thread.join()
        return self

    def admitted(self):
        return sum(status == 200 for status in self.statuses)


def partition(options, folder):
    """E13."""
    cut_s, count, tokens, rpm = (30, 600, 120, 120) if options.full else (6, 100, 100, 60)
    try:
        namespace = Namespace().__enter__()
    except (PermissionError, FileNotFoundError) as error:
        return say(f"partition: not run, it needs root and network namespaces ({error})")
    with contextlib.ExitStack() as stack:
        stack.push(namespace)
        postgres = stack.enter_context(Postgres("listen_addresses=127.0.0.1,10.231.0.1", networks=["10.231.0.0/16"]).make().start())
        limited = make_key(options.binary, postgres.url(), "limited", "--rpm", str(rpm))
        place = stack.enter_context(Place(options, postgres.url(), folder, FarNode))
        place.start()
        asking = place.clients(limited)
        near, far = place.fronts[0], place.fronts[2]
        wait_for("the keys", lambda: all(front.ask("GET", "/v1/models")[0] == 200 for front in asking), 5)
        batch = create(near, lines_of(count, tokens))
        wait_for("lines to end", lambda: counts(near, batch) >= count // 8)
        began = time.monotonic()
        namespace.cut()
        chats = Hammer(lambda: far.chat([{"role": "user", "content": "Far away"}]) and 200)
        knocks = [Hammer(lambda front=front: front.ask("GET", "/v1/auth/check")[0]) for front in asking]
        while time.monotonic() - began < cut_s:
            time.sleep(0.1)
        taken = sum(knock.stop().admitted() for knock in knocks)
        spent_s = time.monotonic() - began
        chats.stop()
        answers = finished(near, batch, count)  # without the node that is cut off
        namespace.mend()
        wait_for("the far node", lambda: far.ask("GET", "/v1/batches")[0] == 200, 30)
        back_s = time.monotonic() - began - spent_s
        assert not chats.failures and chats.admitted() > 0, chats.failures[:3]
        refused = [failure for knock in knocks for failure in knock.failures]
        assert not refused, refused[:3]
        refill = rpm * spent_s / 60
        most = rpm + refill + (rpm + refill) / 3
        assert rpm <= taken <= most + 1, f"{taken} were admitted, and {most:.0f} is the most"
        lost = place.nodes[0].said(r"(\d+) servers let their leases end") + place.nodes[1].said(r"(\d+) servers let their leases end")
        assert lost, "nobody took its lines over"
        assert answers == reference(options.binary, options.model, folder / "alone", count, tokens), "an answer differs from one node's"
    say(f"partition: a node was cut off for {spent_s:.0f} s: {chats.admitted()} of {chats.admitted()} of its answers came, the others "
        f"finished its lines, {taken} requests of a key were admitted (limit and refill {rpm + refill:.0f}, its local share "
        f"{(rpm + refill) / 3:.0f}), back within {back_s:.1f} s")


def freeze(options, folder):
    """PostgreSQL takes what is sent and says nothing: connections stay open, no error tells of it."""
    frozen_s = 60 if options.full else 6
    with Postgres().make().start() as postgres, Place(options, postgres.url(), folder) as place:
        limited = make_key(options.binary, postgres.url(), "limited", "--rpm", "100000")
        place.start()
        asking = place.clients(limited)
        wait_for("the key", lambda: all(front.ask("GET", "/v1/models")[0] == 200 for front in asking), 5)
        postgres.freeze()
        began, slowest = time.monotonic(), 0.0
        asked = 0
        try:
            while time.monotonic() - began < frozen_s:
                for front in asking:
                    at = time.monotonic()
                    front.chat([{"role": "user", "content": "While it stands still"}])
                    slowest, asked = max(slowest, time.monotonic() - at), asked + 1
        finally:
            postgres.thaw()
        thawed = time.monotonic()
        for front in place.fronts:
            wait_for("the store", lambda: is_back(front), 30)
        back_s = time.monotonic() - thawed
        assert slowest <= 5, f"an answer took {slowest:.1f} s"
    say(f"freeze: PostgreSQL stood still for {frozen_s} s: {asked} of {asked} answers of a key with limits, the slowest in {slowest:.1f} s; "
        f"back within {back_s:.1f} s")


def gone(options, folder):
    """Keys count as they were last, for as long as somebody wanted it."""
    grace_s, gone_s = (10, 20) if options.full else (2, 6)
    with Postgres().make().start() as postgres, Place(options, postgres.url(), folder) as place:
        for node in place.nodes:
            node.command += ["--store-grace", str(grace_s)]
        place.start()
        postgres.kill()
        began, degraded, taken = time.monotonic(), {}, []
        while (since := time.monotonic() - began) < gone_s:
            for front in place.fronts:
                health = json.loads(front.ask("GET", "/health")[2])["status"]
                if health == "degraded":
                    degraded.setdefault(front, since)
                assert health == "degraded" or front not in degraded, f"after {since:.1f} s a node says {health} again"
                status = front.ask("GET", "/v1/models")[0]
                assert status in (200, 503), status
                taken += [since] if status == 200 else []
            time.sleep(0.05)
        postgres.start()
        for front in place.fronts:
            wait_for("the store", lambda: is_back(front), 30)
            assert front.ask("GET", "/v1/models")[0] == 200
        assert len(degraded) == 3 and grace_s <= max(taken) <= grace_s + 3, f"keys were taken for {max(taken):.1f} s of {grace_s}"
    say(f"gone: PostgreSQL was dead for {gone_s} s: degraded after {max(degraded.values()):.1f} s and from then on, keys were taken for "
        f"{max(taken):.1f} s of {grace_s}, and then again")


CASES = {"partition": partition, "freeze": freeze, "gone": gone}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, "fleet away"))
