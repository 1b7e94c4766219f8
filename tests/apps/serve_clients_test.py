"""The clients that people have: openai, anthropic, LangChain and curl, against one server with keys."""
import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Literal

VENV = pathlib.Path(__file__).resolve().parents[2] / "build/venv"
if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
    # The packages come uncompiled, for most of what is in them is never imported.
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), "-X", f"pycache_prefix={VENV}/pycache", *sys.argv])

import serving

try:
    import anthropic
    import langchain_openai
    import openai
    import pydantic
    MISSING = None
except ImportError as error:
    MISSING = f"{error.name} is not there; `tools/python_env.sh` installs it"

NAME = "org/small"
QUESTION = [{"role": "user", "content": "Name three colours."}]
FIXED = {"model": NAME, "max_tokens": 8, "temperature": 0}
# Anthropic's client has no temperature of its own any more.
GREEDY = {"model": NAME, "max_tokens": 8, "extra_body": {"temperature": 0}}
# Two run and two wait: a queue that a test can fill.
LIMITS = ("--batch-max-batch-size", "2", "--max-queue", "2", "--pooling", "mean")

STATE = None  # of the module: the server and the keys


class State:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        state_dir = pathlib.Path(self.folder.name, "state")
        self.key = serving.add_key(state_dir, "app")
        self.narrow = serving.add_key(state_dir, "narrow", "--models", "other")
        self.server = serving.Server(*LIMITS, "--served-model-name", NAME, state_dir=state_dir)
        self.server.key = self.key
        self.url = f"http://127.0.0.1:{self.server.port}"

    def close(self):
        self.server.close()
        self.folder.cleanup()


def setUpModule():
    global STATE
    if MISSING:
        raise (AssertionError if serving.REQUIRE_ALL else unittest.SkipTest)(MISSING)
    if not serving.MODEL.exists():
        raise (AssertionError if serving.REQUIRE_ALL else unittest.SkipTest)(
            f"{serving.MODEL} is not there; `make model` fetches it")
    STATE = State()


def tearDownModule():
    if STATE:
        STATE.close()


@contextlib.contextmanager
def full_queue(test):
    queue = serving.FullQueue(STATE.server, NAME)
    try:
        yield queue
    finally:
        queue.release()
    test.assertEqual([status for status, _ in queue.seen], [429, 200])
    test.assertGreaterEqual(int(queue.seen[0][1]), 1)


class OpenAiTest(unittest.TestCase):
    def client(self, **options):
        client = openai.OpenAI(base_url=f"{STATE.url}/v1", **{"api_key": STATE.key, "max_retries": 0, **options})
        self.addCleanup(client.close)
        return client

    def test_chat(self):
        client = self.client()
        answer = client.chat.completions.create(messages=QUESTION, **FIXED)
        self.assertEqual((answer.object, answer.model), ("chat.completion", NAME))
        choice = answer.choices[0]
        self.assertEqual((choice.message.role, choice.finish_reason), ("assistant", "length"))
        self.assertEqual(answer.usage.completion_tokens, 8)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 8)
        self.assertIsNotNone(answer.usage.prompt_tokens_details.cached_tokens)
        self.assertTrue(answer._request_id)
        stream = client.chat.completions.create(messages=QUESTION, stream=True,
                                                stream_options={"include_usage": True}, **FIXED)
        chunks = list(stream)
        self.assertEqual(len({(chunk.id, chunk.created) for chunk in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), choice.message.content)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason],
                         ["length"])
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 8))

    def test_embeddings(self):
        client = self.client()
        texts = ["The sky is blue.", "Grass is green.", "Der Himmel ist blau."]
        answer = client.embeddings.create(model=NAME, input=texts)  # the client asks for base64
        self.assertEqual([item.index for item in answer.data], [0, 1, 2])
        self.assertEqual((answer.object, answer.model), ("list", NAME))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens)
        numbers = client.embeddings.create(model=NAME, input=texts[1], encoding_format="float").data[0].embedding
        self.assertEqual([struct.pack("<f", x) for x in answer.data[1].embedding],
                         [struct.pack("<f", x) for x in numbers])
        self.assertAlmostEqual(sum(x * x for x in numbers), 1, places=5)
        self.assertEqual(len(client.embeddings.create(model=NAME, input=[[1, 2, 3]], dimensions=64).data[0].embedding), 64)
        embedder = langchain_openai.OpenAIEmbeddings(base_url=f"{STATE.url}/v1", api_key=STATE.key, model=NAME,
                                                     check_embedding_ctx_length=False)
        self.assertEqual(len(embedder.embed_documents(texts)), 3)
        with self.assertRaises(openai.BadRequestError) as refused:
            client.embeddings.create(model=NAME, input=[])
        self.assertEqual(refused.exception.param, "input")

    def test_choices_logprobs_and_stop(self):
        client = self.client()
        many = client.chat.completions.create(messages=QUESTION, n=2, seed=5, logprobs=True, top_logprobs=3,
                                              **{**FIXED, "temperature": 1})
        self.assertEqual([choice.index for choice in many.choices], [0, 1])
        self.assertNotEqual(many.choices[0].message.content, many.choices[1].message.content)
        for choice in many.choices:
            self.assertEqual(len(choice.logprobs.content), 8)
            for token in choice.logprobs.content:
                self.assertLessEqual(token.logprob, 0)
                self.assertEqual(len(token.top_logprobs), 3)
        plain = client.completions.create(prompt="One two three four", logprobs=2, **FIXED)
        text = plain.choices[0].text
        self.assertEqual("".join(plain.choices[0].logprobs.tokens), text)
        word = text.split()[1]
        stopped = client.completions.create(prompt="One two three four", stop=[word], **FIXED)
        self.assertEqual(stopped.choices[0].text, text[:text.index(word)])
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        both = client.completions.create(prompt=["One", "Two"], **FIXED)
        self.assertEqual([choice.index for choice in both.choices], [0, 1])

    def test_async(self):
        async def talk():
            async with openai.AsyncOpenAI(base_url=f"{STATE.url}/v1", api_key=STATE.key) as client:
                plain = await client.chat.completions.create(messages=QUESTION, **FIXED)
                stream = await client.chat.completions.create(messages=QUESTION, stream=True, **FIXED)
                text = ""
                async for chunk in stream:
                    text += chunk.choices[0].delta.content or ""
                return plain.choices[0].message.content, text

        plain, text = asyncio.run(talk())
        self.assertEqual(plain, text)

    def test_a_stream_that_is_left_is_cancelled(self):
        stream = self.client().completions.create(prompt="x", stream=True, extra_body={"ignore_eos": True},
                                                  **{**FIXED, "max_tokens": 4000})
        next(iter(stream))
        running = lambda: STATE.server.gauge("vllm:num_requests_running")
        self.assertTrue(STATE.server.settle(lambda: running() == 1), running())  # a step is published after its tokens
        stream.close()
        self.assertTrue(STATE.server.settle(lambda: running() == 0), running())

    def test_retries_when_the_queue_is_full(self):
        with full_queue(self) as queue:
            http = openai.DefaultHttpxClient(event_hooks={"response": [queue.on_response]})
            client = self.client(max_retries=2, http_client=http)
            self.assertTrue(client.completions.create(prompt="x", **FIXED).choices)

    def test_errors(self):
        client = self.client()

        def ask(wanted, using=client, **fields):
            with self.assertRaises(wanted) as raised:
                using.chat.completions.create(**{"messages": QUESTION, **FIXED, **fields})
            return raised.exception

        self.assertEqual(ask(openai.BadRequestError, temperature=9).param, "temperature")
        self.assertEqual(ask(openai.BadRequestError, max_tokens=10 ** 6).code, "context_length_exceeded")
        self.assertEqual(ask(openai.NotFoundError, model="none").code, "model_not_found")
        ask(openai.AuthenticationError, using=self.client(api_key="sk-wrong"))
        ask(openai.PermissionDeniedError, using=self.client(api_key=STATE.narrow))
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        self.assertEqual(ask(openai.BadRequestError, tools=[tool, tool]).code, "invalid_tool")
        queue = serving.FullQueue(STATE.server, NAME)
        self.assertEqual(ask(openai.RateLimitError).code, "queue_full")
        queue.release()
        ask(openai.APITimeoutError, using=self.client(timeout=0.001))

    def test_tools(self):
        class Weather(pydantic.BaseModel):
            city: Literal["Paris", "Rome"]

        client = self.client()
        asked = {"messages": [{"role": "user", "content": "The weather in Rome?"}], "tools": [openai.pydantic_function_tool(Weather)],
                 "tool_choice": "required", "parallel_tool_calls": False, "seed": 3, **FIXED, "max_tokens": 100, "temperature": 1}
        plain = client.chat.completions.parse(**asked).choices[0]
        [call] = plain.message.tool_calls
        self.assertEqual((plain.finish_reason, call.function.name), ("tool_calls", "Weather"))
        parts = [part for chunk in client.chat.completions.create(stream=True, **asked) for part in chunk.choices[0].delta.tool_calls or ()]
        self.assertEqual((parts[0].id, "".join(part.function.arguments for part in parts)), (call.id, call.function.arguments))
        with client.chat.completions.stream(**asked) as stream:
            done = [event.parsed_arguments for event in stream if event.type == "tool_calls.function.arguments.done"]
        self.assertEqual(done, [call.function.parsed_arguments])
        form = client.chat.completions.parse(messages=QUESTION, response_format=Weather, **{**FIXED, "max_tokens": 100})
        self.assertIn(form.choices[0].message.parsed.city, ("Paris", "Rome"))

    def test_models(self):
        client = self.client()
        self.assertEqual([model.id for model in client.models.list()], [NAME])
        self.assertEqual(client.models.retrieve(NAME).id, NAME)
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("none")

    def test_files_and_batches(self):
        client = self.client()
        lines = [{"custom_id": f"l{i}", "method": "POST", "url": "/v1/chat/completions",
                  "body": {"messages": QUESTION, **FIXED, "max_tokens": i}} for i in range(4)]
        content = "\n".join(map(json.dumps, lines)).encode()
        file = client.files.create(file=("in.jsonl", content), purpose="batch")
        self.assertEqual((file.bytes, file.filename), (len(content), "in.jsonl"))
        self.assertEqual(client.files.content(file.id).read(), content)
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions",
                                      completion_window="24h", metadata={"who": "test"})
        until = time.monotonic() + serving.PATIENCE_S
        while batch.status not in ("completed", "failed") and time.monotonic() < until:
            time.sleep(0.02)
            batch = client.batches.retrieve(batch.id)
        counts = batch.request_counts
        self.assertEqual((batch.status, counts.total, counts.completed, counts.failed), ("completed", 4, 3, 1))
        self.assertEqual(batch.metadata, {"who": "test"})
        done = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
        self.assertEqual({line["custom_id"]: line["response"]["body"]["usage"]["completion_tokens"] for line in done},
                         {"l1": 1, "l2": 2, "l3": 3})
        bad = json.loads(client.files.content(batch.error_file_id).text)
        self.assertEqual((bad["custom_id"], bad["response"]["status_code"]), ("l0", 400))
        self.assertIn(batch.id, [b.id for b in client.batches.list()])
        self.assertTrue(client.files.delete(file.id).deleted)
        self.assertNotIn(file.id, [f.id for f in client.files.list()])


class AnthropicTest(unittest.TestCase):
    def client(self, **options):
        client = anthropic.Anthropic(base_url=STATE.url, **{"api_key": STATE.key, "max_retries": 0, **options})
        self.addCleanup(client.close)
        return client

    def test_messages(self):
        client = self.client()
        answer = client.messages.create(messages=QUESTION, system="Be short.", **GREEDY)
        self.assertEqual((answer.type, answer.role, answer.stop_reason), ("message", "assistant", "max_tokens"))
        self.assertEqual(answer.usage.output_tokens, 8)
        counted = client.messages.count_tokens(messages=QUESTION, system="Be short.", model=NAME)
        self.assertEqual(answer.usage.input_tokens + answer.usage.cache_read_input_tokens, counted.input_tokens)
        text = answer.content[0].text
        with client.messages.stream(messages=QUESTION, system="Be short.", **GREEDY) as stream:
            self.assertEqual("".join(stream.text_stream), text)
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, final.usage.output_tokens), ("max_tokens", 8))
        events = [event.type for event in client.messages.create(messages=QUESTION, stream=True, **GREEDY)]
        self.assertEqual((events[0], events[1], events[-3:]), ("message_start", "content_block_start",
                         ["content_block_stop", "message_delta", "message_stop"]))
        word = text.split()[1]
        stopped = client.messages.create(messages=QUESTION, system="Be short.", stop_sequences=[word], **GREEDY)
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", word))
        self.assertEqual("".join(block.text for block in stopped.content), text[:text.index(word)])

    def test_async(self):
        async def talk():
            async with anthropic.AsyncAnthropic(base_url=STATE.url, api_key=STATE.key) as client:
                plain = await client.messages.create(messages=QUESTION, **GREEDY)
                async with client.messages.stream(messages=QUESTION, **GREEDY) as stream:
                    return plain.content[0].text, "".join([text async for text in stream.text_stream])

        plain, text = asyncio.run(talk())
        self.assertEqual(plain, text)

    def test_retries_when_the_queue_is_full(self):
        async def talk(queue):
            http = anthropic.DefaultAsyncHttpxClient(event_hooks={"response": [queue.on_response_async]})
            async with anthropic.AsyncAnthropic(base_url=STATE.url, api_key=STATE.key, http_client=http) as client:
                return await client.messages.create(messages=QUESTION, **GREEDY)

        with full_queue(self) as queue:
            self.assertTrue(asyncio.run(talk(queue)).content)

    def test_errors(self):
        client = self.client()

        def ask(wanted, using=client, **fields):
            with self.assertRaises(wanted) as raised:
                using.messages.create(**{"messages": QUESTION, **GREEDY, **fields})
            return raised.exception.body["error"]

        self.assertIn("temperature", ask(anthropic.BadRequestError, extra_body={"temperature": 9})["message"])
        self.assertEqual(ask(anthropic.NotFoundError, model="none")["type"], "not_found_error")
        wrong = self.client(api_key="sk-wrong")
        self.assertEqual(ask(anthropic.AuthenticationError, using=wrong)["type"], "authentication_error")
        narrow = self.client(api_key=STATE.narrow)
        self.assertEqual(ask(anthropic.PermissionDeniedError, using=narrow)["type"], "permission_error")
        queue = serving.FullQueue(STATE.server, NAME)
        self.assertEqual(ask(anthropic.RateLimitError)["type"], "rate_limit_error")
        queue.release()


class LangChainTest(unittest.TestCase):
    def test_invoke_stream_and_batch(self):
        chat = langchain_openai.ChatOpenAI(base_url=f"{STATE.url}/v1", api_key=STATE.key, model=NAME, temperature=0,
                                           max_tokens=8, stream_usage=True)
        plain = chat.invoke("Name three colours.")
        self.assertEqual(plain.usage_metadata["output_tokens"], 8)
        self.assertEqual(plain.response_metadata["finish_reason"], "length")
        pieces = list(chat.stream("Name three colours."))
        self.assertEqual("".join(piece.content for piece in pieces), plain.content)
        self.assertEqual(sum((piece.usage_metadata or {}).get("output_tokens", 0) for piece in pieces), 8)
        answers = chat.batch(["Name three colours.", "Count to three."])
        self.assertEqual(answers[0].content, plain.content)


@serving.needs(shutil.which("curl"), "curl is not there")
class CurlTest(unittest.TestCase):
    def curl(self, *arguments):
        done = subprocess.run(["curl", "-sS", "--fail-with-body", "-H", f"Authorization: Bearer {STATE.key}",
                               *arguments], capture_output=True, text=True, timeout=serving.PATIENCE_S)
        return done.returncode, done.stdout

    def test_plain_stream_and_upload(self):
        body = json.dumps({"messages": QUESTION, **FIXED})
        status, plain = self.curl(f"{STATE.url}/v1/chat/completions", "-d", body)  # as a form, by its header
        text = json.loads(plain)["choices"][0]["message"]["content"]
        status, events = self.curl(f"{STATE.url}/v1/chat/completions", "-N", "--json",
                                   json.dumps({"messages": QUESTION, "stream": True, **FIXED}))
        self.assertEqual(status, 0)
        frames = events.split("\n\n")
        self.assertEqual(frames[-2:], ["data: [DONE]", ""])
        chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]
        self.assertEqual("".join(c["choices"][0]["delta"].get("content", "") for c in chunks), text)
        status, chunked = self.curl(f"{STATE.url}/v1/chat/completions", "-H", "Transfer-Encoding: chunked", "--json",
                                    body)
        self.assertEqual(json.loads(chunked)["choices"][0]["message"]["content"], text)
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(b'{"custom_id": "a"}\n' * 1000)
            file.flush()
            status, made = self.curl(f"{STATE.url}/v1/files", "-F", "purpose=batch", "-F", f"file=@{file.name}")
        self.assertEqual((status, json.loads(made)["bytes"]), (0, 19000))
        status, refused = self.curl(f"{STATE.url}/v1/chat/completions", "-d", "{")
        self.assertEqual((status, json.loads(refused)["error"]["code"]), (22, "invalid_json"))


class WithoutKeysTest(unittest.TestCase):
    """A server without keys turns foreign pages away; its clients notice nothing of that."""

    def test_clients_and_curl(self):
        with tempfile.TemporaryDirectory() as folder, \
                serving.Server("--memory", "1GiB", models=(serving.tiny_model(folder),)) as server:
            for host in ("127.0.0.1", "localhost"):
                url = f"http://{host}:{server.port}"
                with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
                    answer = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=4)
                    self.assertGreater(answer.usage.completion_tokens, 0)
                    file = client.files.create(file=("in.jsonl", b"{}"), purpose="batch")
                    self.assertTrue(client.files.delete(file.id).deleted)
                    self.assertEqual(client.models.list().data[0].id, "tiny")
                with anthropic.Anthropic(base_url=url, api_key="none") as client:
                    message = client.messages.create(model="tiny", max_tokens=4, messages=QUESTION)
                    self.assertGreater(message.usage.output_tokens, 0)
                done = subprocess.run(["curl", "-sS", "--fail-with-body", f"{url}/v1/chat/completions", "-H",
                                       "Content-Type: application/json", "-d",
                                       json.dumps({"messages": QUESTION, "max_tokens": 4})],
                                      capture_output=True, text=True, timeout=serving.PATIENCE_S)
                self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
