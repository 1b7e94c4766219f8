"""`skein serve --device`: what computes, what the log says of it, and what is refused."""
import os
import pathlib
import tempfile
import unittest

import serving
from serving import Server

HAS_GPU = pathlib.Path("/dev/nvidiactl").exists()
LOSER = os.environ.get("SKEIN_TEST_LOSER")  # what tests/apps/lose_device.cpp became


class DeviceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tiny = serving.tiny_model(self.folder)

    def answer(self, *options):
        """What a server with these options says, and its log."""
        with Server(*options, models=(self.tiny,)) as server:
            reply = server.complete(model="tiny", max_tokens=12, temperature=0, prompt="Once upon a time")
            self.assertEqual(reply.status, 200)
            return reply.json()["choices"][0]["text"], server.messages()

    def refusal(self, device):
        done = serving.run("serve", "--port", "0", "--state-dir", str(self.folder / "state"), "--model", str(self.tiny),
                           "--device", device)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_the_cpu_serves_where_it_is_asked_for(self):
        _, log = self.answer("--device", "cpu")
        self.assertIn("computes on cpu/", log)
        self.assertNotIn("no GPU is used", log)

    def test_auto_says_what_it_found(self):
        _, log = self.answer("--device", "auto")
        if HAS_GPU:
            self.assertIn("computes on cuda/", log)
        else:
            self.assertIn("computes on cpu/", log)
            self.assertRegex(log, "no GPU is used: (CUDA: this machine has no NVIDIA driver|this skein was built without CUDA)")

    def test_auto_with_an_instruction_set_is_the_cpu(self):
        _, log = self.answer("--device", "auto", "--cpu-isa", "scalar")
        self.assertIn("computes on cpu/scalar", log)

    def test_a_device_that_is_not_there_is_refused_with_the_reason(self):
        self.assertRegex(self.refusal("cuda:99"), "CUDA")
        if not HAS_GPU:
            self.assertRegex(self.refusal("cuda"), "no NVIDIA driver|built without CUDA")

    def test_what_is_no_device_is_refused_with_what_there_is(self):
        self.assertIn("'abacus' is no backend; there are cpu, reference, cuda", self.refusal("abacus"))

    @unittest.skipUnless(HAS_GPU, "no NVIDIA device")
    def test_the_sandbox_lets_the_device_through(self):
        inside, log = self.answer("--device", "cuda", "--sandbox")
        self.assertIn("sandbox: ", log)
        self.assertIn("computes on cuda/", log)
        self.assertEqual(inside, self.answer("--device", "cuda", "--no-sandbox")[0])
        in_float32 = self.answer("--device", "cuda", "--sandbox", "--precision", "f32")[0]
        self.assertEqual(in_float32, self.answer("--device", "cpu", "--precision", "f32")[0])

    @unittest.skipUnless(HAS_GPU and LOSER, "no NVIDIA device, or nothing to lose it with")
    def test_a_device_that_is_lost_comes_back_or_ends_the_server(self):
        lose = self.folder / "lose"
        long = serving.tiny_model(self.folder, name="long", context=16384)
        options = ("--device", "cuda", "--no-sandbox", "--batch-max-batch-size", "1")
        with Server(*options, models=(long,), env={"LD_PRELOAD": LOSER, "LOSE_DEVICE_WHEN": str(lose)}) as server:
            self.assertEqual(server.gauge("skein:device_up"), 1)
            self.assertGreater(server.gauge("skein:device_memory_bytes"), 1e9)
            talks = server.stream(model="long", max_tokens=16000).read(until_first=True)
            lose.touch()
            talks.read()
            self.assertIsNotNone(talks.error, server.messages())
            server.settle(lambda: server.process.poll() is not None or "loaded anew" in server.messages(), 30)
            self.assertRegex(server.messages(), "the engine cannot go on: CUDA: ")
            if server.process.poll() is None:
                self.assertEqual(server.complete(model="long", max_tokens=4).status, 200)
                self.assertEqual(server.gauge("skein:device_lost_total"), 1)
            else:
                self.assertEqual(server.process.returncode, 1, server.messages())
                self.assertIn("does not come back to this process", server.messages())
            print("the server", "went on" if server.process.poll() is None else "ended, for the next one")
        with Server(*options, models=(long,)) as server:  # the next process has it
            self.assertEqual(server.complete(model="long", max_tokens=4).status, 200)


if __name__ == "__main__":
    unittest.main()
