"""Starts the built `skein serve` as a user would, and talks to it with nothing but the standard library."""
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

BINARY = os.environ.get("SKEIN_TEST_BINARY", "build/skein")
MODEL = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache",
                     "skein/models/SmolLM2-135M-Instruct.Q4_1.gguf")
PATIENCE_S = 120  # for anything at all on a busy machine
FULL = os.environ.get("SKEIN_TEST_FULL") == "1"  # the long form, by a make target of its own
TESTS = pathlib.Path(__file__).resolve().parents[1]

GOLDENS = TESTS.parent / "build/goldens"  # cmake/goldens.cmake unpacks them
SANITIZED = os.environ.get("SKEIN_TEST_SANITIZED") == "1"  # then memory and time say nothing
REQUIRE_ALL = os.environ.get("SKEIN_REQUIRE") == "all"  # then what a test lacks is a failure, not a skip


def needs(present, otherwise):
    """For a test or a class of tests that needs a package, a command or a model."""
    if present or not REQUIRE_ALL:
        return unittest.skipUnless(present, otherwise)

    def failing(test):
        if not isinstance(test, type):
            return lambda self: self.fail(otherwise)
        test.setUpClass = classmethod(lambda cls: (_ for _ in ()).throw(AssertionError(otherwise)))
        return test

    return failing


def lacks(test, what):
    """Ends a running test that found something missing."""
    (test.fail if REQUIRE_ALL else test.skipTest)(what)


needs_model = needs(MODEL.exists(), f"{MODEL} is not there; `make model` fetches it")


def tiny_model(folder):
    """The golden llama with bytes for tokens: a context of 1,024 and thousands of tokens a second."""
    path = pathlib.Path(folder, "tiny")
    path.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDENS / "llama" / name, path / name)
    shutil.copy(TESTS / "server/byte_tokenizer.json", path / "tokenizer.json")
    return path


def add_key(state_dir, name, *more):
    done = run("keys", "add", "--name", name, "--print-key-only", "--state-dir", state_dir, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def clean_environment(**more):
    """This process's variables without skein's own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SKEIN_") and k != "NOTIFY_SOCKET"}
    return {**kept, **more}


def run(*arguments, env=None):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S,
                          env=clean_environment(**(env or {})))


class Answer:
    def __init__(self, connection, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()
        connection.close()

    def json(self):
        return json.loads(self.body)


class Stream:
    """A streamed answer, read line by line."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response
        self.status = response.status
        self.usage, self.tokens, self.ended, self.error = None, 0, False, None

    def read(self, until_first=False):
        while line := self.response.readline():
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                self.ended = True
                continue
            chunk = json.loads(data)
            self.usage = chunk.get("usage") or self.usage
            self.error = chunk.get("error") or self.error
            self.tokens += sum(1 for c in chunk.get("choices", ()) if c.get("text") or c.get("delta", {}).get("content"))
            if until_first and self.tokens:
                return self
        self.close()
        return self

    def close(self):
        self.response.close()
        self.connection.close()


class Server:
    """One server on a free port, with folders of its own. Ends with the `with` block."""

    def __init__(self, *arguments, models=(MODEL,), env=None, command=(), state_dir=None,
                 model_folder=None, wait=True, stderr=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-test-"))
        self.state_dir = state_dir or self.folder / "state"
        self.model_folder = model_folder or self.folder / "models"
        self.model_folder.mkdir(exist_ok=True)
        self.log = open(self.folder / "log", "w+")
        line = [*command, BINARY, "serve", "--port", "0", "--state-dir", self.state_dir,
                "--model-folder", self.model_folder, "--threads", "1"]
        for model in models:
            line += ["--model", model]
        self.process = subprocess.Popen([*map(str, line), *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=stderr or self.log, text=True, env=clean_environment(**(env or {})))
        self.key = None
        try:
            first = self.process.stdout.readline()
            match = re.search(r"http://(?:\[(.*)\]|([^:/]*)):(\d+)", first)
            if not match:
                self.process.wait(PATIENCE_S)
                raise AssertionError(f"no URL in {first!r}; {self.messages()}")
            self.host, self.port = match[1] or match[2], int(match[3])
            if wait:
                self.wait_for("/health", 200)
        except BaseException:
            self.close()
            raise

    def messages(self):
        return pathlib.Path(self.folder / "log").read_text()

    def connect(self):
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host
        return http.client.HTTPConnection(host, self.port, timeout=PATIENCE_S)

    def send(self, method, path, body=None, headers=None):
        connection = self.connect()
        headers = dict(headers or {})
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        if self.key:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection, connection.getresponse()

    def get(self, path, **headers):
        return Answer(*self.send("GET", path, None, headers))

    def post(self, path, body, headers=None):
        return Answer(*self.send("POST", path, body, headers))

    def complete(self, prompt="Once upon a time", headers=None, **fields):
        return self.post("/v1/completions", {"prompt": prompt, **fields}, headers)

    def stream(self, path="/v1/completions", **fields):
        body = {"prompt": "Once upon a time", "stream": True, "ignore_eos": True, **fields}
        return Stream(*self.send("POST", path, body))

    def wait_for(self, path, status):
        until = time.monotonic() + PATIENCE_S
        while (answer := self.get(path)).status != status:
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{path} says {answer.status}, not {status}; {self.messages()}")
            time.sleep(0.02)
        return answer

    def metrics(self):
        """The page as {'name{labels}': value}."""
        page = self.get("/metrics").body.decode()
        rows = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def gauge(self, name):
        """The sum over models, and over whatever else the samples are told apart by."""
        return sum(value for sample, value in self.metrics().items() if sample.split("{")[0] == name)

    def settle(self, condition, seconds=PATIENCE_S):
        """Whether it came true in time."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def is_idle(self):
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        page = self.metrics()
        return not any(value for sample, value in page.items() if sample.split("{")[0] in names)

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def tasks(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def resident_bytes(self):
        pages = pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=PATIENCE_S):
        return self.process.wait(seconds)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def in_parallel(count, work):
    """work(0..count-1) on a thread each; their results in order, or the first exception."""
    results = [None] * count

    def one(i):
        try:
            results[i] = work(i)
        except Exception as error:  # told to the caller below
            results[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
