#!/usr/bin/env python3
"""Kills a real server with SIGKILL at random moments of a batch and holds it to its word.

    batch_kill_test.py BINARY [--lines 60] [--kills 6] [--model MODEL] [--seed N]

What must be true after every kill: the database is sound, no result that was stored has changed or
gone, nothing that a client was told is taken back. In the end every line has exactly one result and
request_counts says so. Uploads, creations, cancellations and expiries are killed in the middle, too.

Without --model a tiny model with random weights answers.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parents[2] / "build" / "goldens" / "llama"
URL = "/v1/chat/completions"
BOUNDARY = "skein-kill-test"


def write_tiny_model(folder):
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, folder / name)
    shutil.copy(HERE.parent / "byte_tokenizer.json", folder / "tokenizer.json")
    return folder


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """The binary on one state folder, started as often as it is killed."""

    def __init__(self, binary, model, folder):
        self.state = folder / "state"
        self.log = open(folder / "log", "ab")
        self.port = free_port()
        self.command = [binary, "serve", "--model", str(model), "--port", str(self.port),
                        "--state-dir", str(self.state), "--threads", "1",
                        "--batch-block-pool-size", "256"]
        self.process = None
        self.kills = 0

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}")
            try:
                if self.ask("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError("the server does not become ready")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1
        with self.database() as db:
            verdict = db.execute("PRAGMA integrity_check").fetchone()[0]
        assert verdict == "ok", verdict

    def stop(self):
        self.process.terminate()
        status = self.process.wait(timeout=60)
        assert status == 0, f"SIGTERM: exit status {status}"

    def database(self):
        return sqlite3.connect(self.state / "skein.db")

    def ask(self, method, path, body=None, content_type="application/json"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": content_type} if body is not None else {}
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    def json(self, method, path, body=None):
        status, text = self.ask(method, path, None if body is None else json.dumps(body))
        assert status == 200, f"{method} {path}: {status} {text[:300]}"
        return json.loads(text)

    def upload(self, text):
        form = (f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
                f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; "
                f"filename=\"in.jsonl\"\r\n\r\n{text}\r\n--{BOUNDARY}--\r\n")
        status, answer = self.ask("POST", "/v1/files", form.encode(),
                                  f"multipart/form-data; boundary={BOUNDARY}")
        assert status == 200, answer
        return json.loads(answer)["id"]

    def create(self, file):
        return self.json("POST", "/v1/batches", {"input_file_id": file, "endpoint": URL})["id"]

    def batch(self, batch):
        return self.json("GET", f"/v1/batches/{batch}")

    def content(self, file):
        status, text = self.ask("GET", f"/v1/files/{file}/content")
        assert status == 200, text
        return text

    def wait(self, batch, statuses, timeout_s=600):
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            record = self.batch(batch)
            if record["status"] in statuses:
                return record
            time.sleep(0.02)
        raise AssertionError(f"the batch stays {record['status']}: {record['request_counts']}")

    def results(self):
        """What is stored, read while the server is down: (batch, line) -> (status, body)."""
        with self.database() as db:
            rows = db.execute("SELECT batch, line, status_code, body FROM batch_lines "
                              "WHERE status_code IS NOT NULL")
            return {(row[0], row[1]): row[2:] for row in rows}


    def is_finished(self, batch):
        with self.database() as db:
            return db.execute("SELECT status FROM batches WHERE id = ?", (batch,)).fetchone()[0] == \
                "completed"


def lines_of(count, tokens):
    body = {"max_tokens": tokens, "ignore_eos": True, "seed": 1}
    return "".join(
        json.dumps({"custom_id": f"c{i}", "method": "POST", "url": URL,
                    "body": {**body, "messages": [{"role": "user", "content": f"Line {i}"}]}}) + "\n"
        for i in range(count))


def check_output(server, record, count):
    assert record["request_counts"] == {"total": count, "completed": count, "failed": 0}, record
    lines = [json.loads(line) for line in server.content(record["output_file_id"]).splitlines()]
    ids = [line["custom_id"] for line in lines]
    assert len(ids) == len(set(ids)) == count, f"{len(ids)} results, {len(set(ids))} lines, {count}"
    assert all(line["response"]["status_code"] == 200 for line in lines)
    assert len({line["response"]["request_id"] for line in lines}) == count
    return {line["custom_id"]: line["response"]["body"] for line in lines}


def kill_while_it_runs(server, rng, count, kills, tokens):
    batch = server.create(server.upload(lines_of(count, tokens)))
    stored = {}
    for turn in range(kills):
        # Those that ran at the last kill run alone first, and one that is killed twice then fails, as it should.
        target = min(count, max((turn + rng.random()) * count / (kills + 1), len(stored) + 5))
        while True:
            seen = server.batch(batch)["request_counts"]["completed"]
            if seen >= target:
                break
            time.sleep(0.005)
        time.sleep(rng.random() * 0.05)
        server.kill()
        if server.is_finished(batch):  # its results are in the output now
            server.start()
            break
        now = server.results()
        assert len(now) >= seen, f"{seen} lines were reported, {len(now)} are stored"
        for key, result in stored.items():
            assert now.get(key) == result, f"the result of line {key} has changed"
        stored = now
        server.start()
        assert server.batch(batch)["request_counts"]["completed"] >= len(stored)
    record = server.wait(batch, {"completed"})
    answers = check_output(server, record, count)
    bodies = {json.dumps(answer, sort_keys=True) for answer in answers.values()}
    for status, body in stored.values():
        assert status == 200 and json.dumps(json.loads(body), sort_keys=True) in bodies, \
            "a result that was stored is not in the output"
    return len(stored)


def kill_in_the_middle_of(server, rng, what, span_s=0.05):
    """Runs `what` and kills the server within `span_s` of its start; what it gave, or None."""
    outcome = []

    def run():
        try:
            outcome.append(what())
        except (OSError, AssertionError):
            pass

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(rng.random() * span_s)
    server.kill()
    thread.join()
    server.start()
    return outcome[0] if outcome else None


def kill_uploads(server, rng, rounds):
    text = lines_of(4000, 3)
    began = time.monotonic()
    server.upload(text)
    span_s = 2 * (time.monotonic() - began)
    kept = 0
    for _ in range(rounds):
        file = kill_in_the_middle_of(server, rng, lambda: server.upload(text), span_s)
        if file is not None:
            kept += 1
        for record in server.json("GET", "/v1/files")["data"]:
            if record["purpose"] != "batch":
                continue
            assert record["bytes"] == len(server.content(record["id"])), "half a file"
        if file is not None:
            assert server.content(file) == text.encode(), "an upload that was acknowledged is gone"
    contents = {path.name for path in (server.state / "files").iterdir()}
    known = {record["id"] for record in server.json("GET", "/v1/files")["data"]}
    assert contents == known, f"left over: {contents ^ known}"
    return kept


def kill_creations(server, rng, rounds):
    file = server.upload(lines_of(3, 3))
    for _ in range(rounds):
        before = {b["id"] for b in server.json("GET", "/v1/batches?limit=100")["data"]}
        batch = kill_in_the_middle_of(server, rng, lambda: server.create(file))
        new = {b["id"] for b in server.json("GET", "/v1/batches?limit=100")["data"]} - before
        assert len(new) <= 1, new
        assert batch is None or new == {batch}, "a batch that was acknowledged is gone"
        for each in new:
            check_output(server, server.wait(each, {"completed"}), 3)


def kill_ends(server, rng, rounds):
    """Cancels and expires batches that run, and kills the server while it ends them."""
    for turn in range(rounds):
        batch = server.create(server.upload(lines_of(200, 300)))
        server.wait(batch, {"in_progress"})
        expire = turn % 2 == 1
        if expire:
            server.kill()
            with server.database() as db:
                db.execute("UPDATE batches SET expires_at = 1 WHERE id = ?", (batch,))
            server.start()
            kill_in_the_middle_of(server, rng, lambda: None)
        else:
            path = f"/v1/batches/{batch}/cancel"
            told = kill_in_the_middle_of(server, rng, lambda: server.json("POST", path, {}))
            if told is None:
                server.json("POST", path, {})
        record = server.wait(batch, {"expired" if expire else "cancelled"})
        counts = record["request_counts"]
        output, errors = record["output_file_id"], record["error_file_id"]
        done = len(server.content(output).splitlines()) if output else 0
        undone = len(server.content(errors).splitlines()) if errors else 0
        assert (counts["total"], counts["completed"]) == (200, done), (counts, done)
        assert undone == (200 - done if expire else 0), undone


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--lines", type=int, default=60)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3, help="of each other kind")
    parser.add_argument("--tokens", type=int, default=60, help="of a line")
    parser.add_argument("--model", default="")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-kill-"))
    server = Server(options.binary, options.model or write_tiny_model(folder / "tiny"), folder)
    try:
        server.start()
        stored = kill_while_it_runs(server, rng, options.lines, options.kills, options.tokens)
        kept = kill_uploads(server, rng, options.rounds)
        kill_creations(server, rng, options.rounds)
        kill_ends(server, rng, options.rounds)
        server.stop()
    except BaseException:
        sys.stdout.flush()
        sys.stderr.write(os.fsdecode((folder / "log").read_bytes()[-4000:]))
        if server.process is not None and server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        raise
    finally:
        server.log.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.lines} lines, {server.kills} kills: every stored result kept "
          f"({stored} before the last kill of the run), one result a line, {kept} uploads "
          f"acknowledged before a kill, database sound")
    return 0


if __name__ == "__main__":
    sys.exit(main())
