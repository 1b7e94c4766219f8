"""The life of a server: start, ready, reload, drain, stop."""
import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import time
import unittest

import serving
from serving import Server, in_parallel, needs_model

STREAMS = 20


def waiting(server):
    return sum(n for name, n in server.metrics().items() if name.startswith("vllm:num_requests_waiting"))


class StartTest(unittest.TestCase):
    """What must not start says why, on stderr, with status 1."""

    def refused(self, *arguments, env=None):
        with tempfile.TemporaryDirectory() as folder:
            port = [] if "--port" in arguments else ["--port", "0"]
            done = serving.run("serve", "--state-dir", f"{folder}/state", "--model-folder", f"{folder}/models",
                               *port, *arguments, env=env)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_no_model(self):
        self.assertIn("there is no model to serve", self.refused())

    def test_model_that_is_not_there(self):
        self.assertIn("/no/such/model.gguf: no such file or folder", self.refused("--model", "/no/such/model.gguf"))

    @needs_model
    def test_names_that_do_not_fit(self):
        model = ("--model", serving.MODEL)
        self.assertIn("2 served model names for 1 models",
                      self.refused(*model, "--served-model-name", "a", "--served-model-name", "b"))
        self.assertIn("two models are called", self.refused(*model, *model))

    @needs_model
    def test_half_of_tls(self):
        self.assertIn("--tls-cert and --tls-key go together",
                      self.refused("--model", serving.MODEL, "--tls-cert", "/x"))

    @needs_model
    def test_open_to_other_machines_without_keys(self):
        said = self.refused("--model", serving.MODEL, "--host", "0.0.0.0")
        self.assertIn("there are no API keys", said)
        self.assertIn("--insecure-open", said)
        with Server("--host", "0.0.0.0", "--insecure-open") as server:
            self.assertEqual(server.get("/livez").status, 200)

    @needs_model
    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assertIn(f"127.0.0.1:{port}", self.refused("--model", serving.MODEL, "--port", port))

    @needs_model
    def test_state_folder_in_use(self):
        with Server() as server:
            with tempfile.TemporaryDirectory() as folder:
                done = serving.run("serve", "--model", serving.MODEL, "--port", "0", "--model-folder", folder,
                                   "--state-dir", server.state_dir)
        self.assertEqual(done.returncode, 1)
        self.assertIn(str(server.state_dir), done.stderr)

    def test_model_that_does_not_load_ends_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder, "broken.gguf")
            broken.write_bytes(b"GGUF" + bytes(100))
            done = serving.run("serve", "--state-dir", f"{folder}/state", "--model-folder", f"{folder}/models",
                               "--port", "0", "--model", broken)
        self.assertEqual(done.returncode, 1)
        self.assertIn("model broken could not be loaded", done.stderr)


@needs_model
class LifeTest(unittest.TestCase):
    def test_health_and_names(self):
        with Server("--served-model-name", "org/small") as server:
            self.assertEqual(server.get("/health").json(), {"status": "ok"})
            self.assertEqual(server.get("/livez").status, 200)
            self.assertRegex(server.get("/version").json()["version"], r"^\d+\.\d+")
            self.assertEqual(server.complete(model="org/small", max_tokens=1).status, 200)
            self.assertEqual(server.complete(model="other", max_tokens=1).status, 404)

    def test_models_of_the_folder_load_when_asked_for(self):
        with Server() as server:
            (server.model_folder / "late.gguf").symlink_to(serving.MODEL)
            folder = server.model_folder / "org" / "copy"
            folder.mkdir(parents=True)
            shutil.copy(serving.MODEL, folder / "model.gguf")
            self.assertEqual(server.complete(model="copy", max_tokens=1).status, 404)
            server.signal(signal.SIGHUP)
            until = time.monotonic() + 10
            while (answer := server.complete(model="org/copy", max_tokens=1)).status == 404 and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(answer.status, 200)
            # The link is the model that is served already, so it is no second one.
            self.assertEqual(server.complete(model="late", max_tokens=1).status, 404)
            for name in ("../late", "org/../org/copy", str(serving.MODEL), "/etc/passwd", ""):
                status = server.complete(model=name, max_tokens=1).status
                self.assertEqual(status, 200 if name == "" else 404, name)

    def test_new_key_counts_after_sighup(self):
        with Server() as server:
            self.assertEqual(server.complete(max_tokens=1).status, 200)
            key = serving.run("keys", "add", "--name", "k", "--admin", "--print-key-only",
                              "--state-dir", server.state_dir).stdout.strip()
            server.signal(signal.SIGHUP)
            until = time.monotonic() + 5
            while (status := server.complete(max_tokens=1).status) != 401 and time.monotonic() < until:
                time.sleep(0.02)
            self.assertEqual(status, 401)
            server.key = key
            self.assertEqual(server.complete(max_tokens=1).status, 200)
            self.check_admin(server)

    def check_admin(self, server):
        self.assertEqual(server.get("/admin/stats").json()["models"][0]["state"], "ready")
        made = server.post("/admin/keys", {"name": "rag", "tier": "low", "rpm": 60}).json()
        self.assertEqual((made["tier"], made["rpm"], made["admin"]), ("low", 60, False))
        bearer = {"Authorization": f"Bearer {made['key']}"}
        self.assertEqual(server.complete(headers=bearer, max_tokens=1).status, 200)
        self.assertEqual(server.post("/admin/drain", {}, bearer).status, 403)
        rotated = server.post("/admin/keys/rag/rotate", {}).json()
        self.assertEqual(server.complete(headers=bearer, max_tokens=1).status, 401)
        bearer = {"Authorization": f"Bearer {rotated['key']}"}
        self.assertEqual(server.complete(headers=bearer, max_tokens=1).status, 200)
        self.assertNotIn(rotated["key"], server.get("/admin/keys").body.decode())
        self.assertEqual(serving.Answer(*server.send("DELETE", "/admin/keys/rag")).status, 200)
        self.assertEqual(server.complete(headers=bearer, max_tokens=1).status, 401)
        self.assertEqual(server.post("/admin/keys", {"name": "k"}).status, 409)
        self.assertEqual(server.post("/admin/keys", {"name": "x", "tier": "top"}).json()["error"]["param"], "tier")
        for name in ("a\nb", "a\x7f", "\t", ""):  # two models in the guise of one, and their like
            refused = server.post("/admin/keys", {"name": "x", "models": ["ok", name]})
            self.assertEqual((refused.status, refused.json()["error"]["param"]), (400, "models[1]"), refused.body)
        model = {"model": serving.MODEL.stem}
        self.assertEqual(server.post("/admin/models/unload", model).json()["state"], "unloaded")
        self.assertEqual(server.post("/admin/models/load", model).json()["state"], "ready")
        self.assertEqual(server.post("/admin/models/load", {"model": "nope"}).status, 404)
        stream = server.stream(max_tokens=200)
        stream.read(until_first=True)
        self.assertEqual(server.post("/admin/models/unload", model).status, 409)
        self.assertEqual(server.post("/admin/drain", {}).status, 202)
        self.assertTrue(stream.read().ended)
        self.assertEqual(server.wait(), 0)

    def test_sigterm_lets_streams_end_and_refuses_new_work(self):
        with Server("--drain-timeout", "100") as server:
            streams = [server.stream(max_tokens=48) for _ in range(STREAMS)]
            for stream in streams:
                stream.read(until_first=True)
            server.signal(signal.SIGTERM)
            server.wait_for("/health", 503)
            self.assertEqual(server.get("/livez").status, 200)
            refused = server.complete(max_tokens=1)
            self.assertEqual(refused.status, 503)
            self.assertGreaterEqual(int(refused.headers["retry-after"]), 1)
            in_parallel(STREAMS, lambda i: streams[i].read())
            self.assertTrue(all(stream.ended for stream in streams))
            self.assertEqual(server.wait(), 0)
            self.assertNotIn("cut off", server.messages())

    def test_idle_server_stops_at_once(self):
        with Server("--drain-timeout", "100") as server:
            idle = server.connect()  # a kept-alive connection must not hold it up
            idle.request("GET", "/livez")
            idle.getresponse().read()
            started = time.monotonic()
            server.signal(signal.SIGINT)
            self.assertEqual(server.wait(), 0)
            self.assertLess(time.monotonic() - started, 10)
            idle.close()

    def test_the_first_signal_is_answered_at_once_whatever_runs(self):
        """Behind a shell that lets it ignore SIGINT, as `make serve &` in a script does, and soon after the start."""
        ignoring = ("bash", "-c", "trap '' INT; exec \"$0\" \"$@\"")
        for command in ((), ignoring):
            for delay_s in (0, 0.2, 1):
                with self.subTest(command=command, delay_s=delay_s), Server("--drain-timeout", "100", command=command) as server:
                    idle = server.connect()
                    idle.request("GET", "/livez")
                    idle.getresponse().read()
                    stream = server.stream(max_tokens=4000).read(until_first=True)
                    time.sleep(delay_s)
                    server.signal(signal.SIGINT)
                    self.assertTrue(server.settle(lambda: "a second signal stops it at once" in server.messages(), 2))
                    self.assertTrue(server.settle(lambda: "draining: no new work; 1 running requests have 100 s" in server.messages(), 2))
                    stream.close()  # nothing else holds it up
                    self.assertEqual(server.wait(10), 0)
                    idle.close()

    def test_second_sigterm_stops_at_once(self):
        with Server("--drain-timeout", "100") as server:
            stream = server.stream(max_tokens=4000)
            stream.read(until_first=True)
            server.signal(signal.SIGTERM)
            server.wait_for("/health", 503)
            self.assertIsNone(server.process.poll())
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(10), 128 + signal.SIGTERM)
            stream.close()

    def test_drain_timeout_cuts_what_still_runs(self):
        with Server("--drain-timeout", "1") as server:
            stream = server.stream(max_tokens=4000)
            stream.read(until_first=True)
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(30), 0)
            with contextlib.suppress(Exception):
                stream.read()
            stream.close()
            self.assertFalse(stream.ended)
            self.assertIn("drain timeout of 1 s is over", server.messages())

    def test_requests_are_logged_without_their_text(self):
        with Server() as server:
            server.complete(prompt="the secret word", max_tokens=2)
            server.signal(signal.SIGTERM)
            server.wait()
            log = server.messages()
            self.assertRegex(log, r' info request \{"id":"cmpl-.*"key":"anonymous".*"finish_reason":"length"')
            self.assertNotIn("secret", log)
        with Server("--no-log-requests") as server:
            server.complete(max_tokens=2)
            server.signal(signal.SIGTERM)
            server.wait()
            self.assertNotIn(" request {", server.messages())


def write_slow_model(folder):
    """The tiny model, with so much that nobody needs in its tokenizer that loading takes a while."""
    model = serving.tiny_model(folder)
    tokenizer = (model / "tokenizer.json").read_text()
    (model / "tokenizer.json").write_text('{"unused": [' + "[0]," * 2_000_000 + "[0]]," + tokenizer[1:])
    return model


class LoadingTest(unittest.TestCase):
    def test_ctrl_c_ends_a_load(self):
        with tempfile.TemporaryDirectory() as folder:
            with Server(models=(write_slow_model(folder),), wait=False) as server:
                self.assertIn(server.get("/health").status, (200, 503))
                self.assertEqual(server.get("/livez").status, 200)
                started = time.monotonic()
                server.signal(signal.SIGINT)
                self.assertEqual(server.wait(), 0, server.messages())
                self.assertLess(time.monotonic() - started, 10)


@needs_model
class HungEngineTest(unittest.TestCase):
    """A step that never comes back, made by stopping the engine's thread as a debugger does."""

    ATTACH, DETACH, WAIT_ALL = 16, 17, 0x40000000  # of ptrace and wait4
    LIBC = ctypes.CDLL(None, use_errno=True)

    def hang_a_step(self, server, thread="engine"):
        """The id of the engine's thread, stopped within a step: between two steps nothing would hang."""
        for _ in range(20):
            engine = self.stop_engine(server, thread)
            if server.settle(lambda: server.get("/health").status == 503, 2):
                return engine
            self.LIBC.ptrace(self.DETACH, engine, None, None)
        self.fail(f"no step hangs; {server.messages()}")

    def stop_engine(self, server, thread):
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
        (engine,) = [int(task.name) for task in tasks.iterdir() if (task / "comm").read_text() == f"{thread}\n"]
        if self.LIBC.ptrace(self.ATTACH, engine, None, None) != 0:
            self.skipTest(f"ptrace: {os.strerror(ctypes.get_errno())}")
        os.waitpid(engine, self.WAIT_ALL)
        return engine

    def bury(self, thread):
        """Whether it has ended. The process is not gone before its tracer, which we are, has seen that."""
        try:
            return os.waitpid(thread, self.WAIT_ALL | os.WNOHANG)[0] == thread
        except ChildProcessError:
            return True

    @serving.hardware
    def test_a_hung_step_turns_health_and_does_not_keep_the_process(self):
        self.check_hung_step("engine", "--batch-max-batch-size", "1")

    @serving.hardware
    def test_the_same_without_batching(self):
        self.check_hung_step("direct", "--no-enable-batching")

    def check_hung_step(self, thread, *options):
        with Server("--step-timeout", "0.5", "--drain-timeout", "1", *options) as server, \
                concurrent.futures.ThreadPoolExecutor(1) as clients:
            stream = server.stream(max_tokens=4000)
            stream.read(until_first=True)
            queued = clients.submit(server.complete, max_tokens=4000)
            self.assertTrue(server.settle(lambda: waiting(server) == 1))
            thread = self.hang_a_step(server, thread)
            try:
                stream.read()
                self.assertFalse(stream.ended, "a request whose step hung must not look whole")
                self.assertEqual(stream.error["code"], "engine_hung", "a timeout would blame the client")
                # One that waited, and one that comes now.
                for refused in (queued.result(serving.PATIENCE_S), server.complete(max_tokens=1)):
                    self.assertEqual((refused.status, refused.json()["error"]["code"]), (503, "engine_hung"))
                server.signal(signal.SIGTERM)
                self.assertTrue(server.settle(lambda: self.bury(thread), 20), "the hung step keeps the process")
                self.assertEqual(server.wait(20), 0)
            finally:  # the process of a stopped thread cannot be waited for
                self.LIBC.ptrace(self.DETACH, thread, None, None)


@needs_model
class ServiceManagerTest(unittest.TestCase):
    def test_notifications(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"{folder}/notify")
            manager.settimeout(serving.PATIENCE_S)
            heard = []

            def hear(word):
                while not heard or word not in heard[-1]:
                    heard.append(manager.recv(4096).decode().splitlines())
                return heard[-1]

            with Server(env={"NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_USEC": "200000"}) as server:
                hear("READY=1")
                self.assertFalse(any("STOPPING=1" in message for message in heard))
                hear("WATCHDOG=1")
                server.signal(signal.SIGHUP)
                self.assertRegex(" ".join(hear("RELOADING=1")), r"MONOTONIC_USEC=\d+")
                hear("READY=1")
                server.signal(signal.SIGTERM)
                hear("STOPPING=1")
                self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    serving.main()
