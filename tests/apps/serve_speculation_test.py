"""Guessed tokens change no byte of an answer, and who asks for them is told how they fared."""
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

    def counted(self, what):
        return self.server.gauge(f"vllm:spec_decode_num_{what}_total")

    def test_no_byte_of_an_answer_changes(self):
        for fields in FIELDS:
            wanted = {"max_tokens": 60, **fields}
            plain = told(self.server.complete(PROMPT, **wanted))
            for how in ("ngram", "auto", "off"):
                self.assertEqual(told(self.server.complete(PROMPT, speculation=how, **wanted)), plain, fields)

    def test_who_asks_is_served_and_nobody_else(self):
        before = self.counted("draft_tokens")
        self.server.complete(PROMPT, temperature=0, max_tokens=100, ignore_eos=True)
        self.assertEqual(self.counted("draft_tokens"), before)
        self.server.complete(PROMPT, temperature=0, max_tokens=100, ignore_eos=True, speculation="ngram")
        self.assertGreater(self.counted("draft_tokens"), before)
        self.assertGreaterEqual(self.counted("draft_tokens"), self.counted("accepted_tokens"))
        self.assertGreaterEqual(self.counted("draft_tokens"), self.counted("drafts"))

    def test_another_word_is_refused_by_name(self):
        for wrong in ("on", "", 1, True, ["ngram"]):
            answer = self.server.complete(PROMPT, speculation=wrong)
            self.assertEqual(answer.status, 400, wrong)
            self.assertEqual(answer.json()["error"]["param"], "speculation")
        self.assertEqual(self.server.complete(PROMPT, speculation=None, max_tokens=2).status, 200)


if __name__ == "__main__":
    unittest.main()
