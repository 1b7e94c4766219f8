"""The joined stream is the plain answer, whatever the bytes are, and nothing crosses between keys."""
import contextlib
import json
import pathlib
import random
import tempfile
import time
import unittest

import serving
from serving import Server

CASES = 100
CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
RESPONSES = "/v1/responses"
LAST_EVENTS = ("message_stop", "response.completed", "response.incomplete")
# Letters, beginnings and continuations of characters of two to four bytes, and bytes that are neither.
BYTES = [*b"abc de.", 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xFC, 0xC0, 0xED, 0xA0]


def events(text):
    """The JSON of a stream's events, and whether its end was there."""
    frames = [frame for frame in text.split("\n\n") if frame and not frame.startswith(":")]
    data = [frame.split("data: ", 1)[1] for frame in frames]
    done = data and (data[-1] == "[DONE]" or json.loads(data[-1]).get("type") in LAST_EVENTS)
    return [json.loads(one) for one in data if one != "[DONE]"], done


class Joined:
    """What a stream adds up to: (text, end) of each choice, and the tokens."""

    def __init__(self, path, text):
        chunks, self.done = events(text)
        self.texts, self.ends, self.tokens = {}, {}, None
        take = {MESSAGES: self.take_message, RESPONSES: self.take_event}.get(path, self.take_chunk)
        for chunk in chunks:
            take(chunk)

    def take_chunk(self, chunk):
        for choice in chunk["choices"]:
            i = choice["index"]
            piece = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            self.texts[i] = self.texts.get(i, "") + piece
            if choice["finish_reason"]:
                assert i not in self.ends, "a choice ends once"
                self.ends[i] = choice["finish_reason"]
        if chunk.get("usage"):
            self.tokens = chunk["usage"]["completion_tokens"]

    def take_message(self, event):
        self.texts.setdefault(0, "")
        if event["type"] == "content_block_delta":
            self.texts[0] += event["delta"]["text"]
        elif event["type"] == "message_delta":
            self.ends[0] = (event["delta"]["stop_reason"], event["delta"]["stop_sequence"])
            self.tokens = event["usage"]["output_tokens"]

    def take_event(self, event):
        self.texts.setdefault(0, "")
        if event["type"] == "response.output_text.delta":
            self.texts[0] += event["delta"]
        elif event["type"] in LAST_EVENTS:
            assert plain_of(RESPONSES, event["response"])[0] == self.texts, "the last event has all of it"
            _, self.ends, self.tokens = plain_of(RESPONSES, event["response"])


def plain_of(path, body):
    """The same of a plain answer."""
    if path == RESPONSES:
        text = "".join(part["text"] for item in body["output"] for part in item["content"])
        return {0: text}, {0: body["status"]}, body["usage"]["output_tokens"]
    if path == MESSAGES:
        text = "".join(block["text"] for block in body["content"])
        return {0: text}, {0: (body["stop_reason"], body["stop_sequence"])}, body["usage"]["output_tokens"]
    texts = {c["index"]: c["text"] if "text" in c else c["message"]["content"] for c in body["choices"]}
    ends = {c["index"]: c["finish_reason"] for c in body["choices"]}
    return texts, ends, body["usage"]["completion_tokens"]


class TinyServer(unittest.TestCase):
    @contextlib.contextmanager
    def server(self, *arguments, **options):
        with tempfile.TemporaryDirectory() as folder:
            with Server("--log-level", "error", *arguments, models=(serving.tiny_model(folder),), **options) as server:
                yield server


class AllowedTokensTest(TinyServer):
    def test_no_other_token_is_drawn(self):
        with self.server() as server:
            ids = server.post("/tokenize", {"content": "xyz"}).json()["tokens"]
            user = [{"role": "user", "content": "Hello"}]
            for path, body in ((COMPLETIONS, {"prompt": "Hello", "max_tokens": 40}), (CHAT, {"messages": user, "max_tokens": 40}),
                               (MESSAGES, {"messages": user, "max_tokens": 40}), (RESPONSES, {"input": "Hello", "max_output_tokens": 40})):
                with self.subTest(path):
                    answer = server.post(path, {**body, "temperature": 1, "allowed_token_ids": ids[:2]})
                    self.assertEqual(answer.status, 200, answer.body)
                    texts, _, tokens = plain_of(path, answer.json())
                    self.assertEqual((set(texts[0]), tokens), ({"x", "y"}, 40))  # no end neither
            refused = server.post(COMPLETIONS, {"prompt": "Hello", "max_tokens": 5, "guided_regex": "[a-c]+", "allowed_token_ids": ids})
            self.assertEqual((refused.status, refused.json()["error"]["code"]), (400, "constraint_conflict"))


class JoinedStreamTest(TinyServer):
    def request(self, rng, ids):
        """A random one: (path, body without stop strings)."""
        text = "".join(rng.choice("abc é€😀\n\0<|im_end|>") for _ in range(rng.randrange(1, 40)))
        path = rng.choice([CHAT, COMPLETIONS, MESSAGES, RESPONSES])
        body = {"max_output_tokens" if path == RESPONSES else "max_tokens": rng.randrange(1, 60),
                "temperature": rng.choice([0, 0.7, 1.5]), "seed": rng.randrange(99)}
        if path in (COMPLETIONS, RESPONSES):
            body["prompt" if path == COMPLETIONS else "input"] = text
        else:
            body["messages"] = [{"role": "user", "content": text}]
        if path in (CHAT, COMPLETIONS):
            body["n"] = rng.choice([1, 1, 3])
        if path != MESSAGES:
            # Only a few bytes may come, so that whole, broken and cut characters all do.
            body["logit_bias"] = {str(ids[b]): 100 for b in rng.sample(BYTES, 8)}
        return path, body

    def compare(self, server, path, body):
        plain = server.post(path, body)
        self.assertEqual(plain.status, 200, plain.body)
        options = {"stream_options": {"include_usage": True}} if path in (CHAT, COMPLETIONS) else {}
        streamed = server.post(path, {**body, "stream": True, **options})
        joined = Joined(path, streamed.body.decode())
        self.assertTrue(joined.done)
        whole = plain_of(path, plain.json())
        self.assertEqual((joined.texts, joined.ends, joined.tokens), whole)
        return whole

    def test_joined_stream_is_the_plain_answer(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        stops = replaced = wide = 0
        with self.server() as server:
            ids = [server.post("/tokenize", {"content": "a"}).json()["tokens"][0] - ord("a") + b for b in range(256)]
            for i in range(CASES):
                with self.subTest(seed=seed, case=i):
                    path, body = self.request(rng, ids)
                    texts = self.compare(server, path, body)[0]
                    text = texts[0]
                    replaced += "\ufffd" in text
                    wide += any(ord(c) > 127 and c != "\ufffd" for c in text)
                    if len(text) < 2:
                        continue
                    # Stop strings that occur, overlap with what comes before them, or never come.
                    begin = rng.randrange(len(text))
                    stop = [text[begin:begin + rng.randrange(1, 5)], text[-1] + "\x01", "never" * 3]
                    stopped = self.compare(server, path, {**body, "stop_sequences" if path == MESSAGES else "stop": stop})
                    self.assertTrue(all(word not in stopped[0][0] for word in stop))
                    self.assertTrue(text.startswith(stopped[0][0]))
                    stops += stopped[1][0] in ("stop", "completed", ("stop_sequence", stop[0]))
        # What was to be tested did happen.
        self.assertGreater(stops, CASES / 4)
        self.assertGreater(replaced, CASES / 20)
        self.assertGreater(wide, CASES / 20)


class TenantTest(TinyServer):
    """Two keys: what one makes does not exist for the other."""

    PROMPT = "The same long beginning. " * 8

    @contextlib.contextmanager
    def two_keys(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            state_dir = pathlib.Path(folder, "state")
            keys = [serving.add_key(state_dir, name) for name in ("one", "two")]
            admin = serving.add_key(state_dir, "root", "--admin")
            with self.server(*arguments, state_dir=state_dir) as server:
                yield server, *keys, admin

    def ask(self, server, key, method, path, body=None):
        return serving.Answer(*server.send(method, path, body, {"Authorization": f"Bearer {key}"}))

    def upload(self, server, key, text):
        form = ("--X\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--X\r\nContent-Disposition: "
                f"form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{text}\r\n--X--\r\n")
        connection = server.connect()
        connection.request("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=X",
                                                       "Authorization": f"Bearer {key}"})
        return serving.Answer(connection, connection.getresponse()).json()["id"]

    def check_hidden(self, server, others, owner, admin, method, path, body=None, count=0):
        """404 for the other and no trace of a difference from what never existed; there for owner and admin."""
        hidden = self.ask(server, others, method, path, body)
        self.assertEqual(hidden.status, 404, (method, path, hidden.body))
        never = path.replace(path.split("/")[3], path.split("/")[3][:-4] + "0000")
        self.assertEqual(hidden.body, self.ask(server, others, method, never, body).body)
        if method == "GET":
            for key in (owner, admin):
                self.assertEqual(self.ask(server, key, method, path).status, 200, path)

    def test_files_and_batches(self):
        with self.two_keys() as (server, one, two, admin):
            line = {"custom_id": "a", "method": "POST", "url": COMPLETIONS, "body": {"prompt": "x", "max_tokens": 2}}
            file = self.upload(server, one, json.dumps(line))
            create = {"input_file_id": file, "endpoint": COMPLETIONS, "completion_window": "24h"}
            refused = self.ask(server, two, "POST", "/v1/batches", create)
            nothing = self.ask(server, two, "POST", "/v1/batches", {**create, "input_file_id": "file-nothing"})
            self.assertEqual((refused.status, refused.json()), (nothing.status, nothing.json()))
            batch = self.ask(server, one, "POST", "/v1/batches", create).json()["id"]
            finished = lambda: self.ask(server, one, "GET", f"/v1/batches/{batch}").json()["status"] == "completed"
            self.assertTrue(server.settle(finished))
            output = self.ask(server, one, "GET", f"/v1/batches/{batch}").json()["output_file_id"]
            for method, path in (("GET", f"/v1/files/{file}"), ("GET", f"/v1/files/{file}/content"),
                                 ("GET", f"/v1/files/{output}"), ("GET", f"/v1/files/{output}/content"),
                                 ("DELETE", f"/v1/files/{file}"), ("GET", f"/v1/batches/{batch}"),
                                 ("POST", f"/v1/batches/{batch}/cancel")):
                self.check_hidden(server, two, one, admin, method, path, {} if method == "POST" else None)
            for path, ours in (("/v1/files", {file, output}), ("/v1/batches", {batch})):
                listed = lambda key: {item["id"] for item in self.ask(server, key, "GET", path).json()["data"]}
                self.assertEqual(listed(two), set())
                self.assertEqual(listed(one), ours)
                self.assertLessEqual(ours, listed(admin))
                after = self.ask(server, two, "GET", f"{path}?after={min(ours)}")
                self.assertEqual(after.status, 400, after.body)

    def test_requests(self):
        with self.two_keys() as (server, one, two, admin):
            server.key = one
            stream = server.stream(prompt="x", max_tokens=900)
            id = json.loads(stream.response.readline()[6:])["id"]
            self.check_hidden(server, two, one, admin, "GET", f"/v1/requests/{id}")
            self.check_hidden(server, two, one, admin, "DELETE", f"/v1/requests/{id}")
            self.assertTrue(stream.read().ended, "another key's DELETE must not end it")

    def cached(self, server, key):
        answer = self.ask(server, key, "POST", COMPLETIONS, {"prompt": self.PROMPT, "max_tokens": 2})
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    def check_cached_prefixes(self, *options):
        with self.two_keys(*options) as (server, one, two, _):
            self.assertEqual(self.cached(server, one), 0)
            self.assertGreater(self.cached(server, one), 0)
            self.assertEqual(self.cached(server, two), 0)
            self.assertGreater(self.cached(server, two), 0)
        with self.two_keys("--share-prefixes", *options) as (server, one, two, _):
            self.assertEqual(self.cached(server, one), 0)
            self.assertGreater(self.cached(server, two), 0)

    def test_cached_prefixes(self):
        self.check_cached_prefixes()

    def test_cached_prefixes_without_batching(self):
        self.check_cached_prefixes("--no-enable-batching")


if __name__ == "__main__":
    unittest.main()
