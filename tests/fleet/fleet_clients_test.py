#!/usr/bin/env python3
"""The clients that people have (tests/apps/serve_clients_test.py, as it is) on three nodes behind HAProxy, or behind vLLM's router.

    tests/fleet/with_postgres.sh tests/fleet/fleet_clients_test.py build/skein [--vllm-router] [OpenAiTest.test_chat ...]

vLLM's router is the one of PyPI, in build/venv-router (tools/python_env.sh router); behind it 200 bad requests must leave good ones alone, too. Version 0.1.16 passes neither
x-api-key nor keys of what it asks nodes itself nor uploads on, so that what needs those is left out there. What fills the queue of one node is left out: a fleet has others, and says 503 when all are full (fleet_router_test.py, errors).
"""
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE.parents[1] / "build/venv"
if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), "-B", "-X", f"pycache_prefix={VENV}/pycache", *sys.argv])
for folder in (HERE, HERE.parent / "server/batch", HERE.parent / "apps"):
    sys.path.insert(0, str(folder))
os.environ["SKEIN_TEST_BINARY"] = sys.argv[1]
import serve_clients_test  # noqa: E402
import serving  # noqa: E402
from batch_kill_test import free_port  # noqa: E402
from fleet_batch_test import Node, schema_of, wait_for  # noqa: E402
from fleet_router_test import set_option  # noqa: E402
from fleet_test import HAPROXY, Front, make_key, start_haproxy  # noqa: E402

CLASSES = ("OpenAiTest", "AnthropicTest", "LangChainTest", "CurlTest")
NOT_BY_ROUTER = ("OpenAiTest.test_models", "OpenAiTest.test_files_and_batches", "AnthropicTest.test_async", "AnthropicTest.test_errors",
                 "AnthropicTest.test_messages", "CurlTest.test_plain_stream_and_upload")
ROUTER = HERE.parents[1] / "build/venv-router/bin/python"
BY_ROUTER = "--vllm-router" in sys.argv
# As docs/FLEET.md says: a node that is full or draining is tried no more than twice, and noticed within a second.
START_ROUTER = """
import sys
from vllm_router.router import Router
from vllm_router.router_args import RouterArgs
Router.from_args(RouterArgs(worker_urls=sys.argv[2:], port=int(sys.argv[1]), policy="consistent_hash", retry_max_retries=2, health_check_interval_secs=1,
                            cb_failure_threshold=1, worker_startup_check_interval=1, log_level="error")).start()
"""


def start_router(folder, nodes):
    port = free_port()
    with open(folder / "router.log", "wb") as log:
        process = subprocess.Popen([ROUTER, "-c", START_ROUTER, str(port), *(f"http://127.0.0.1:{node.port}" for node in nodes)], stdout=log, stderr=log)
    wait_for("vLLM's router", lambda: is_up(port), 60)
    return process, port


def is_up(port):
    try:
        return Front(port).ask("GET", "/health")[0] == 200
    except OSError:
        return False


class OneNodesQueue(Exception):
    """What follows in a test is about the queue of one node."""


class FleetState:
    """Stands where serve_clients_test has one server."""

    made = itertools.count()

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        folder, store = pathlib.Path(self.folder.name), schema_of(os.environ["SKEIN_TEST_STORE"], f"clients{next(self.made)}")
        self.key = make_key(sys.argv[1], store, "app")
        self.narrow = make_key(sys.argv[1], store, "narrow", "--models", "other")
        self.nodes = [Node(sys.argv[1], serving.MODEL, folder / name, name, store, 5) for name in ("n1", "n2", "n3")]
        for node in self.nodes:
            for name, value in zip(serve_clients_test.LIMITS[::2], serve_clients_test.LIMITS[1::2]):
                set_option(node, name, value)
            set_option(node, "--served-model-name", serve_clients_test.NAME)
            set_option(node, "--memory", "1GiB")
            node.start()
        self.router, self.port = (start_router if BY_ROUTER else start_haproxy)(folder, self.nodes)
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = self

    def gauge(self, name):
        """Of all nodes together."""
        total = 0
        for node in self.nodes:
            page = Front(node.port, self.key).ask("GET", "/metrics")[2].decode()
            total += sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.split("{")[0] == name)
        return total

    def settle(self, condition, seconds=serving.PATIENCE_S):
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def close(self):
        self.router.kill()
        self.router.wait()
        for node in self.nodes:
            node.end()
        self.folder.cleanup()


def bad_requests():
    """200 of them, of three kinds -> (those that got their own codes, good ones between them that were answered, of how many)."""
    state = FleetState()
    try:
        good, bad, wrong = Front(state.port, state.key), Front(state.port, state.key), Front(state.port, "sk-wrong")
        body = {"model": serve_clients_test.NAME, "prompt": "Hello", "max_tokens": 2}
        own = answered = 0
        for i in range(200):
            status = (wrong.ask("POST", "/v1/completions", body) if i % 4 == 0 else
                      bad.ask("POST", "/v1/completions", {**body, "temperature": 99} if i % 4 < 3 else {**body, "model": "nobody"}))[0]
            own += status == (401, 400, 400, 404)[i % 4]
            answered += i % 5 == 0 and good.ask("POST", "/v1/completions", body)[0] == 200
        return own, answered, 40
    finally:
        state.close()


def no_queue(*_):
    raise OneNodesQueue


def until_a_queue(test):
    def run(self):
        try:
            test(self)
        except OneNodesQueue:
            pass

    return run


def main():
    if not os.environ.get("SKEIN_TEST_STORE"):
        sys.exit("fleet clients: run it with tests/fleet/with_postgres.sh")
    if not os.access(ROUTER if BY_ROUTER else HAPROXY, os.X_OK):
        print(f"fleet clients: there is no {'router of vLLM; tools/python_env.sh router' if BY_ROUTER else 'haproxy; tools/setup.sh fleet'} installs it")
        return 1 if serving.REQUIRE_ALL else 77
    serve_clients_test.State, serving.FullQueue = FleetState, no_queue
    for name in CLASSES:
        case = getattr(serve_clients_test, name)
        for test in [each for each in dir(case) if each.startswith("test_")]:
            setattr(case, test, until_a_queue(getattr(case, test)))
    names = [name for name in sys.argv[2:] if not name.startswith("--")] or CLASSES
    for name in NOT_BY_ROUTER if BY_ROUTER else ():
        kind, _, test = name.partition(".")
        delattr(getattr(serve_clients_test, kind), test)
    suite = unittest.TestLoader().loadTestsFromNames(names, serve_clients_test)
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    if result.wasSuccessful() and result.testsRun == len(result.skipped):
        return 77
    by = "vLLM's router" if BY_ROUTER else "HAProxy"
    print(f"fleet clients: {result.testsRun} tests of openai, anthropic, LangChain and curl through {by} to three nodes, "
          f"{len(result.failures) + len(result.errors)} failed")
    if BY_ROUTER:
        own, answered, good = bad_requests()
        print(f"fleet clients: {own} of 200 bad requests got their own codes through vLLM's router, and {answered} of {good} good ones between them were answered")
        return not (result.wasSuccessful() and own == 200 and answered == good)
    return not result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
