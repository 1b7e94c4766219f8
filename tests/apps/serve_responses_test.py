"""Responses that the server keeps, through openai's own client: turns with tools and thoughts that are continued, looked up, listed
and deleted, over a restart of the server and by two keys."""
import os
import pathlib
import sqlite3
import sys
import tempfile
import unittest

VENV = pathlib.Path(__file__).resolve().parents[2] / "build/venv"
if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
    # The packages come uncompiled, for most of what is in them is never imported.
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), "-X", f"pycache_prefix={VENV}/pycache", *sys.argv])

import serving

try:
    import openai
    import pydantic
    from openai.types.responses import Response, ResponseItem
    MISSING = None
except ImportError as error:
    MISSING = f"{error.name} is not there; `tools/python_env.sh` installs it"

NAME = "tiny"
SCHEMA = {"type": "object", "required": ["city"], "additionalProperties": False,
          "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}}
FUNCTION = {"type": "function", "name": "get_weather", "description": "Of a city", "parameters": SCHEMA, "strict": True}
# Calls that are cut are as good as others: what is said is kept as it is.
SHORT = {"temperature": 0, "max_output_tokens": 60, "extra_body": {"seed": 3, "thinking_token_budget": 12}}


class KeptResponsesTest(unittest.TestCase):
    def setUp(self):
        if MISSING:
            serving.lacks(self, MISSING)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.state = pathlib.Path(folder.name, "state")
        self.model = serving.tiny_model(folder.name, context=32768)
        (self.model / "chat_template.jinja").write_text(serving.thinking_template())
        self.keys = [serving.add_key(self.state, name) for name in ("one", "two")]
        self.server = None
        self.start()
        self.addCleanup(lambda: self.server.close())

    def start(self, *arguments):
        if self.server:
            self.server.close()  # a kill: what was answered is there
        self.server = serving.Server("--memory", "1GiB", "--log-level", "error", *arguments, models=(self.model,),
                                     state_dir=self.state, wait=False)
        self.server.key = self.keys[0]
        self.server.wait_for("/health", 200)

    def client(self, key=0):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key=self.keys[key], max_retries=0)
        self.addCleanup(client.close)
        return client

    def create(self, key=0, **fields):
        return self.client(key).responses.create(**{"model": NAME, **SHORT, **fields})

    def said(self, answer):
        return [item.to_dict() | {"id": None} for item in answer.output]

    def test_turns_are_continued_over_a_restart(self):
        """Each turn is also asked with all that came before it sent along: the same answer to the same prompt."""
        history, previous = [], None
        turns = [{"input": "How is the weather?", "tools": [FUNCTION], "tool_choice": "required",
                  "parallel_tool_calls": False, "max_output_tokens": 300},
                 {"tools": [FUNCTION], "instructions": "Be short."},
                 {"input": [{"role": "user", "content": "And in Rome?"}]}]
        for turn in turns:
            if "input" not in turn:  # the results of the calls
                turn["input"] = [{"type": "function_call_output", "call_id": call.call_id, "output": "fine"}
                                 for call in previous.output if call.type == "function_call"]
                self.assertTrue(turn["input"])
            self.start()
            answer = self.create(**turn, previous_response_id=previous and previous.id)
            self.assertTrue(answer.store)
            self.assertEqual(answer.previous_response_id, previous and previous.id)
            new = turn["input"] if isinstance(turn["input"], list) else [{"role": "user", "content": turn["input"]}]
            history += new
            whole = self.create(**turn | {"input": history, "store": False})
            self.assertFalse(whole.store)
            self.assertEqual(self.said(whole), self.said(answer))
            self.assertEqual(whole.usage.input_tokens, answer.usage.input_tokens)
            # All of the prompt's whole blocks were computed by the other one.
            self.assertGreater(whole.usage.input_tokens_details.cached_tokens, whole.usage.input_tokens - 33)
            history += [item.to_dict() for item in answer.output]
            previous = answer
        self.start()
        found = self.client().responses.retrieve(previous.id)
        self.assertEqual(found.to_dict(), previous.to_dict())
        Response.model_validate(found.to_dict())
        counted = self.client().responses.input_tokens.count(model=NAME, input="x", previous_response_id=previous.id)
        self.assertGreater(counted.input_tokens, previous.usage.input_tokens)
        items = self.client().responses.input_items.list(previous.id, order="asc", limit=2)
        listed = list(items)  # the client turns the pages
        self.assertEqual([item.type for item in listed],
                         [item.get("type", "message") for item in history[:-len(previous.output)]])
        for item in listed:
            pydantic.TypeAdapter(ResponseItem).validate_python(item.to_dict())
        newest = self.client().responses.input_items.list(previous.id)
        self.assertEqual(newest.data[0].content[0].text, "And in Rome?")

    def test_streams_and_branches(self):
        events = list(self.create(input="Hi", stream=True))
        self.assertTrue(events[0].response.store)
        first = events[-1].response
        self.assertTrue(first.store)
        self.assertEqual(self.client().responses.retrieve(first.id).to_dict(), first.to_dict())
        with self.client().responses.stream(model=NAME, input="Go on.", previous_response_id=first.id, **SHORT) as stream:
            for _ in stream:
                pass
            second = stream.get_final_response()
        again = self.create(input="Go on.", previous_response_id=first.id)
        self.assertEqual(second.output_text, again.output_text)
        self.assertNotEqual(second.id, again.id)
        # What later ones continue is there for them alone.
        self.assertIsNone(self.client().responses.delete(first.id))
        with self.assertRaises(openai.NotFoundError):
            self.client().responses.retrieve(first.id)
        self.create(input="More.", previous_response_id=second.id)
        with self.assertRaises(openai.NotFoundError):
            self.create(input="More.", previous_response_id=first.id)
        texts = [item.content[0].text for item in self.client().responses.input_items.list(second.id, order="asc")
                 if item.type == "message"]
        self.assertEqual((texts[0], texts[-1]), ("Hi", "Go on."))

    def test_two_keys(self):
        mine = self.create(input="Hi")
        for call in (lambda id: self.client(1).responses.retrieve(id), lambda id: self.client(1).responses.delete(id),
                     lambda id: self.client(1).responses.input_items.list(id),
                     lambda id: self.create(1, input="x", previous_response_id=id)):
            told = []
            for id in (mine.id, "resp_" + "0" * 32):
                with self.assertRaises(openai.NotFoundError) as refused:
                    call(id)
                told.append(str(refused.exception).replace(id, ""))
            self.assertEqual(*told)
        self.assertEqual(self.client().responses.retrieve(mine.id).id, mine.id)
        done = serving.run("keys", "revoke", "one", "--state-dir", self.state)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.server.key = self.keys[1]
        state = self.state / "skein.db"
        with sqlite3.connect(f"file:{state}?mode=ro", uri=True) as db:
            gone = lambda: db.execute("SELECT count(*) FROM responses").fetchone() == (0,)
            self.assertTrue(self.server.settle(gone, 20), "what a revoked key kept is still there")

    def test_limits_of_the_operator(self):
        self.start("--max-responses-per-key", "1")
        first = self.create(input="Hi")
        second = self.create(input="Hi again")
        with self.assertRaises(openai.NotFoundError):
            self.client().responses.retrieve(first.id)
        self.assertEqual(self.client().responses.retrieve(second.id).output_text, second.output_text)
        self.start("--max-responses-per-key", "0")
        self.assertFalse(self.create(input="Hi", store=True).store)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.create(input="x", previous_response_id=second.id)
        self.assertEqual(refused.exception.param, "previous_response_id")


if __name__ == "__main__":
    unittest.main()
