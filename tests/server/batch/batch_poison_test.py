#!/usr/bin/env python3
"""Kills a real server whenever one certain line of a batch runs, and while it loads a certain model.

    batch_poison_test.py BINARY

The line must be told from its neighbours and fail; they must not. Orderly stops count nothing. A model whose load killed the
server is refused until it is forced or its files change.
"""
import json
import os
import pathlib
import shutil
import sqlite3
import sys
import tempfile
import time

from batch_kill_test import URL, Server, lines_of, write_tiny_model

LINES = 7
POISON = 3
PATIENCE_S = 120


def running(server):
    """(line, alone) of every line that a server has claimed."""
    with sqlite3.connect(f"file:{server.state}/skein.db?mode=ro", uri=True) as db:
        return [(line, mark == 1) for line, mark in
                db.execute("SELECT line, alone FROM batch_lines WHERE epoch IS NOT NULL AND status_code IS NULL")]


def wait_until(condition, what):
    until = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < until, what
        time.sleep(0.002)
    return value


def stops_count_nothing(server, batch):
    for _ in range(3):
        wait_until(lambda: running(server), "no line runs")
        server.stop()
        assert not running(server), "a claim outlived an orderly stop"
        with server.database() as db:
            assert db.execute("SELECT count(*) FROM batch_lines WHERE deaths != 0").fetchone()[0] == 0
        server.start()
    assert server.batch(batch)["request_counts"]["failed"] == 0


def poison(server):
    batch = server.create(server.upload(lines_of(LINES, 900)))
    stops_count_nothing(server, batch)
    seen = []
    for _ in range(3):
        seen.append(wait_until(lambda: [r for r in [running(server)] if POISON in dict(r)],
                               f"line {POISON} does not run")[0])
        server.kill()
        server.start()
    assert len(seen[0]) > 1, seen
    assert seen[1] == seen[2] == [(POISON, True)], f"it was not alone: {seen}"
    record = server.wait(batch, {"completed"})
    assert record["request_counts"] == {"total": LINES, "completed": LINES - 1, "failed": 1}, record
    failed = json.loads(server.content(record["error_file_id"]))
    assert failed["custom_id"] == f"c{POISON - 1}", failed
    assert failed["response"]["body"]["error"]["code"] == "request_crashed_server", failed
    return seen


def die_while_loading(server, model):
    """Asks for the model and kills the server before the load has ended."""
    for _ in range(20):
        lock = sqlite3.connect(server.state / "skein.db", isolation_level=None, timeout=30)
        batch = server.create(server.upload(line_for(model)))
        loading = "SELECT count(*) FROM model_loads WHERE path LIKE ? AND quarantined = 0"
        wait_until(lambda: lock.execute(loading, (f"%{model}%",)).fetchone()[0] or
                   server.batch(batch)["status"] == "completed", "the load does not begin")
        lock.execute("BEGIN IMMEDIATE")  # its end cannot be written any more
        caught = lock.execute(loading, (f"%{model}%",)).fetchone()[0]
        if caught:
            server.process.kill()
            server.process.wait()
        lock.execute("ROLLBACK")
        lock.close()
        server.stop() if not caught else None
        server.start()
        if caught:
            return batch
    raise AssertionError("the load was always too fast")


def line_for(model):
    body = {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}
    return json.dumps({"custom_id": "c", "method": "POST", "url": URL, "body": body}) + "\n"


def check_refused(server, batch):
    record = server.wait(batch, {"completed"}, PATIENCE_S)
    assert record["request_counts"] == {"total": 1, "completed": 0, "failed": 1}, record
    body = json.loads(server.content(record["error_file_id"]))["response"]["body"]
    assert body["error"]["code"] == "model_load_failed", body


def quarantine(server, folder):
    batch = die_while_loading(server, "second")
    check_refused(server, batch)  # the line was there at a death; its model is not tried again
    check_refused(server, server.create(server.upload(line_for("second"))))
    server.kill()
    server.start()
    check_refused(server, server.create(server.upload(line_for("second"))))
    os.utime(folder / "models/second/config.json")
    record = server.wait(server.create(server.upload(line_for("second"))), {"completed"}, PATIENCE_S)
    assert record["request_counts"]["completed"] == 1, record


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-poison-"))
    (folder / "models").mkdir()
    write_tiny_model(folder / "models" / "second")
    server = Server(sys.argv[1], write_tiny_model(folder / "tiny"), folder)
    server.command += ["--model-folder", str(folder / "models")]
    try:
        server.start()
        seen = poison(server)
        quarantine(server, folder)
        server.stop()
    except BaseException:
        sys.stderr.write(os.fsdecode((folder / "log").read_bytes()[-4000:]))
        if server.process is not None and server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        raise
    finally:
        server.log.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"line {POISON} of {LINES} failed after {len(seen)} deaths, the others did not; the model is quarantined")
    return 0


if __name__ == "__main__":
    sys.exit(main())
