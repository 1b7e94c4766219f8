"""A phase, and those that ask for an answer. See phases.py."""
import json

from target import ENCODER, MODELS, RANKER, Answer, Broken

CHAT = "/v1/chat/completions"


def chat_body(text, model=MODELS[0], **more):
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0,
            "ignore_eos": True, **more}


def content_of(answer):
    """What a plain answer says, without what differs from one request to the next."""
    body = answer.json()
    return body["choices"], body["usage"]["completion_tokens"]


class Phase:
    """One request whose good answers are all equal."""

    name = ""
    share = 1.0  # of the points, relative to the others

    def __init__(self):
        self.expected = None

    def ask(self, target):
        raise NotImplementedError

    def read(self, answer):
        return content_of(answer)

    def prepare(self, target):
        if self.expected is None:
            self.expected = self.read(Answer(200, json.dumps(target.must(self.ask(target), self.name)).encode()))

    def act(self, target):
        answer = self.ask(target)
        if not answer.is_ok():
            return answer.check_failure()
        if self.read(answer) != self.expected:
            raise Broken(f"a clean answer with other content: {answer.body[:300]!r}")

    def settle(self, target):
        """The same request once more: nothing may have stuck."""
        target.must(answer := self.ask(target), self.name)
        if self.read(answer) != self.expected:
            raise Broken(f"the request after it has other content: {answer.body[:300]!r}")


class Chat(Phase):
    name = "chat"

    def ask(self, target):
        return target.post(CHAT, chat_body("Tell me a story."))


class Load(Phase):
    """A model that loads when it is first asked for."""

    name = "load"
    share = 1.5

    def prepare(self, target):
        target.wait_for(lambda: target.post("/admin/models/unload", {"model": MODELS[1]}).status in (200, 404),
                        "unloading the model")
        if self.expected is None:
            super().prepare(target)
            self.prepare(target)

    def ask(self, target):
        return target.post(CHAT, chat_body("Good morning.", MODELS[1]))

    def settle(self, target):
        super().settle(target)
        # The next phase may kill the server, which must not be taken for a death in this load.
        target.wait_for(lambda: target.count("model_loads") == 0, "the note of a load to go")


class Completions(Phase):
    name = "completions"

    def ask(self, target):
        return target.post("/v1/completions", {"model": MODELS[0], "prompt": "Once upon a time", "max_tokens": 10,
                                               "n": 2, "logprobs": 3, "temperature": 0, "ignore_eos": True})


class Messages(Phase):
    name = "messages"

    def ask(self, target):
        body = chat_body("Hello there.")
        del body["ignore_eos"]
        return target.post("/v1/messages", body)

    def read(self, answer):
        body = answer.json()
        return body["content"], body["stop_reason"]


class Responses(Phase):
    """An answer that is kept: what says `store: true` is there afterwards."""

    name = "responses"
    PATH = "/v1/responses"

    def __init__(self):
        super().__init__()
        self.kept = []  # what was acknowledged, and what it said

    def ask(self, target):
        answer = target.post(self.PATH, {"model": MODELS[0], "input": "Keep this.", "max_output_tokens": 8,
                                         "temperature": 0, "store": True})
        if answer.is_ok() and answer.json()["store"]:
            self.kept.append((answer.json()["id"], self.read(answer)))
        return answer

    def read(self, answer):
        body = answer.json()
        return [part["text"] for item in body["output"] for part in item.get("content", [])], body["status"]

    def settle(self, target):
        super().settle(target)
        for response, said in self.kept:
            found = target.ask("GET", f"{self.PATH}/{response}")
            if found.status != 200 or self.read(found) != said:
                raise Broken(f"a response that was kept gets {found.status}: {found.body[:300]!r}", "lost lines")
            target.must(target.ask("DELETE", f"{self.PATH}/{response}"), "deleting a response")
        self.kept.clear()


class Form(Phase):
    """An answer that is bound to a schema."""

    name = "form"
    SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["red", "green"]}},
              "required": ["ok", "kind"], "additionalProperties": False}

    def ask(self, target):
        body = chat_body("As an object.", max_tokens=60, response_format={
            "type": "json_schema", "json_schema": {"name": "thing", "schema": self.SCHEMA, "strict": True}})
        del body["ignore_eos"]
        return target.post(CHAT, body)

    def read(self, answer):
        choices, tokens = content_of(answer)
        json.loads(choices[0]["message"]["content"])
        return choices, tokens


class Vectors(Phase):
    """Of a model that is loaded before anything fails: loads have a phase of their own."""

    share = 0.7

    def prepare(self, target):
        super().prepare(target)
        target.must(self.ask(target), f"{self.name}, once its model is loaded,")
        target.wait_for(lambda: target.count("model_loads") == 0, "the note of a load to go")


class Embeddings(Vectors):
    name = "embeddings"

    def ask(self, target):
        return target.post("/v1/embeddings", {"model": ENCODER, "input": ["a b c", "d e", "f"]})

    def read(self, answer):
        return [item["embedding"] for item in answer.json()["data"]]


class Rerank(Vectors):
    name = "rerank"

    def ask(self, target):
        return target.post("/v1/rerank", {"model": RANKER, "query": "a b", "documents": ["a b", "c", "d e f"]})

    def read(self, answer):
        return [(result["index"], result["relevance_score"]) for result in answer.json()["results"]]


class Tokenize(Phase):
    name = "tokenize"
    share = 0.5

    def ask(self, target):
        return target.post("/tokenize", {"model": MODELS[0], "content": "Some words to cut. " * 20,
                                         "prompt": "Some words to cut. " * 20, "with_pieces": True})

    def read(self, answer):
        return answer.json()


class Metrics(Phase):
    name = "metrics"
    share = 0.5

    def ask(self, target):
        answer = target.ask("GET", "/metrics")
        return Answer(200, json.dumps(answer.body.decode()).encode()) if answer.status == 200 else answer

    def read(self, answer):
        """The names of the samples: a page that lost some is wrong, whatever their values."""
        return sorted(line.split("{")[0].split(" ")[0] for line in answer.json().splitlines()
                      if line and not line.startswith("#") and "_bucket" not in line)

    def prepare(self, target):
        target.ask("GET", "/metrics")
        self.expected = self.read(self.ask(target))

    def act(self, target):
        answer = self.ask(target)
        if not answer.is_ok():
            return answer.check_failure()
        missing = set(self.expected) - set(self.read(answer))
        if missing:
            raise Broken(f"a metrics page without {sorted(missing)[:5]}")

    def settle(self, target):
        self.act(target)


class Stream(Phase):
    name = "stream"

    def ask(self, target):
        return target.post(CHAT, chat_body("Count to ten.", stream=True))

    def read(self, answer):
        frames = [line[6:] for line in answer.body.decode().split("\n") if line.startswith("data: ")]
        chunks = [json.loads(frame) for frame in frames if frame != "[DONE]"]
        if any("error" in chunk for chunk in chunks):
            if frames[-1] == "[DONE]":
                raise Broken("an error frame that is followed by [DONE]")
            return None
        text = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])
        return text, frames[-1:] == ["[DONE]"]

    def prepare(self, target):
        if self.expected is None:
            self.expected = self.read(self.ask(target))
            assert self.expected[1], self.expected

    def act(self, target):
        answer = self.ask(target)
        if not answer.is_ok():
            return answer.check_failure()
        found = self.read(answer)
        if found is not None and found != self.expected:
            raise Broken(f"a stream that ends whole without its content: {answer.body[-300:]!r}")

    def settle(self, target):
        answer = self.ask(target)
        if not answer.is_ok() or self.read(answer) != self.expected:
            raise Broken(f"the stream after it: {answer.status} {answer.body[:300]!r}")
