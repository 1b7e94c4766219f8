"""Nodes behind NVIDIA Dynamo as it comes from PyPI, and the shipped nginx before it: what fleet_dynamo_test.py runs its cases on."""
import ctypes
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server/batch"))
sys.path.insert(0, str(HERE))
from batch_kill_test import free_port  # noqa: E402
from fleet_batch_test import Node, wait_for  # noqa: E402
from fleet_router_test import set_option  # noqa: E402

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
MODEL = "tiny"
PATIENCE_S = 60


def dies_with_us():
    """A sidecar dies with its engine, by its unit; in a test all of them die with the test."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Worker:
    """A node and its sidecar, which are one to Dynamo."""

    def __init__(self, fleet, name):
        self.fleet = fleet
        self.node = Node(fleet.binary, fleet.model, fleet.folder / name, name, fleet.store)
        self.grpc = free_port()
        for option, value in {"node": name, "grpc": f"127.0.0.1:{self.grpc}", "grpc-tokenizer": fleet.tokenizer, "kv-events": "127.0.0.1:0",
                              "batch-block-pool-size": 1024, "batch-max-batch-size": 16}.items():
            set_option(self.node, f"--{option}", value)
        self.sidecar, self.log = None, open(fleet.folder / f"{name}.sidecar", "wb")

    def start(self):
        self.node.start()
        self.sidecar = subprocess.Popen([self.fleet.python, "-m", "dynamo.vllm.sidecar", "--grpc-endpoint", f"127.0.0.1:{self.grpc}"],
                                        env=self.fleet.env, stdout=self.log, stderr=self.log, preexec_fn=dies_with_us)

    def kill(self):
        for process in (self.node.process, self.sidecar):
            process.send_signal(signal.SIGKILL)
        for process in (self.node.process, self.sidecar):
            process.wait()

    def figures(self):
        page = self.node.ask("GET", "/metrics")[1].decode()
        rows = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def figure(self, name):
        return self.figures()[f'{name}{{model_name="{MODEL}"}}']

    def end(self):
        if self.sidecar is not None and self.sidecar.poll() is None:
            self.sidecar.kill()
            self.sidecar.wait()
        self.log.close()
        self.node.end()


class Fleet:
    def __init__(self, options, router="kv", nodes=3, store=None):
        self.binary, self.model, self.tokenizer, self.python = options.binary, options.model, options.tokenizer, options.python
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
        self.router, self.store = router, store
        # Everything of Dynamo's on this machine, and without servers of its own.
        self.env = {**os.environ, "DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": str(self.folder / "discovery"), "DYN_REQUEST_PLANE": "tcp",
                    "DYN_EVENT_PLANE": "zmq", "DYN_TCP_RPC_HOST": "127.0.0.1", "HOME": str(self.folder), "HF_HUB_OFFLINE": "1", "DYN_LOG": "warn"}
        self.workers = [Worker(self, f"n{i + 1}") for i in range(nodes)]
        self.port, self.frontend, self.log = free_port(), None, open(self.folder / "frontend", "wb")

    def __enter__(self):
        try:
            for worker in self.workers:
                worker.start()
            self.frontend = subprocess.Popen(
                [self.python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(self.port), "--router-mode", self.router,
                 "--migration-limit", "3"],
                env=self.env, stdout=self.log, stderr=self.log, preexec_fn=dies_with_us)
            # Every node has answered: Dynamo knows all of them.
            wait_for("every node behind Dynamo", self.knows_all, 120)
            return self
        except BaseException:
            self.__exit__(BaseException)
            raise

    def knows_all(self):
        assert self.frontend.poll() is None, "the frontend has ended"
        try:
            self.complete(f"{random.random()} says hello to all of them.", max_tokens=1)
        except (OSError, AssertionError):
            time.sleep(0.2)
            return False
        return all(worker.figure("vllm:prompt_tokens_total") > 0 for worker in self.workers)

    def __exit__(self, kind, *_):
        if self.frontend is not None:
            self.frontend.kill()
            self.frontend.wait()
        self.log.close()
        for worker in self.workers:
            worker.end()
        for path in [self.folder / "frontend", *self.folder.glob("*.sidecar"), *self.folder.glob("n?/log")] if kind else []:
            sys.stderr.write(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}\n")

    def stream(self, prompt, headers=None, times=None, port=None, **fields):
        """-> the text, and how it ended. Of the frontend, or of what stands before it on another port."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE_S)
        try:
            body = {"model": MODEL, "prompt": prompt, "stream": True, "temperature": 0, **fields}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            assert answer.status == 200, f"{answer.status} {answer.read()[:300]}"
            text, end = "", None
            while line := answer.readline():
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    assert not line.startswith(b"event: error"), answer.read(1000)
                    continue
                for choice in json.loads(line[6:]).get("choices", ()):
                    text += choice.get("text") or ""
                    end = choice.get("finish_reason") or end
                    if times is not None and choice.get("text"):
                        times.append(time.monotonic())
            return text, end
        finally:
            connection.close()

    def complete(self, prompt, headers=None, **fields):
        return self.stream(prompt, headers, ignore_eos=True, **fields)[0]

    def sum(self, name):
        return sum(worker.figure(name) for worker in self.workers)


def start_nginx(fleet):
    """The shipped file, but for the ports."""
    text, port = (HERE.parents[1] / "packaging/dynamo/nginx.conf").read_text(), free_port()
    nodes = [f"  server 127.0.0.1:{worker.node.port};\n" for worker in fleet.workers] + [""] * 2
    for shipped, here in (("127.0.0.1:8001;", f"127.0.0.1:{fleet.port};"), ("listen 8000;", f"listen 127.0.0.1:{port};"),
                          *((f"  server 127.0.0.1:{8080 + i};\n", nodes[i]) for i in range(3))):
        assert shipped in text, shipped
        text = text.replace(shipped, here)
    folder = fleet.folder / "nginx"
    folder.mkdir()
    paths = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(f"{user} daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/log; events {{}} "
                                       f"http {{ access_log off; {paths}\n{text}\n}}\n")
    process = subprocess.Popen([NGINX, "-e", str(folder / "log"), "-c", str(folder / "nginx.conf")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=dies_with_us)
    return process, port, folder / "log"
