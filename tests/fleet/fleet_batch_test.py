#!/usr/bin/env python3
"""A batch on three nodes that share a PostgreSQL: one is killed, another stands still for three leases.

    tests/fleet/with_postgres.sh tests/fleet/fleet_batch_test.py build/skein [--lines 2000] [--seeds 1] [--seed N]

Every line must have exactly one result, those that ran at the kill and at the freeze are run again and no others, and
the answers must be byte for byte those of one node on a folder of its own. The last line is the figure.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server/batch"))
from batch_kill_test import Server, lines_of, write_tiny_model, check_output  # noqa: E402

BATCH_LINES = 4


class Node(Server):
    """A server on the shared store, or on a folder of its own where there is no `store`."""

    def __init__(self, binary, model, folder, name, store=None, lease_s=2):
        folder.mkdir()
        super().__init__(binary, model, folder)
        self.name, self.path = name, folder / "log"
        self.command += ["--batch-lines", str(BATCH_LINES), "--batch-max-batch-size", str(BATCH_LINES)]
        if store:
            self.command += ["--store", store, "--node", name, "--store-lease", str(lease_s)]

    def said(self, pattern):
        return re.findall(pattern, self.path.read_text(errors="replace"))

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        self.log.close()


def choices_of(answers):
    return {line: json.dumps(answer["choices"]) for line, answer in answers.items()}


def schema_of(url, name):
    """A place of its own in the database."""
    subprocess.run(["psql", "-q", url, "-c", f"CREATE SCHEMA {name}"], check=True)
    return f"{url}&options=-csearch_path%3D{name}"


def wait_for(what, condition, seconds=600):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def reference(binary, model, folder, count, tokens):
    node = Node(binary, model, folder, "alone")
    try:
        node.start()
        batch = node.create(node.upload(lines_of(count, tokens)))
        return choices_of(check_output(node, node.wait(batch, {"completed"}), count))
    finally:
        node.end()


class Fleet:
    def __init__(self, binary, model, folder, store, lease_s):
        self.lease_s = lease_s
        self.nodes = [Node(binary, model, folder / name, name, store, lease_s) for name in ("n1", "n2", "n3")]

    def start(self):
        for node in self.nodes:
            node.start()

    def end(self):
        for node in self.nodes:
            node.end()

    def given_away(self):
        """Lines that were taken from nodes whose leases had ended."""
        return sum(int(n) for node in self.nodes for n in node.said(r"let their leases end; (\d+) of their lines"))

    def endings(self):
        return sum(int(n) for node in self.nodes for n in node.said(r"(\d+) servers let their leases end"))


def one_run(fleet, rng, count, tokens):
    """What one batch shows: its answers, seconds until the killed node's lines were others', lines run again."""
    first, killed, frozen = fleet.nodes
    batch = first.create(first.upload(lines_of(count, tokens)))
    done = lambda: first.batch(batch)["request_counts"]["completed"]
    at = sorted(rng.uniform(0.05, 0.5) * count for _ in range(2))
    wait_for("lines to end", lambda: done() >= at[0])
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    since, taken_over_s = time.monotonic(), None

    def is_taken_over():
        nonlocal taken_over_s
        if taken_over_s is None and fleet.endings() >= 1:
            taken_over_s = time.monotonic() - since
        return taken_over_s is not None

    wait_for("more lines to end", lambda: (is_taken_over(), done() >= at[1])[1])
    frozen.process.send_signal(signal.SIGSTOP)
    stood = time.monotonic()
    wait_for("the takeover", is_taken_over, 60)
    wait_for("the end of three leases", lambda: time.monotonic() - stood > 3 * fleet.lease_s)
    frozen.process.send_signal(signal.SIGCONT)
    record = first.wait(batch, {"completed"})
    answers = check_output(first, record, count)
    wait_for("the frozen node to see its end", lambda: frozen.said("other servers have taken its lines over"), 60)
    late = sum(len(node.said("came too late")) for node in fleet.nodes)
    return choices_of(answers), taken_over_s, fleet.given_away(), late


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--lines", type=int, default=160)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--lease", type=int, default=2, help="seconds")
    options = parser.parse_args()
    url = os.environ.get("SKEIN_TEST_STORE")
    if not url:
        sys.exit("fleet_batch: run it with tests/fleet/with_postgres.sh")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-fleet-"))
    model = write_tiny_model(folder / "tiny")
    again, late, slowest = 0, 0, 0.0
    try:
        expected = reference(options.binary, model, folder / "alone", options.lines, options.tokens)
        for turn in range(options.seeds):
            seed = options.seed + turn
            print(f"seed {seed}", flush=True)
            (folder / f"run{turn}").mkdir()
            fleet = Fleet(options.binary, model, folder / f"run{turn}", schema_of(url, f"run{turn}"), options.lease)
            try:
                fleet.start()
                choices, taken_over_s, given, refused = one_run(fleet, random.Random(seed), options.lines, options.tokens)
            except BaseException:
                for node in fleet.nodes:
                    sys.stderr.write(f"--- {node.name}\n{node.path.read_text(errors='replace')[-3000:]}\n")
                raise
            finally:
                fleet.end()
            assert choices == expected, "an answer differs from one node's"
            assert given <= 2 * BATCH_LINES, f"{given} lines were run again, and 8 ran on the two nodes"
            assert taken_over_s <= 1.5 * options.lease + 1, f"the takeover took {taken_over_s:.1f} s"
            again, late, slowest = again + given, late + refused, max(slowest, taken_over_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"fleet batch: {options.seeds} runs of {options.lines} lines on 3 nodes with a kill and a freeze: 0 lost, 0 twice, "
          f"all byte-equal to one node's; {again} run again, {late} late results refused, taken over within {slowest:.1f} s "
          f"(lease {options.lease} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
