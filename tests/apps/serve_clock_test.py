"""The wall clock jumps; batches do not expire, keys stay, and rate limits do not refill."""
import json
import pathlib
import tempfile
import unittest

import serving
from serving import Server
from serve_disk_test import create_batch, upload

FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
YEAR_S = 365 * 24 * 3600


@serving.needs(FAKETIME.exists(), f"{FAKETIME} is not there (Debian's faketime)")
class ClockJumpTest(unittest.TestCase):
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


if __name__ == "__main__":
    unittest.main()
