"""A `skein serve` with a tiny model below the shim, and what may be asked of it."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "apps"))
from encoders import tiny_encoder  # noqa: E402

PATIENCE_S = 20  # for anything that is not told to take longer: what takes more hangs
BOUNDARY = "skein-faults"
MODELS = ("tiny", "other")  # loaded at the start, and when it is first asked for
ENCODER, RANKER = "encoder", "ranker"  # the same, for vectors


class Broken(Exception):
    """A promise that was not kept. `kind` is crashes, lost lines or corrupt databases."""

    def __init__(self, message, kind="crashes"):
        super().__init__(message)
        self.kind = kind


class Answer:
    """What came back: a status with its whole body, or a connection that was visibly cut (status 0)."""

    def __init__(self, status, body=b""):
        self.status, self.body = status, body

    def is_ok(self):
        return 200 <= self.status < 300

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Broken(f"status {self.status} with a body that is no JSON: {self.body[:200]!r}") from error

    def check_failure(self):
        """A failure must be an error that a client can read, or a cut."""
        if self.status and (self.status < 400 or "error" not in self.json()):
            raise Broken(f"status {self.status} is no clean error: {self.body[:200]!r}")


def write_models(folder):
    for name in MODELS:
        path = pathlib.Path(folder, name)
        path.mkdir(parents=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(TESTS.parent / "build/goldens/llama" / file, path / file)
        shutil.copy(TESTS / "server/byte_tokenizer.json", path / "tokenizer.json")
    tiny_encoder(folder, ENCODER)
    tiny_encoder(folder, RANKER, ranks=True)


def check_database(path):
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=PATIENCE_S) as db:
            verdict = db.execute("PRAGMA integrity_check").fetchone()[0]
        db.close()
    except sqlite3.DatabaseError as error:
        raise Broken(f"the database cannot be read: {error}", "corrupt databases") from error
    if verdict != "ok":
        raise Broken(f"integrity_check: {verdict}", "corrupt databases")


class Target:
    """One server at a time, on one state folder and one shim."""

    def __init__(self, binary, shim, folder):
        self.binary, self.shim, self.folder = pathlib.Path(binary).resolve(), shim, pathlib.Path(folder)
        self.state = self.folder / "state"
        self.process, self.port, self.key = None, 0, None
        write_models(self.folder / "models")
        added = subprocess.run([self.binary, "keys", "add", "--name", "faults", "--admin", "--print-key-only",
                                "--state-dir", self.state], capture_output=True, text=True, timeout=PATIENCE_S,
                               check=True)
        self.key = added.stdout.strip()

    # ---- the process ----

    def launch(self):
        """Starts a process; whether it comes up is start()'s business."""
        models = self.folder / "models"
        command = [self.binary, "serve", "--port", "0", "--state-dir", self.state, "--model-folder", models,
                   "--model", models / MODELS[0], "--threads", "1", "--batch-block-pool-size", "64",
                   "--drain-timeout", "3"]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SKEIN_")}
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=self.log, bufsize=0,
                                        env={**kept, **self.shim.environment()})
        os.set_blocking(self.process.stdout.fileno(), False)
        self.port, self.said = 0, b""

    def forgive_models(self):
        """A model whose load was cut by a kill is quarantined until its files change."""
        for name in (*MODELS, ENCODER, RANKER):
            os.utime(self.folder / "models" / name / "config.json")

    def wait_ready(self):
        """True when it serves, False when it ended by itself."""
        until = time.monotonic() + 2 * PATIENCE_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                return False
            self.said += self.process.stdout.read() or b""
            if match := re.search(rb"http://[^:]*:(\d+)", self.said):
                self.port = int(match[1])
                if self.ask("GET", "/health").status == 200:
                    return True
            time.sleep(0.005)
        raise Broken("the server neither becomes ready nor ends")

    def start(self):
        self.launch()
        if not self.wait_ready():
            raise RuntimeError(f"the server does not start without faults: {self.messages()}")

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def wait_end(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise Broken(f"the process does not end within {seconds} s") from error

    def kill(self):
        if self.is_alive():
            self.process.kill()
        if self.process is not None:
            self.process.wait()
            self.process.stdout.close()
            self.log.close()
        self.process = None

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def messages(self):
        return os.fsdecode((self.folder / "log").read_bytes()[-2000:])

    def count(self, table):
        with contextlib.closing(sqlite3.connect(f"file:{self.state / 'skein.db'}?mode=ro", uri=True, timeout=PATIENCE_S)) as db:
            return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    # ---- requests ----

    def ask(self, method, path, body=None, content_type="application/json", key=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {key or self.key}"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.read())
        except TimeoutError as error:
            raise Broken(f"{method} {path} hangs") from error
        except (http.client.HTTPException, OSError):
            return Answer(0)
        finally:
            connection.close()

    def post(self, path, body, key=None):
        return self.ask("POST", path, json.dumps(body), key=key)

    def upload(self, text):
        form = (f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
                f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; "
                f"filename=\"in.jsonl\"\r\n\r\n{text}\r\n--{BOUNDARY}--\r\n")
        return self.ask("POST", "/v1/files", form.encode(), f"multipart/form-data; boundary={BOUNDARY}")

    def must(self, answer, what):
        """The JSON of an answer that nothing may have failed any more."""
        if not answer.is_ok():
            raise Broken(f"after the fault {what} gets {answer.status or 'a cut'}: {answer.body[:300]!r}")
        return answer.json()

    def is_idle(self):
        stats = self.must(self.ask("GET", "/admin/stats"), "/admin/stats")
        engines = [model["engine"] for model in stats["models"] if "engine" in model]
        busy = [e["live_requests"] or e["prefilling"] or e["running"] or e["kv_blocks"]["held"] or
                any(e["waiting"].values()) for e in engines]
        return stats["live_requests"] == 0 and not any(busy)

    def wait_for(self, condition, what, seconds=PATIENCE_S):
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise Broken(f"{what}: not within {seconds} s")
            time.sleep(0.005)


