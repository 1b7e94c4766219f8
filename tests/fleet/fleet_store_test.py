#!/usr/bin/env python3
"""What a fleet's store survives.

    tests/fleet/fleet_store_test.py build/skein [deaths files failover] [--full]

    deaths     all nodes and PostgreSQL are killed at once, again and again: nothing that was acknowledged is lost
    files      uploaded at one node and read at another at once; a large one both ways in little memory
    failover   the primary is killed and the standby promoted: the fleet goes on within 10 s, with all that was acknowledged

Each says its figure; --full is the long form.
"""
import argparse
import contextlib
import hashlib
import http.client
import itertools
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server/batch"))
sys.path.insert(0, str(HERE))
from batch_kill_test import URL, check_output, lines_of, write_tiny_model  # noqa: E402
from fleet_batch_test import Node, choices_of, reference, wait_for  # noqa: E402
from fleet_test import Front, make_key  # noqa: E402
from postgres import Postgres, binaries  # noqa: E402

MiB = 1 << 20
LEASE_S = 2


def say(text):
    print(f"fleet store: {text}", flush=True)


class Place:
    """Three nodes on a store, a key, and a client for each."""

    def __init__(self, options, url, folder, third=Node):
        self.key = make_key(options.binary, url, "tests")
        self.nodes = [kind(options.binary, options.model, folder / name, name, url, LEASE_S)
                      for name, kind in (("n1", Node), ("n2", Node), ("n3", third))]
        self.fronts = self.clients(self.key)

    def clients(self, key):
        fronts = [Front(node.port, key) for node in self.nodes]
        fronts[2].host = getattr(self.nodes[2], "HOST", fronts[2].host)
        return fronts

    def start(self):
        for node in self.nodes:
            node.start()

    def kill(self):
        for node in self.nodes:
            node.process.kill()
        for node in self.nodes:
            node.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for node in self.nodes:
            node.end()
            if kind is not None:
                sys.stderr.write(f"--- {node.name}\n{node.path.read_text(errors='replace')[-2000:]}\n")


def create(front, lines):
    body = {"input_file_id": front.upload(lines), "endpoint": URL, "completion_window": "24h"}
    return front.json("POST", "/v1/batches", body)["id"]


def counts(front, batch):
    return front.json("GET", f"/v1/batches/{batch}")["request_counts"]["completed"]


def finished(front, batch, count, seconds=300):
    wait_for("the batch", lambda: front.json("GET", f"/v1/batches/{batch}")["status"] == "completed", seconds)
    return choices_of(check_output(front, front.json("GET", f"/v1/batches/{batch}"), count))


class Uploads:
    """Clients that upload small files until they are told to stop, and what they were told is kept."""

    def __init__(self, fronts):
        self.kept, self.running = {}, True
        self.threads = [threading.Thread(target=self._run, args=(i, front)) for i, front in enumerate(fronts)]
        for thread in self.threads:
            thread.start()

    def _run(self, i, front):
        for n in itertools.count():
            if not self.running:
                return
            text = lines_of(3, 3) + f'{{"custom_id": "{i}.{n}"}}\n'
            try:
                self.kept[front.upload(text)] = text
            except (AssertionError, OSError, http.client.HTTPException):
                time.sleep(0.02)

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()

    def check(self, front):
        for file, text in self.kept.items():
            assert front.content(file) == text.encode(), f"{file} was acknowledged and is gone"
        return len(self.kept)


def deaths(options, folder):
    """E2. Every round: uploads and a batch run, everything is killed, and all that was told is there afterwards."""
    rounds, count, tokens = (10 if options.full else 1), 60, 60
    rng = random.Random(options.seed)
    expected = reference(options.binary, options.model, folder / "alone", count, tokens)
    kept = 0
    with Postgres().make().start() as postgres, Place(options, postgres.url(), folder) as place:
        for turn in range(rounds):
            place.start()
            first, last = place.fronts[0], place.fronts[2]
            batch = create(first, lines_of(count, tokens))
            uploads = Uploads(place.fronts)
            made = make_key(options.binary, postgres.url(), f"made{turn}")
            target = rng.uniform(0.1, 0.7) * count
            wait_for("lines to end", lambda: counts(first, batch) >= target)
            seen = counts(last, batch)
            time.sleep(rng.random() * 0.05)
            for victim in rng.sample([postgres.kill, place.kill], 2):  # which comes first is chance
                victim()
            uploads.stop()
            postgres.start()
            place.start()
            assert counts(first, batch) >= seen, f"{seen} lines were done and now {counts(first, batch)} are"
            kept += uploads.check(place.fronts[rng.randrange(3)])
            assert Front(place.nodes[1].port, made).ask("GET", "/v1/models")[0] == 200, "a key is gone"
            assert finished(last, batch, count) == expected, "an answer differs from one node's"
            postgres.check()
            if turn + 1 < rounds:
                place.kill()
    say(f"deaths: everything was killed {rounds} times: {kept} uploads, {rounds} keys and {rounds} batches of {count} lines that were "
        f"acknowledged are all there, each line once and as on one node, the database is sound")


# A form around a file.
HEAD = (b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name="file"; '
        b'filename="large.jsonl"\r\n\r\n')
TAIL = b"\r\n--b--\r\n"


def chunks_of(size):
    for i in range(size // MiB):
        yield hashlib.sha256(i.to_bytes(8, "big")).digest() * (MiB // 32)


def high_water(node):
    """Resident bytes: the most since reset_high_water()."""
    for line in pathlib.Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def reset_high_water(node):
    pathlib.Path(f"/proc/{node.process.pid}/clear_refs").write_text("5")
    return high_water(node)


def upload_large(front, size):
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=300)
    try:
        connection.putrequest("POST", "/v1/files")
        connection.putheader("Authorization", f"Bearer {front.key}")
        connection.putheader("Content-Type", "multipart/form-data; boundary=b")
        connection.putheader("Content-Length", str(len(HEAD) + size + len(TAIL)))
        connection.endheaders()
        connection.send(HEAD)
        for chunk in chunks_of(size):
            connection.send(chunk)
        connection.send(TAIL)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text[:300]
        return json.loads(text)["id"]
    finally:
        connection.close()


def read_large(front, file):
    digest, size = hashlib.sha256(), 0
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=300)
    try:
        connection.request("GET", f"/v1/files/{file}/content", headers={"Authorization": f"Bearer {front.key}"})
        answer = connection.getresponse()
        assert answer.status == 200
        while chunk := answer.read(MiB):
            digest.update(chunk)
            size += len(chunk)
    finally:
        connection.close()
    return size, digest.hexdigest()


def files(options, folder):
    """E5."""
    size, small = (512 if options.full else 96) * MiB, (100 if options.full else 40)
    with Postgres("max_wal_size=256MB").make().start() as postgres, Place(options, postgres.url(), folder) as place:
        place.start()
        for i in range(small):
            text = lines_of(2 + i % 5, 3)
            assert place.fronts[2].content(place.fronts[0].upload(text)) == text.encode(), f"file {i} differs at the other node"
        # The database has its own limit of one body; what counts here is what a node keeps of it.
        before = [reset_high_water(node) for node in place.nodes]
        began = time.monotonic()
        file = upload_large(place.fronts[0], size)
        up_s = time.monotonic() - began
        expected = hashlib.sha256()
        for chunk in chunks_of(size):
            expected.update(chunk)
        began = time.monotonic()
        assert read_large(place.fronts[2], file) == (size, expected.hexdigest()), "the large file differs"
        down_s = time.monotonic() - began
        grown = max(high_water(node) - was for node, was in zip(place.nodes, before))
        assert grown <= 64 * MiB, f"a node grew by {grown / MiB:.0f} MiB"
    say(f"files: {small} of {small} read at another node right after the 200; {size // MiB} MiB up in {up_s:.1f} s and down in {down_s:.1f} s, "
        f"nodes grew by {grown / MiB:.0f} MiB")


def failover(options, folder):
    """E12. Commits wait for the standby, so what was acknowledged is there."""
    count, tokens = (600, 120) if options.full else (100, 60)
    expected = reference(options.binary, options.model, folder / "alone", count, tokens)
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(Postgres().make().start())
        standby = stack.enter_context(Postgres())
        standby.copy_of(primary).start()
        primary.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.query("SELECT pg_reload_conf()")
        wait_for("the standby", lambda: primary.query("SELECT sync_state FROM pg_stat_replication") == "sync", 30)
        place = stack.enter_context(Place(options, primary.url(standby), folder))
        place.start()
        first = place.fronts[0]
        batch = create(first, lines_of(count, tokens))
        uploads = Uploads(place.fronts)
        wait_for("lines to end", lambda: counts(first, batch) >= count // 4)
        seen = counts(first, batch)
        killed = time.monotonic()
        primary.kill()
        standby.promote()
        for front in place.fronts:
            first.chat([{"role": "user", "content": "Nobody waits for a store"}])
            wait_for("the new primary", lambda: is_back(front), 30)
        back_s = time.monotonic() - killed
        uploads.stop()
        assert back_s <= 10, f"it took {back_s:.1f} s"
        assert counts(first, batch) >= seen, "lines that had ended are to be run again"
        kept = uploads.check(place.fronts[2])
        assert finished(first, batch, count) == expected, "an answer differs from one node's"
    say(f"failover: back {back_s:.1f} s after the primary was killed; 0 of {kept} uploads and {seen} results lost, "
        f"{count} lines as on one node")


def is_back(front):
    try:
        return bool(front.upload(lines_of(1, 1)))
    except AssertionError:
        return False


CASES = {"deaths": deaths, "files": files, "failover": failover}


def run_cases(cases, title):
    """The command line of this file and of those like it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("cases", nargs="*", choices=[*cases, []])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_intermixed_args()
    if binaries() is None:
        print(f"{title}: there is no PostgreSQL; tools/setup.sh fleet installs it")
        return 1 if os.environ.get("SKEIN_REQUIRE") == "all" else 77
    print(f"seed {options.seed}", flush=True)
    for name in options.cases or cases:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"skein-{name}-"))
        try:
            options.model = write_tiny_model(folder / "tiny")
            cases[name](options, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_cases(CASES, "fleet store"))
