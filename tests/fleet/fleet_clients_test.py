#!/usr/bin/env python3
"""The clients that people have (tests/apps/serve_clients_test.py, as it is) on three nodes behind HAProxy.

    tests/fleet/with_postgres.sh tests/fleet/fleet_clients_test.py build/skein [OpenAiTest.test_chat ...]

What fills the queue of one node is left out: a fleet has others, and says 503 when all are full (fleet_router_test.py, errors).
"""
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
from fleet_batch_test import Node, schema_of  # noqa: E402
from fleet_router_test import set_option  # noqa: E402
from fleet_test import HAPROXY, Front, make_key, start_haproxy  # noqa: E402

CLASSES = ("OpenAiTest", "AnthropicTest", "LangChainTest", "CurlTest")


class OneNodesQueue(Exception):
    """What follows in a test is about the queue of one node."""


class FleetState:
    """Stands where serve_clients_test has one server."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        folder, store = pathlib.Path(self.folder.name), schema_of(os.environ["SKEIN_TEST_STORE"], "clients")
        self.key = make_key(sys.argv[1], store, "app")
        self.narrow = make_key(sys.argv[1], store, "narrow", "--models", "other")
        self.nodes = [Node(sys.argv[1], serving.MODEL, folder / name, name, store, 5) for name in ("n1", "n2", "n3")]
        for node in self.nodes:
            for name, value in zip(serve_clients_test.LIMITS[::2], serve_clients_test.LIMITS[1::2]):
                set_option(node, name, value)
            set_option(node, "--served-model-name", serve_clients_test.NAME)
            set_option(node, "--memory", "1GiB")
            node.start()
        self.haproxy, self.port = start_haproxy(folder, self.nodes)
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
        self.haproxy.kill()
        self.haproxy.wait()
        for node in self.nodes:
            node.end()
        self.folder.cleanup()


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
    if not os.access(HAPROXY, os.X_OK):
        print("fleet clients: there is no haproxy; tools/setup.sh fleet installs it")
        return 1 if serving.REQUIRE_ALL else 77
    serve_clients_test.State, serving.FullQueue = FleetState, no_queue
    for name in CLASSES:
        case = getattr(serve_clients_test, name)
        for test in [each for each in dir(case) if each.startswith("test_")]:
            setattr(case, test, until_a_queue(getattr(case, test)))
    names = sys.argv[2:] or CLASSES
    suite = unittest.TestLoader().loadTestsFromNames(names, serve_clients_test)
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    if result.wasSuccessful() and result.testsRun == len(result.skipped):
        return 77
    print(f"fleet clients: {result.testsRun} tests of openai, anthropic, LangChain and curl through HAProxy to three nodes, "
          f"{len(result.failures) + len(result.errors)} failed")
    return not result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
