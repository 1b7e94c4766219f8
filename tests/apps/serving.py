"""Starts the built `skein serve` as a user would, and talks to it with nothing but the standard library."""
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
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


def hardware(test):
    """Marks a test that takes what not every machine lends (a mount, a look into another process). Such tests of a file are a
    ctest of their own with the label `hardware`: counted, and never a failure for what is missing."""
    test.needs_hardware = True
    return test


class ChosenTests(unittest.TestLoader):
    """SKEIN_TEST_HARDWARE=only: those that are marked alone, none: the others alone, else all."""

    def getTestCaseNames(self, case):
        wanted = {"only": True, "none": False}.get(os.environ.get("SKEIN_TEST_HARDWARE"))
        names = super().getTestCaseNames(case)
        return [name for name in names if wanted in (None, hasattr(getattr(case, name), "needs_hardware"))]


def main():
    """unittest.main() for a file with such tests. Status 77: this machine can run none of them."""
    result = unittest.main(testLoader=ChosenTests(), exit=False).result
    if os.environ.get("SKEIN_TEST_HARDWARE") == "only":
        ran = result.testsRun - len(result.skipped)
        print(f"hardware: {ran} cases ran, {len(result.skipped)} found what they need missing")
        if ran == 0 and result.wasSuccessful():
            sys.exit(77)
    sys.exit(not result.wasSuccessful())


needs_model = needs(MODEL.exists(), f"{MODEL} is not there; `make model` fetches it")


def tiny_model(folder, name="tiny", template=None, context=None):
    """The golden llama with bytes for tokens: a context of 1,024 and thousands of tokens a second.

    `template` is one of tests/dialog/templates."""
    path = pathlib.Path(folder, name)
    path.mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(GOLDENS / "llama" / file, path / file)
    shutil.copy(TESTS / "server/byte_tokenizer.json", path / "tokenizer.json")
    if template:
        shutil.copy(TESTS / f"dialog/templates/{template}.jinja", path / "chat_template.jinja")
        (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}))
    if context:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": context}))
    return path


def thinking_template():
    """Calls in Hermes' way, and a prompt that opens a thought unless `enable_thinking` is false."""
    text = (TESTS / "dialog/templates/hermes.jinja").read_text()
    closed = "{{- '<think>\\n\\n</think>\\n\\n' }}"
    assert closed in text
    return text.replace(closed, closed + "{%- else %}{{- '<think>\\n' }}")


def frames(text):
    """The JSON of a stream's events, each with its type in `event:`; what only keeps it alive is left out."""
    found = []
    for frame in text.split("\n\n"):
        if not frame or frame.startswith((":", "event: ping")):
            continue
        name, data = frame.split("\n")
        assert data.startswith("data: "), frame
        found.append(json.loads(data[6:]))
        assert name == f"event: {found[-1]['type']}", frame
    return found


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
                 model_folder=None, wait=True, stderr=None, threads=1):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-test-"))
        self.state_dir = state_dir or self.folder / "state"
        self.model_folder = model_folder or self.folder / "models"
        self.model_folder.mkdir(exist_ok=True)
        self.log = open(self.folder / "log", "w+")
        line = [*command, BINARY, "serve", "--port", "0", "--state-dir", self.state_dir,
                "--model-folder", self.model_folder, "--threads", threads]
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
        """What it has logged so far. The log has a thread of its own: what was logged before an answer may be written after it."""
        return pathlib.Path(self.folder / "log").read_text()

    def logged(self, pattern):
        """The match of a regular expression in the log, waited for."""
        if not self.settle(lambda: re.search(pattern, self.messages())):
            raise AssertionError(f"{pattern!r} does not come in {self.messages()}")
        return re.search(pattern, self.messages())

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


def run_batch(server, url, bodies):
    """Has the bodies answered as lines of a batch; the rows of its two files by number."""
    lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": url, "body": body}) for i, body in enumerate(bodies)]
    boundary = "boundary-of-a-batch"
    form = (f"--{boundary}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--{boundary}\r\n"
            f"Content-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n" + "\n".join(lines) +
            f"\r\n--{boundary}--\r\n")
    connection = server.connect()
    connection.request("POST", "/v1/files", form, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
    file = Answer(connection, connection.getresponse()).json()["id"]
    batch = server.post("/v1/batches", {"input_file_id": file, "endpoint": url, "completion_window": "24h"}).json()["id"]
    assert server.settle(lambda: server.get(f"/v1/batches/{batch}").json()["status"] == "completed")
    done, rows = server.get(f"/v1/batches/{batch}").json(), {}
    for file in filter(None, (done["output_file_id"], done["error_file_id"])):
        for line in server.get(f"/v1/files/{file}/content").body.decode().splitlines():
            rows[json.loads(line)["custom_id"]] = json.loads(line)
    return rows


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


class FullQueue:
    """Streams that fill a queue of two until release() is called, and what the client was answered meanwhile."""

    def __init__(self, server, model):
        self.server, self.model, self.seen = server, model, []
        self.streams = [server.stream(model=model, max_tokens=4000).read(until_first=True) for _ in range(2)]
        self.waiting = [server.connect() for _ in range(2)]
        for connection in self.waiting:
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1}),
                               {"Authorization": f"Bearer {server.key}"})
        self.wait_for_queue(2)

    def wait_for_queue(self, length):
        until = time.monotonic() + PATIENCE_S
        sample = f'vllm:num_requests_waiting{{model_name="{self.model}"}}'
        while self.server.metrics()[sample] != length:
            assert time.monotonic() < until, "the queue does not become as long as expected"
            time.sleep(0.01)

    def on_response(self, response):
        """A client's hook: the first refusal makes room for what it tries next."""
        self.seen.append((response.status_code, response.headers.get("retry-after")))
        if len(self.seen) == 1:
            self.release()

    async def on_response_async(self, response):
        self.on_response(response)

    def release(self):
        for stream in self.streams:
            stream.close()
        for connection in self.waiting:
            connection.getresponse().read()
            connection.close()
        self.streams, self.waiting = [], []
