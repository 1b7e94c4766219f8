"""What a sandboxed server can still do, and what it cannot: the real binary, from the outside."""
import os
import pathlib
import re
import shutil
import signal
import tempfile
import unittest

import serving
from serving import Server


def status_of(pid):
    """/proc/PID/status of every thread, as dictionaries."""
    pages = (task.joinpath("status").read_text() for task in pathlib.Path(f"/proc/{pid}/task").iterdir())
    return [dict(line.split(":\t", 1) for line in page.splitlines() if ":\t" in line) for page in pages]


def children_of(pid):
    return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            for child in task.joinpath("children").read_text().split()]


class SandboxTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tiny = serving.tiny_model(self.folder)

    def another_model(self, name):
        """A model in a folder of its own, outside of all that a server was told about."""
        folder = self.folder / f"{name}-elsewhere"
        folder.mkdir()
        return serving.tiny_model(folder)

    def complete(self, server, model):
        return server.complete(model=model, max_tokens=2, prompt="a")

    def load_after_reload(self, server, model):
        server.signal(signal.SIGHUP)
        server.settle(lambda: self.complete(server, model).status != 404)
        return self.complete(server, model)

    def test_every_thread_of_the_server_and_of_the_checker_is_restricted(self):
        with Server("--sandbox", models=(self.tiny,)) as server:
            server.logged("sandbox: files and connections by Landlock")
            server.logged("system calls by seccomp")
            checkers = children_of(server.process.pid)
            self.assertEqual(len(checkers), 1)
            tasks = status_of(server.process.pid)
            self.assertGreater(len(tasks), 4)
            for task in [*tasks, *status_of(checkers[0])]:
                self.assertEqual((task["Seccomp"], task["NoNewPrivs"]), ("2", "1"), task["Name"])
            server.process.kill()
            server.process.wait()
            self.assertTrue(server.settle(lambda: not os.path.exists(f"/proc/{checkers[0]}")),
                            "the checker outlives the server")

    def test_without_a_sandbox_there_is_none(self):
        with Server("--no-sandbox", models=(self.tiny,)) as server:
            self.assertNotIn("sandbox:", server.messages())
            self.assertEqual({task["Seccomp"] for task in status_of(server.process.pid)}, {"0"})
            self.assertEqual(children_of(server.process.pid), [])

    def test_links_of_the_hugging_face_cache_are_followed(self):
        repository = self.folder / "hub/models--org--tiny"
        snapshot = repository / "snapshots/1234"
        blobs = self.folder / "another-disk/blobs"
        snapshot.mkdir(parents=True)
        blobs.mkdir(parents=True)
        (repository / "blobs").symlink_to(blobs)
        for number, file in enumerate(sorted(self.tiny.iterdir())):
            shutil.copy(file, blobs / str(number))
            (snapshot / file.name).symlink_to(f"../../blobs/{number}")
        with Server("--sandbox", models=("org/tiny",), env={"HF_HUB_CACHE": str(self.folder / "hub")}) as server:
            self.assertEqual(self.complete(server, "org/tiny").status, 200)

    def test_links_out_of_the_model_folder_are_followed_if_they_were_there_at_the_start(self):
        models = self.folder / "models"
        models.mkdir()
        (models / "early").symlink_to(self.another_model("early"))
        with Server("--sandbox", models=(self.tiny,), model_folder=models) as server:
            self.assertEqual(self.complete(server, "early").status, 200)

            shutil.copytree(self.another_model("inside"), models / "inside")
            self.assertEqual(self.load_after_reload(server, "inside").status, 200)

            target = self.another_model("late")
            (models / "late").symlink_to(target)
            answer = self.load_after_reload(server, "late")
            self.assertGreaterEqual(answer.status, 400)
            server.logged(re.escape(str(target)))  # what the client is told is not where files lie
            server.logged("--no-sandbox")
            self.assertEqual(self.complete(server, "tiny").status, 200, "the server goes on")

    def test_a_broken_model_is_refused_in_the_same_words_as_without(self):
        broken = self.folder / "broken.gguf"
        broken.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + (1 << 60).to_bytes(8, "little") + bytes(100))
        unlike = self.another_model("unlike")
        config = unlike / "config.json"
        config.write_text(config.read_text().replace('"hidden_size"', '"hidden_sighs"'))
        for model in (broken, unlike):
            said = []
            for flag in ("--sandbox", "--no-sandbox"):
                done = serving.run("serve", "--state-dir", self.folder / "state", "--model-folder", self.folder / "none",
                                   "--port", "0", "--model", model, flag)
                self.assertEqual(done.returncode, 1)
                said.append([line for line in done.stderr.splitlines() if line.startswith("skein: ")])
            self.assertIn(str(model), said[0][0])
            self.assertEqual(said[0], said[1])


if __name__ == "__main__":
    unittest.main()
