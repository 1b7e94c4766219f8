"""The wall clock jumps; batches do not expire, keys stay, and rate limits do not refill."""
import json
import pathlib
import tempfile
import time
import unittest

import serving
from serving import Server, in_parallel, needs_model
from serve_disk_test import create_batch, upload

FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
YEAR_S = 365 * 24 * 3600


class ClockTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.offset = self.folder / "offset"
        self.jump("+0")

    def jump(self, to):
        whole = self.offset.with_suffix(".new")  # never seen half written
        whole.write_text(to)
        whole.replace(self.offset)


@serving.needs(FAKETIME.exists(), f"{FAKETIME} is not there (Debian's faketime)")
class ClockJumpTest(ClockTest):
    def complete(self, server, key=None):
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        return server.post("/v1/completions", {"prompt": "x", "max_tokens": 2}, headers)

    def test_a_jump_expires_nothing(self):
        state = self.folder / "state"
        root = serving.add_key(state, "root", "--admin")
        limited = serving.add_key(state, "limited", "--rpm", "2")
        env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.offset), "FAKETIME_NO_CACHE": "1",
               "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        # The file that the offset comes from is nothing a sandbox would let the server read.
        with Server("--no-sandbox", "--batch-lines", 1, models=[serving.tiny_model(self.folder)], state_dir=state,
                    env=env) as server:
            server.key = root
            body = {"max_tokens": 200, "ignore_eos": True}
            text = "".join(json.dumps({"custom_id": f"c{i}", "method": "POST", "url": "/v1/completions",
                                       "body": {**body, "prompt": f"{i}"}}) + "\n" for i in range(12))
            batch = create_batch(server, upload(server, text).json()["id"]).json()["id"]
            path = f"/v1/batches/{batch}"
            done = lambda: server.get(path).json()["request_counts"]["completed"]
            self.assertTrue(server.settle(lambda: done() >= 1))
            for _ in range(2):
                self.assertEqual(self.complete(server, limited).status, 200)
            self.assertEqual(self.complete(server, limited).status, 429)
            before = self.complete(server).json()["created"]
            self.jump(f"+{YEAR_S}")
            self.assertGreater(self.complete(server).json()["created"], before + YEAR_S - 60)  # it is seen
            self.assertEqual(self.complete(server, limited).status, 429)
            seen = done()
            self.assertTrue(server.settle(lambda: done() > seen or server.get(path).json()["status"] != "in_progress"))
            self.jump(f"-{YEAR_S}")
            self.assertTrue(server.settle(lambda: server.get(path).json()["status"] not in ("in_progress", "finalizing")))
            record = server.get(path).json()
            self.assertEqual((record["status"], record["request_counts"]["completed"]), ("completed", 12), record)
            self.assertEqual(self.complete(server).status, 200)


@needs_model
@serving.needs(FAKETIME.exists(), f"{FAKETIME} is not there (Debian's faketime)")
class QueueTest(ClockTest):
    """The clock jumps by an hour; nothing that waits, ages or times out notices."""

    WAITING = 6

    def jumps(self):
        for to in ("+3600", "-3600", "+3600", "+0") * 3:
            self.jump(to)
            time.sleep(0.1)

    def wait_in_line(self, server, i, path="/v1/completions"):
        """Sends the i-th request when those before it are there; its id."""
        names = ("num_requests_waiting", "num_requests_running", "e2e_request_latency_seconds_count")
        samples = [f'vllm:{name}{{model_name="{serving.MODEL.stem}"}}' for name in names]
        until = time.monotonic() + serving.PATIENCE_S
        while sum(map(server.metrics().get, samples)) <= i:
            self.assertLess(time.monotonic(), until, "the one before has not arrived")
            time.sleep(0.01)
        answer = server.post(path, {"prompt": "x", "max_tokens": 4, "ignore_eos": True},
                             {"X-Request-Timeout-Ms": "110000"})
        self.assertEqual(answer.status, 200)
        return answer.json()["id"]

    def check_order(self, server, ids):
        """The log has a line for each request, as they ended; one ran at a time."""
        until = time.monotonic() + 10
        while not all(id in server.messages() for id in ids) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(ids, sorted(ids, key=server.messages().index))

    def test_jumps_change_neither_order_nor_timeouts(self):
        env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.offset), "FAKETIME_NO_CACHE": "1",
               "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        # A class is worth 1,000 s: an hour that is not one must not let LOW pass.
        # The library reads its file whenever the time is asked for, which a sandbox would not let it.
        with Server("--batch-max-batch-size", "1", "--aging-rate", "0.001", "--no-sandbox", env=env) as server:
            before = server.complete(max_tokens=1).json()["created"]
            self.jump("+3600")
            self.assertGreater(server.complete(max_tokens=1).json()["created"], before + 3000)
            running = server.stream(max_tokens=150).read(until_first=True)
            work = [lambda: self.wait_in_line(server, 2, "/v1/batch/completions"), self.jumps]
            work += [lambda i=i: self.wait_in_line(server, i) for i in range(3, self.WAITING + 2)]
            low, _, *normal = in_parallel(len(work), lambda i: work[i]())
            self.check_order(server, [*normal, low])
            self.assertTrue(running.read().ended)
            # A deadline still is one.
            self.jump("-3600")
            running = server.stream(max_tokens=400).read(until_first=True)
            late = server.complete(max_tokens=4, headers={"X-Request-Timeout-Ms": "200"})
            self.assertEqual(late.status, 408)
            self.assertLess(max(v for k, v in server.metrics().items() if k.startswith("skein:queue_age")), 600)
            running.close()


if __name__ == "__main__":
    serving.main()
