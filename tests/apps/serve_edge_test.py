"""Clients that take more than their share of connections, memory and file descriptors, and the others meanwhile."""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import time
import unittest

import serving
from serving import Server

PIPELINED = 1_000_000 if serving.FULL else 60_000
MIB = 1 << 20


def tiny_server(test, *arguments, **more):
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    server = Server("--memory", "1GiB", *arguments, models=(serving.tiny_model(folder.name),), **more)
    test.addCleanup(server.close)
    return server


def pipeline(server, request, count):
    """Sends `request` again and again without waiting for answers, until the server closes or `count` are answered."""
    block = request * 200
    answered, sent, carry = 0, 0, b""
    with socket.create_connection((server.host, server.port)) as client:
        client.setblocking(False)
        offset, until = 0, time.monotonic() + serving.PATIENCE_S
        while answered < count and time.monotonic() < until:
            try:
                sent += client.send(block[offset % len(block):])
                offset = sent
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                return answered
            try:
                data = client.recv(MIB)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return answered
            if not data:
                return answered
            text = carry + data
            answered += text.count(b"HTTP/1.1 200 OK\r\n")
            carry = text[-16:] if b"HTTP/1.1 200 OK\r\n" not in text[-17:] else b""
    return answered


class PipeliningTest(unittest.TestCase):
    def test_memory_does_not_grow_with_what_a_connection_ever_sent(self):
        server = tiny_server(self)
        request = (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Padding: " + b"x" * 380 + b"\r\n\r\n")
        answered = pipeline(server, request, 2000)
        before, connections = server.resident_bytes(), 0
        while answered < PIPELINED:
            got = pipeline(server, request, PIPELINED - answered)
            self.assertGreater(got, 0)
            answered, connections = answered + got, connections + 1
        grown, allowed = server.resident_bytes() - before, 12 * MIB
        print(f"{answered} pipelined requests of {len(request)} bytes over {connections} connections: "
              f"{grown / MIB:.1f} MiB more resident memory; allowed are {allowed / MIB:.0f}", flush=True)
        self.assertLess(grown, allowed)
        self.assertEqual(server.get("/livez").status, 200)


class SilentClientsTest(unittest.TestCase):
    PLACES, SILENT = 200, 260

    def health(self, server, source=None):
        """Seconds until /health has answered."""
        began = time.monotonic()
        with socket.create_connection((server.host, server.port), timeout=30, source_address=source) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 200 "))
        return time.monotonic() - began

    def test_they_shut_nobody_out(self):
        server = tiny_server(self, "--max-connections", str(self.PLACES))
        with contextlib.ExitStack() as stack:
            for i in range(self.SILENT):
                source = (f"127.0.0.{2 + i % 3}", 0)
                client = stack.enter_context(socket.create_connection((server.host, server.port), source_address=source))
                if i % 2:
                    client.sendall(b"GET /health HTT")
            for source in (None, ("127.0.0.2", 0), ("127.0.0.9", 0)):
                self.assertLess(self.health(server, source), 5)
            self.assertLessEqual(server.files(), self.PLACES + 64)


class HalfClosedTest(unittest.TestCase):
    """A client may close its sending side once it has asked."""

    def ask(self, server, **fields):
        """The socket of a completion that takes its time."""
        body = json.dumps({"prompt": "x", "max_tokens": 900, "ignore_eos": True, **fields}).encode()
        client = socket.create_connection((server.host, server.port), timeout=serving.PATIENCE_S)
        self.addCleanup(client.close)
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return client

    def test_generation_goes_on_for_who_reads_and_ends_for_who_is_gone(self):
        server = tiny_server(self)
        for fields, end in (({}, b'"completion_tokens":900'), ({"stream": True}, b"data: [DONE]")):
            client = self.ask(server, **fields)
            client.shutdown(socket.SHUT_WR)
            received = b""
            while piece := client.recv(MIB):
                received += piece
            self.assertIn(b"HTTP/1.1 200 OK", received, fields)
            self.assertIn(end, received, fields)
        clients = [self.ask(server, n=32) for _ in range(4)]
        self.assertTrue(server.settle(lambda: server.gauge("vllm:num_requests_running") > 0))
        for client in clients:
            client.close()

        def cancelled():
            return sum(value for name, value in server.metrics().items()
                       if name.startswith("skein:requests_ended_total") and 'reason="cancelled"' in name)

        self.assertTrue(server.settle(lambda: cancelled() == len(clients)), server.metrics())
        self.assertTrue(server.settle(server.is_idle))


class UnreadLogTest(unittest.TestCase):
    def test_a_stderr_that_nobody_reads_stops_nothing(self):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        server = tiny_server(self, "--drain-timeout", "1", stderr=write)
        os.close(write)
        for i in range(100):  # a line each, some four hundred bytes
            self.assertEqual(server.complete(max_tokens=1).status, 200, i)
        self.assertEqual(server.metrics()["skein:log_dropped_total"], 0)  # they fit into the queue
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait(20), 0)


@serving.needs(shutil.which("prlimit"), "prlimit is not there (Debian's util-linux)")
class FewFilesTest(unittest.TestCase):
    def cpu_seconds(self, server):
        fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_more_clients_than_files_cost_no_cpu_and_shut_nobody_out(self):
        server = tiny_server(self, command=("prlimit", "--nofile=64"))
        with contextlib.ExitStack() as stack:
            for i in range(200):
                client = stack.enter_context(socket.create_connection((server.host, server.port)))
                if i % 4 == 0:
                    client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            before, began = self.cpu_seconds(server), time.monotonic()
            time.sleep(2)
            share = (self.cpu_seconds(server) - before) / (time.monotonic() - began)
            print(f"200 clients on 64 files: {100 * share:.1f} % of a CPU", flush=True)
            self.assertLess(share, 0.1)
            self.assertEqual(server.get("/health").status, 200)
        self.assertEqual(server.complete(max_tokens=1).status, 200)
        self.assertTrue(server.settle(lambda: server.files() < 50, 30))


if __name__ == "__main__":
    unittest.main()
