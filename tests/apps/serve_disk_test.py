"""A full disk: the server goes on, says so, and what frees room always works."""
import json
import os
import pathlib
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest

import serving
from serving import Server

BOUNDARY = "skein-disk-test"
URL = "/v1/completions"


def upload(server, content):
    """The answer to an upload of `content` as a batch's input."""
    form = (f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
            f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n"
            f"{content}\r\n--{BOUNDARY}--\r\n")
    connection = server.connect()
    connection.request("POST", "/v1/files", form.encode(), {
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Authorization": f"Bearer {server.key}"})
    return serving.Answer(connection, connection.getresponse())


def delete(server, path):
    return serving.Answer(*server.send("DELETE", path))


def create_batch(server, file):
    return server.post("/v1/batches", {"input_file_id": file, "endpoint": URL, "completion_window": "24h"},
                       {"Content-Type": "application/json"})


def lines(count):
    return "".join(json.dumps({"custom_id": f"c{i}", "method": "POST", "url": URL,
                               "body": {"prompt": f"{i}", "max_tokens": 2}}) + "\n" for i in range(count))


class DiskTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = serving.tiny_model(self.folder.name)
        self.disk = pathlib.Path(self.folder.name, "disk")
        self.disk.mkdir()

    def small_disk(self, size, files=0):
        """`files`: how many it can name; 0: the kernel's default."""
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={files}" if files else f"size={size}", "tmpfs", self.disk]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            self.skipTest("only root mounts a small disk, and not in every container")
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True)

    def fill(self):
        with open(self.disk / "filler", "ab", buffering=0) as filler:
            for size in (65536, 4096):
                try:
                    while filler.write(bytes(size)):
                        pass
                except OSError:
                    pass

    def with_key(self, server, key, call):
        server.key, before = key, server.key
        try:
            return call()
        finally:
            server.key = before

    def complete(self, server, key):
        return self.with_key(server, key, lambda: server.post(
            URL, {"prompt": "x", "max_tokens": 2}, {"Content-Type": "application/json"})).status

    def respond(self, server, key):
        return self.with_key(server, key, lambda: server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "seed": 1}))

    def check_full(self, answer):
        self.assertEqual(answer.status, 507, answer.body)
        error = answer.json()["error"]
        self.assertEqual(error["code"], "storage_full")
        self.assertNotIn("shutting down", error["message"])

    @serving.hardware
    def test_a_full_disk_stops_uploads_and_nothing_else(self):
        self.small_disk("2m")
        state = self.disk / "state"
        root = serving.add_key(state, "root", "--admin")
        users = {name: serving.add_key(state, name) for name in ("u", "v")}
        with Server("--min-free-disk", "256KiB", models=[self.model], state_dir=state) as server:
            server.key = root
            self.assertTrue((state / "ballast").exists())
            self.assertEqual(server.get("/health").json()["status"], "ok")
            self.assertGreater(server.gauge("skein:state_free_bytes"), 256 << 10)
            kept = upload(server, lines(3)).json()["id"]
            response = self.respond(server, users["u"]).json()
            self.assertTrue(response["store"])
            big = []
            while (answer := upload(server, "x" * 200_000)).status == 200:
                big.append(answer.json()["id"])
            self.check_full(answer)
            self.assertTrue(big)
            self.fill()
            # What the database gives back when room is short is filled up as well.
            self.assertTrue(server.settle(lambda: self.fill() or server.gauge("skein:state_free_bytes") < 4096))
            health = server.get("/health")
            self.assertEqual((health.status, health.json()["status"]), (200, "degraded"))
            self.check_full(upload(server, lines(3)))
            self.check_full(create_batch(server, kept))
            self.check_full(server.post("/admin/keys", {"name": "w"}, {"Content-Type": "application/json"}))
            self.assertEqual(self.complete(server, users["u"]), 200)
            # An answer that cannot be kept is whole, and says so.
            unkept = self.respond(server, users["u"]).json()
            self.assertEqual((unkept["store"], len(unkept["output"])), (False, 1))
            self.assertEqual(server.get(f"/v1/responses/{unkept['id']}").status, 404)
            self.assertEqual(delete(server, f"/v1/responses/{response['id']}").status, 200)
            # What frees room works, from the server and from beside it.
            self.assertEqual(delete(server, "/admin/keys/u").status, 200)
            self.assertEqual(self.complete(server, users["u"]), 401)
            revoked = serving.run("keys", "revoke", "v", "--state-dir", state)
            self.assertEqual(revoked.returncode, 0, revoked.stderr)
            self.assertTrue(server.settle(lambda: self.complete(server, users["v"]) == 401, 20))
            self.assertEqual(delete(server, f"/v1/files/{big[0]}").status, 200)
            # Room again: everything goes on by itself.
            (self.disk / "filler").unlink()
            for file in big[1:]:
                self.assertEqual(delete(server, f"/v1/files/{file}").status, 200)
            self.assertTrue(server.settle(lambda: server.get("/health").json()["status"] == "ok", 20))
            self.assertTrue(server.settle(lambda: (state / "ballast").exists(), 20))
            self.assertTrue(self.respond(server, root).json()["store"])
            batch = create_batch(server, kept)
            self.assertEqual(batch.status, 200, batch.body)
            path = f"/v1/batches/{batch.json()['id']}"
            self.assertTrue(server.settle(lambda: server.get(path).json()["status"] == "completed", 60))
            self.assertEqual(server.get(path).json()["request_counts"]["completed"], 3)
        with sqlite3.connect(state / "skein.db") as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")

    @serving.hardware
    def test_a_disk_without_names_for_files_is_full(self):
        self.small_disk("300m", files=100)
        state = self.disk / "state"
        root = serving.add_key(state, "root", "--admin")
        with Server(models=[self.model], state_dir=state) as server:
            server.key = root
            answers = [upload(server, "x").status for _ in range(60)]
            self.assertEqual((answers[0], answers[-1]), (200, 507), answers)
            self.assertEqual(upload(server, "x").json()["error"]["code"], "storage_full")
            self.assertEqual(server.complete(max_tokens=2).status, 200)
            self.assertEqual(server.get("/health").json()["status"], "degraded")

    @serving.hardware
    def test_keys_are_revoked_on_a_full_disk_without_a_server(self):
        self.small_disk("2m")
        state = self.disk / "state"
        serving.add_key(state, "u")
        with Server(models=[self.model], state_dir=state):
            self.assertTrue((state / "ballast").exists())
        self.fill()
        done = serving.run("keys", "revoke", "u", "--state-dir", state)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("revoked", serving.run("keys", "list", "--all", "--state-dir", state).stdout)

    def test_a_revoked_key_is_refused_before_the_database_takes_it(self):
        state = pathlib.Path(self.folder.name, "state")
        root, user = serving.add_key(state, "root", "--admin"), serving.add_key(state, "u")
        with Server(models=[self.model], state_dir=state) as server:
            server.key = root
            self.assertEqual(self.complete(server, user), 200)
            lock = sqlite3.connect(state / "skein.db", isolation_level=None)
            lock.execute("BEGIN IMMEDIATE")  # until the server's patience of five seconds is over
            answers = []
            thread = threading.Thread(target=lambda: answers.append(delete(server, "/admin/keys/u")))
            thread.start()
            until = time.monotonic() + 4
            while self.complete(server, user) != 401:
                self.assertLess(time.monotonic(), until, "the key is still taken")
                self.assertFalse(answers)
            thread.join()
            self.assertEqual(answers[0].status, 503, answers[0].body)
            self.assertIn("could not be written", answers[0].json()["error"]["message"])
            lock.execute("ROLLBACK")
            lock.close()
            self.assertEqual(self.complete(server, user), 401)
            until = time.monotonic() + 30  # the server writes it as soon as it can, without being asked again
            with sqlite3.connect(state / "skein.db") as written:
                while written.execute("SELECT revoked_at FROM keys WHERE name = 'u'").fetchone() == (None,):
                    self.assertLess(time.monotonic(), until, "the revoke is not written")
                    time.sleep(0.1)
            self.assertEqual(delete(server, "/admin/keys/u").status, 404)

    def test_a_backup_of_a_running_server_is_served_from(self):
        state, copy = pathlib.Path(self.folder.name, "state"), pathlib.Path(self.folder.name, "copy")
        root = serving.add_key(state, "root", "--admin")
        with Server(models=[self.model], state_dir=state) as server:
            server.key = root
            file = upload(server, lines(3)).json()["id"]
            done = serving.run("backup", "--state-dir", state, "--to", copy)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(serving.run("backup", "--state-dir", state, "--to", copy).returncode, 1)
            late = upload(server, lines(3)).json()["id"]
        with Server(models=[self.model], state_dir=copy) as server:
            server.key = root
            self.assertEqual(server.get(f"/v1/files/{file}/content").body.decode(), lines(3))
            self.assertEqual(server.get(f"/v1/files/{late}").status, 404)
            path = f"/v1/batches/{create_batch(server, file).json()['id']}"
            self.assertTrue(server.settle(lambda: server.get(path).json()["status"] == "completed", 60))

    def test_a_key_has_limits_of_files(self):
        state = pathlib.Path(self.folder.name, "state")
        root = serving.add_key(state, "root", "--admin")
        with Server("--max-files-per-key", 2, "--max-file-bytes-per-key", "1000", "--max-files", 3, models=[self.model],
                    state_dir=state) as server:
            server.key = root
            self.assertEqual(upload(server, "x" * 600).status, 200)
            for content in ("x" * 600, "x" * 400_000):
                refused = upload(server, content)
                self.assertEqual(refused.status, 403, refused.body)
                self.assertEqual(refused.json()["error"]["code"], "file_quota_exceeded")
            self.assertEqual(upload(server, "x" * 100).status, 200)
            refused = upload(server, "x")
            self.assertEqual(refused.json()["error"]["code"], "file_quota_exceeded")
            self.assertIn("2 files, and 2 is the most", refused.json()["error"]["message"])
            self.assertEqual(len(list((state / "files").iterdir())), 2)


if __name__ == "__main__":
    serving.main()
