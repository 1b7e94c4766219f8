"""Text work and memory under pressure: probes are answered, a drain ends in time, nothing passes its budget."""
import concurrent.futures
import http.client
import json
import pathlib
import resource
import signal
import tempfile
import threading
import time
import unittest

import serving
from serving import FULL, Server

MIB = 1 << 20
FLOODS = 8  # clients of a LOW key
CHOICES = 512
WATCH_S = 20 if FULL else 3
# The figure to hold, and in the short form one that a busy machine holds too: it was 25 s and 46 s.
LIVEZ_P99_S = 0.1 if FULL else 2
DRAIN_S = 1
GONE = (OSError, http.client.HTTPException)  # what a client sees when the server ends
EXIT_S = DRAIN_S + 2 if FULL else 10  # it was 30 s


class FloodTest(unittest.TestCase):
    """Eight LOW clients send 8 MiB texts to /tokenize while a request of 512 choices is explained."""

    def flood(self, server, key, stop):
        body = json.dumps({"prompt": " " * (8 * MIB - 64)})
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        while not stop.is_set():
            try:
                connection = server.connect()
                connection.request("POST", "/tokenize", body, headers)
                connection.getresponse().read()
            except GONE:
                return
            finally:
                connection.close()

    def explain(self, server, key, stop):
        headers = {"Authorization": f"Bearer {key}"}
        while not stop.is_set():
            fields = {"prompt": ["Once"] * (CHOICES // 128), "n": 128, "stream": True, "max_tokens": 400,
                      "ignore_eos": True}
            try:
                connection, response = server.send("POST", "/v1/completions", fields, headers)
                while response.status == 200 and not stop.is_set():
                    line = response.readline()
                    if not line.startswith(b"data: {"):
                        if not line:
                            break
                        continue
                    request = json.loads(line[6:])["id"]
                    for _ in range(20):
                        server.get(f"/v1/requests/{request}", **headers)
                        if stop.is_set():
                            break
                    break
                connection.close()
            except GONE:
                return

    def test_probes_are_answered_and_a_drain_ends_in_time(self):
        with tempfile.TemporaryDirectory() as folder:
            model = serving.MODEL if FULL else serving.tiny_model(folder)
            state = pathlib.Path(folder, "state")
            key = serving.add_key(state, "flood", "--tier", "low")
            with Server("--drain-timeout", DRAIN_S, models=(model,), state_dir=state) as server:
                stop = threading.Event()
                threads = [threading.Thread(target=self.flood, args=(server, key, stop)) for _ in range(FLOODS)]
                threads += [threading.Thread(target=self.explain, args=(server, key, stop)) for _ in range(2)]
                for thread in threads:
                    thread.start()
                waits, until = [], time.monotonic() + WATCH_S
                while time.monotonic() < until or len(waits) < 20:
                    asked = time.monotonic()
                    self.assertEqual(server.get("/livez").status, 200)
                    waits.append(time.monotonic() - asked)
                server.signal(signal.SIGTERM)
                asked = time.monotonic()
                code = server.wait()
                took = time.monotonic() - asked
                stop.set()
                for thread in threads:
                    thread.join()
        p99 = serving.percentile(waits, 0.99)
        print(f"\n/livez under a flood of text: p99 {1000 * p99:.0f} ms of {len(waits)}; SIGTERM: {took:.1f} s")
        self.assertEqual(code, 0)
        self.assertLess(p99, LIVEZ_P99_S)
        self.assertLess(took, EXIT_S)


class MemoryTest(unittest.TestCase):
    def chats(self, server, count, size):
        body = {"messages": [{"role": "user", "content": "x" * size}], "max_tokens": 1}

        def ask(_):
            try:
                return server.post("/v1/chat/completions", body).status
            except GONE as error:
                return f"{error}"
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return list(pool.map(ask, range(count)))

    def squeezed(self, *arguments):
        """The statuses of 12 chats of 7.5 MB on a server that may take 96 MiB more than it has."""
        with tempfile.TemporaryDirectory() as folder, \
                Server(*arguments, models=(serving.tiny_model(folder),)) as server:
            self.assertEqual(server.complete(max_tokens=2).status, 200)
            idle = server.resident_bytes()
            size = int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[0])
            limit = size * resource.getpagesize() + 96 * MIB
            resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
            statuses = self.chats(server, 12, 7_500_000)
            print(f"\n12 chats of 7.5 MB {arguments}: {statuses}; RSS {idle / MIB:.0f} -> "
                  f"{server.resident_bytes() / MIB:.0f} MiB")
            self.assertIsNone(server.process.poll(), server.messages())
            self.assertEqual(server.complete(max_tokens=2).status, 200, server.messages())
            return statuses

    def test_a_server_without_memory_refuses_and_lives(self):
        self.squeezed("--request-memory", "1GiB")

    def test_bodies_beyond_the_budget_are_refused(self):
        statuses = self.squeezed("--request-memory", "64MiB")
        self.assertIn(503, statuses)
        # Whoever got in is told that the text is too long for the model's context.
        self.assertLessEqual(set(statuses), {400, 503})


if __name__ == "__main__":
    unittest.main()
