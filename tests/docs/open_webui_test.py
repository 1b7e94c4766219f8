"""Open WebUI in front of skein, as docs/RECIPES.md tells it.

REQUESTS is what version 0.12.4 sends to a server of OpenAI's HTTP: written down from its own traffic, without its texts. PlayedTest sends these, byte for
byte but for the texts, and reads of the answers what Open WebUI reads. RealTest (`make open-webui`) starts Open WebUI itself with the recipe's settings, uses it
over its own HTTP and in Chromium, and fails where it sends anything that is not in REQUESTS: then the list is out of date.
"""
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VENV = ROOT / "build/venv-open-webui"
if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])
sys.path.insert(0, str(ROOT / "tests/apps"))
import serving  # noqa: E402

OPEN_WEBUI = VENV / "bin/open-webui"
MODEL = serving.MODEL.stem
COMMON = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate, br", "User-Agent": "Python/3.11 aiohttp/3.14.5"}
JSON = {"Content-Type": "application/json"}
# What it is, method, path, headers beside COMMON and the key, and the fields in their order; `...` stands for a text, a list of them, or tools.
REQUESTS = [
    ("models", "GET", "/v1/models", {}, None),
    ("a connection is tried", "GET", "/v1/models", JSON, None),
    ("chat", "POST", "/v1/chat/completions", JSON, {"stream": True, "model": MODEL, "messages": ...}),
    ("chat with tools", "POST", "/v1/chat/completions", JSON, {"stream": True, "model": MODEL, "messages": ..., "tools": ...}),
    ("title", "POST", "/v1/chat/completions", JSON, {"model": MODEL, "messages": ..., "stream": False, "max_tokens": 1000}),
    ("follow-ups, tags, queries", "POST", "/v1/chat/completions", JSON, {"model": MODEL, "messages": ..., "stream": False}),
    ("documents", "POST", "/v1/embeddings", JSON, {"input": ..., "model": MODEL}),
]
TOOL = {"type": "function", "function": {"name": "get_time", "description": "The time of day.", "parameters": {"properties": {}, "type": "object"}}}


def shape(body):
    """A body as REQUESTS has it."""
    return body and {field: ... if field in ("messages", "tools", "input") else value for field, value in body.items()}


def recipe_settings(**variables):
    """The lines of docs/RECIPES.md that set variables, as a shell understands them."""
    page = (ROOT / "docs/RECIPES.md").read_text()
    block = re.search(r"^## Open WebUI.*?^```sh look\n(.*?)^```", page, re.S | re.M)[1]
    lines = [line for line in block.splitlines() if line.startswith("export ")]
    assert lines and "open-webui serve" in block
    done = subprocess.run(["bash", "-euc", "\n".join([*lines, "env -0"])], env=variables, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


class KeyedServer(serving.Server):
    """With the recipe's two keys."""

    def __init__(self):
        self.home = tempfile.TemporaryDirectory(prefix="skein-test-")
        state = pathlib.Path(self.home.name, "state")
        self.people, self.tasks_key = serving.add_key(state, "webui", "--tier", "high"), serving.add_key(state, "webui-tasks", "--tier", "low")
        # A small model may not know when to end, and most requests have no limit: the likeliest tokens, and a short context.
        super().__init__("--pooling", "mean", "--model-sampling", "* temperature=0", "--max-context", 2048, state_dir=state)

    def close(self):
        super().close()
        self.home.cleanup()

    def asked(self, key, at):
        """Waits until the log says that this key's request had this class."""
        return self.logged(f'"key":"{key}".*?"class":"{at}"')


@serving.needs_model
class PlayedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = KeyedServer()

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def play(self, name, key, **texts):
        method, path, headers, fields = next(request[1:] for request in REQUESTS if request[0] == name)
        body = fields and {field: texts[field] if value is ... else value for field, value in fields.items()}
        connection = self.server.connect()
        connection.request(method, path, None if body is None else json.dumps(body), {**COMMON, **headers, "Authorization": f"Bearer {key}"})
        return serving.Answer(connection, connection.getresponse())

    def test_models_are_listed(self):
        for name in ("models", "a connection is tried"):
            answer = self.play(name, self.server.people)
            self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/json"))
            self.assertNotIn("content-encoding", answer.headers)
            self.assertEqual([model["id"] for model in answer.json()["data"]], [MODEL])
        self.assertEqual(self.play("models", "sk-wrong").status, 401)

    def read_stream(self, answer):
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "text/event-stream"))
        *events, done, rest = answer.body.decode().split("\n\n")
        self.assertEqual((done, rest), ("data: [DONE]", ""))
        chunks = [json.loads(event.removeprefix("data: ")) for event in events]
        self.assertTrue(all(chunk["choices"][0]["index"] == 0 for chunk in chunks))
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "stop")
        return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)

    def test_a_chat_streams(self):
        messages = [{"role": "user", "content": "Say hello in one short sentence."}]
        self.assertGreater(len(self.read_stream(self.play("chat", self.server.people, messages=messages))), 4)
        self.server.asked("webui", "high")

    def test_a_chat_with_tools_streams(self):
        messages = [{"role": "user", "content": "Say hello in one short sentence."}]
        answer = self.play("chat with tools", self.server.people, messages=messages, tools=[TOOL])
        self.assertEqual(answer.headers["content-type"], "text/event-stream")
        self.assertTrue(answer.body.endswith(b"data: [DONE]\n\n"))

    def test_tasks_are_answered_below_people(self):
        for name in ("title", "follow-ups, tags, queries"):
            answer = self.play(name, self.server.tasks_key, messages=[{"role": "user", "content": "Say hello in one short sentence."}])
            self.assertEqual(answer.status, 200)
            self.assertTrue(answer.json()["choices"][0]["message"]["content"])
        self.server.asked("webui-tasks", "low")

    def test_documents_become_vectors(self):
        answer = self.play("documents", self.server.tasks_key, input=["The lighthouse is tall.", "Bread is baked."])
        self.assertEqual([len(one["embedding"]) for one in answer.json()["data"]], [576, 576])


class Witness(http.server.ThreadingHTTPServer):
    """Hands everything on to a server, and keeps what was asked."""
    daemon_threads = True

    def __init__(self, port):
        self.upstream, self.seen, self.answers = port, [], []
        super().__init__(("127.0.0.1", 0), Hand)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Whoever goes in the middle of an answer: the server at the end, or Open WebUI."""


class Hand(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_message = lambda *_: None  # noqa: E731

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, dict(self.headers), json.loads(body) if body else None))
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=serving.PATIENCE_S)
        connection.request(self.command, self.path, body or None, {k: v for k, v in self.headers.items() if k != "Host"})
        answer = connection.getresponse()
        self.server.answers.append(answer.status)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(piece)
        connection.close()
        self.close_connection = True

    do_GET = do_POST = pass_on


@serving.needs_model
@unittest.skipUnless(OPEN_WEBUI.exists(), "Open WebUI is not installed; `make open-webui` fetches it")
class RealTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = KeyedServer()
        cls.witness = Witness(cls.server.port)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        cls.url = f"http://127.0.0.1:{port}"
        cls.data = tempfile.TemporaryDirectory(prefix="skein-test-")
        settings = recipe_settings(WEBUI_KEY=cls.server.people, TASKS_KEY=cls.server.tasks_key)
        told = {name: value.replace("127.0.0.1:8080", f"127.0.0.1:{cls.witness.server_port}") for name, value in settings.items()}
        # Nobody to sign in, and nothing is fetched from anywhere.
        alone = {"WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "test", "OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1", "DATA_DIR": cls.data.name}
        cls.log = open(pathlib.Path(cls.data.name, "log"), "w+")
        cls.process = subprocess.Popen([OPEN_WEBUI, "serve", "--host", "127.0.0.1", "--port", str(port)], cwd=cls.data.name, stdout=cls.log,
                                       stderr=cls.log, env={**serving.clean_environment(), **told, **alone})
        until = time.monotonic() + serving.PATIENCE_S
        while not cls.is_up():
            if cls.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(pathlib.Path(cls.log.name).read_text()[-4000:])
            time.sleep(0.5)
        cls.token = json.loads(cls.ask("POST", "/api/v1/auths/signin", {"email": "", "password": ""})[1])["token"]

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(signal.SIGKILL)
        cls.process.wait()
        cls.witness.shutdown()
        cls.witness.server_close()
        cls.server.close()
        cls.log.close()
        cls.data.cleanup()

    @classmethod
    def is_up(cls):
        try:
            return cls.ask("GET", "/health")[0] == 200
        except OSError:
            return False

    @classmethod
    def ask(cls, method, path, body=None):
        connection = http.client.HTTPConnection(cls.url.removeprefix("http://"), timeout=serving.PATIENCE_S)
        key = {"Authorization": f"Bearer {cls.token}"} if hasattr(cls, "token") else {}
        connection.request(method, path, body and json.dumps(body), {**JSON, **key})
        answer = serving.Answer(connection, connection.getresponse())
        return answer.status, answer.body.decode()

    def test_a_lists_models_and_streams(self):
        status, body = self.ask("GET", "/api/models")
        self.assertEqual((status, [model["id"] for model in json.loads(body)["data"]]), (200, [MODEL, f"tasks.{MODEL}"]))
        self.assertEqual(self.ask("POST", "/openai/verify", {"url": f"http://127.0.0.1:{self.witness.server_port}/v1", "key": self.server.people})[0], 200)
        messages = [{"role": "user", "content": "Say hello in one short sentence."}]
        status, body = self.ask("POST", "/api/chat/completions", {"stream": True, "model": MODEL, "messages": messages})
        self.assertEqual(status, 200)
        self.assertGreater(body.count('"content"'), 3, body)
        self.assertIn("data: [DONE]", body)

    def test_b_in_a_browser(self):
        chromium = shutil.which("chromium")
        try:
            from playwright.sync_api import sync_playwright
        except ImportError:
            sync_playwright = None
        if not chromium or not sync_playwright:
            self.skipTest("Playwright or Chromium is not there")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            page, errors, foreign = browser.new_page(), [], []
            page.set_default_timeout(serving.PATIENCE_S * 1000)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("request", lambda request: None if request.url.startswith((self.url, "blob:", "data:")) else foreign.append(request.url))
            page.goto(self.url)
            page.get_by_role("button", name="Okay, Let's Go!").click()  # what is new in this version
            page.locator("#chat-input").click()
            page.keyboard.type("Tell me about yarn in two sentences.")
            page.keyboard.press("Enter")
            sizes, until = set(), time.monotonic() + serving.PATIENCE_S
            while "Response complete" not in page.inner_text("body"):
                sizes.add(len(page.inner_text("body")))
                self.assertLess(time.monotonic(), until, page.inner_text("body"))
                page.wait_for_timeout(50)
            browser.close()
        self.assertGreater(len(sizes), 5, "the answer does not grow on the page")
        self.assertEqual((errors, foreign), ([], []))
        # The title comes from the second connection.
        self.server.asked("webui", "high")
        self.server.asked("webui-tasks", "low")

    def test_c_sends_what_is_written_down(self):
        known = [(method, path, {**COMMON, **headers}, shape(fields)) for _, method, path, headers, fields in REQUESTS]
        for method, path, headers, body in self.witness.seen:
            plain = {k: v for k, v in headers.items() if k not in ("Host", "Authorization", "Content-Length")}
            self.assertIn((method, path, plain, shape(body)), known)
        self.assertEqual(set(self.witness.answers), {200})
        paths = {(method, path) for method, path, _, _ in self.witness.seen}
        self.assertEqual(paths, {("GET", "/v1/models"), ("POST", "/v1/chat/completions")})


if __name__ == "__main__":
    unittest.main()
