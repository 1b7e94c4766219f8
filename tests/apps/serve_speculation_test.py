"""Guessed tokens change no byte of an answer, and who asks for them is told how they fared."""
import pathlib
import tempfile
import unittest

import serving
from serving import Server

# A prompt that repeats itself, so that there is something to guess.
PROMPT = "abc def ghi. abc def ghi. abc def ghi. abc def"
FIELDS = [
    {"temperature": 0},
    {"temperature": 0, "stop": ["g", "zz"]},
    {"temperature": 0.9, "seed": 4},
    {"temperature": 0.9, "seed": 5, "top_p": 0.8, "frequency_penalty": 0.4},
    {"temperature": 0.7, "seed": 6, "repetition_penalty": 1.1, "logprobs": 3},
    {"temperature": 0.5, "seed": 7, "n": 3},
    {"temperature": 0, "ignore_eos": True, "max_tokens": 200},
    {"temperature": 0.3, "seed": 8, "guided_regex": "(ab|cd){5,40}e"},
]


def told(answer):
    """What a client can tell apart of an answer."""
    body = answer.json()
    return [(choice["text"], choice["finish_reason"], choice["logprobs"]) for choice in body["choices"]], body["usage"]["completion_tokens"]


class SpeculationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server("--speculation", "off", models=(serving.tiny_model(cls.folder.name),))

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.folder.cleanup()

    def test_no_byte_of_an_answer_changes(self):
        for fields in FIELDS:
            wanted = {"max_tokens": 60, **fields}
            plain = told(self.server.complete(PROMPT, **wanted))
            for how in ("ngram", "auto", "off"):
                self.assertEqual(told(self.server.complete(PROMPT, speculation=how, **wanted)), plain, fields)

    def test_another_word_is_refused_by_name(self):
        for wrong in ("on", "", 1, True, ["ngram"]):
            answer = self.server.complete(PROMPT, speculation=wrong)
            self.assertEqual(answer.status, 400, wrong)
            self.assertEqual(answer.json()["error"]["param"], "speculation")
        self.assertEqual(self.server.complete(PROMPT, speculation=None, max_tokens=2).status, 200)


class WhoAsksTest(unittest.TestCase):
    """On a server that has learned nothing yet: later on it may have seen that guesses do not pay."""

    def test_who_asks_is_served_and_nobody_else(self):
        with tempfile.TemporaryDirectory() as folder, Server("--speculation", "off", models=(serving.tiny_model(folder),)) as server:
            counted = lambda what: server.gauge(f"vllm:spec_decode_num_{what}_total")
            drafted = 0
            for _ in range(20):  # the second answer is guessed from the first, unless the step times of a busy machine speak against it
                server.complete(PROMPT, temperature=0, max_tokens=100, ignore_eos=True, speculation="ngram")
                drafted = counted("draft_tokens")
                if drafted:
                    break
            self.assertGreater(drafted, 0)
            self.assertGreaterEqual(drafted, counted("accepted_tokens"))
            self.assertGreaterEqual(drafted, counted("drafts"))
            server.complete(PROMPT, temperature=0, max_tokens=100, ignore_eos=True)
            self.assertEqual(counted("draft_tokens"), drafted)


class DraftModelTest(unittest.TestCase):
    """A small model that guesses: here it is the served one itself, which is always right."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = serving.tiny_model(self.folder.name)

    def test_no_byte_of_an_answer_changes(self):
        # Of the same size it never pays by the weights, but is asked again after 64 tokens.
        with Server("--speculation", "auto", "--draft-model", self.model, models=(self.model,)) as server:
            for fields in FIELDS:
                wanted = {"max_tokens": 100, **fields}
                plain = told(server.complete("xyz", speculation="off", **wanted))
                self.assertEqual(told(server.complete("xyz", **wanted)), plain, fields)
            drafted = lambda: server.gauge("vllm:spec_decode_num_draft_tokens_total")
            for _ in range(20):  # the step times of a busy machine may speak against it
                if drafted() > 0:
                    break
                server.complete("xyz", temperature=0, max_tokens=200, ignore_eos=True)
            self.assertGreater(drafted(), 0)

    @serving.needs_model
    def test_another_vocabulary_is_refused_with_both_sizes(self):
        done = serving.run("serve", "--port", "0", "--state-dir", pathlib.Path(self.folder.name, "state"), "--model", self.model,
                           "--draft-model", serving.MODEL)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"draft model .*SmolLM2.*: its vocabulary has \d+ tokens, that of .*tiny.* has \d+")

    def test_one_that_is_not_there_is_refused(self):
        done = serving.run("serve", "--port", "0", "--model", self.model, "--draft-model", "/nowhere/m.gguf")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nowhere/m.gguf", done.stderr)


if __name__ == "__main__":
    unittest.main()
