"""What the server does while a call of it fails, and what must be true afterwards.

A phase prepares without faults, acts while the shim is armed, and settles when it is not any more.
Each step raises Broken for a promise that was not kept. A fault may fail what was asked, in a way that a
client can see; it may not change an answer, hang, kill the process or take back what was acknowledged.
"""
import itertools
import json
import time

from target import MODELS, PATIENCE_S, Answer, Broken, check_database

CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")
unique = itertools.count(1)


def chat_body(text, model=MODELS[0], **more):
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0,
            "ignore_eos": True, **more}


def content_of(answer):
    """What a plain answer says, without what differs from one request to the next."""
    body = answer.json()
    return body["choices"], body["usage"]["completion_tokens"]


def lines_of(count):
    return "".join(json.dumps({"custom_id": f"c{i}", "method": "POST", "url": CHAT,
                               "body": chat_body(f"Line {i}", max_tokens=4)}) + "\n" for i in range(count))


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


class Upload(Phase):
    name = "upload"

    def prepare(self, target):
        self.text = lines_of(40)
        self.file = None

    def act(self, target):
        answer = target.upload(self.text)
        if not answer.is_ok():
            return answer.check_failure()
        self.file = answer.json()["id"]

    def settle(self, target):
        if self.file is None:
            self.file = target.must(target.upload(self.text), "an upload")["id"]
        content = target.ask("GET", f"/v1/files/{self.file}/content")
        if content.body != self.text.encode():
            raise Broken(f"an upload that was acknowledged has {len(content.body)} of {len(self.text)} bytes",
                         "lost lines")
        target.must(target.ask("DELETE", f"/v1/files/{self.file}"), "deleting a file")


class Delete(Phase):
    name = "delete"

    def prepare(self, target):
        self.file = target.must(target.upload(lines_of(2)), "an upload")["id"]
        self.path = f"/v1/files/{self.file}"

    def act(self, target):
        answer = target.ask("DELETE", self.path)
        if not answer.is_ok():
            answer.check_failure()
        elif target.shim.disarm() or target.ask("GET", self.path).status != 404:
            raise Broken("a file that was deleted is there")

    def settle(self, target):
        again = target.ask("DELETE", self.path)
        if again.status not in (200, 404):
            raise Broken(f"deleting again gets {again.status}: {again.body[:200]!r}")


class Keys(Phase):
    name = "keys"

    def prepare(self, target):
        self.key = None
        self.refused = False

    def act(self, target):
        added = target.post("/admin/keys", {"name": f"key-{time.monotonic_ns()}-{next(unique)}"})
        if not added.is_ok():
            return added.check_failure()
        self.key = added.json()
        used = target.ask("GET", "/v1/models", key=self.key["key"])
        if not used.is_ok():
            used.check_failure()
        revoked = target.ask("DELETE", f"/admin/keys/{self.key['id']}")
        if not revoked.is_ok():
            return revoked.check_failure()
        self.refused = True

    def settle(self, target):
        if self.key is None:
            return
        if not self.refused:
            used = target.ask("GET", "/v1/models", key=self.key["key"])
            # A revocation that failed may count already, but a key that was acknowledged is never forgotten.
            if used.status not in (200, 401):
                raise Broken(f"a key that was acknowledged gets {used.status}")
            revoked = target.ask("DELETE", f"/admin/keys/{self.key['id']}")
            if revoked.status not in (200, 404):  # 404: it is revoked, and only the answer was lost
                raise Broken(f"after the fault revoking a key gets {revoked.status}: {revoked.body[:200]!r}")
        if target.ask("GET", "/v1/models", key=self.key["key"]).status != 401:
            raise Broken("a key that was revoked is let in")


class Batch(Phase):
    name = "batch"
    share = 1.0
    LINES = 3

    def prepare(self, target):
        self.file = target.must(target.upload(lines_of(self.LINES)), "an upload")["id"]
        self.batch, self.counted = None, 0

    def act(self, target):
        created = target.post("/v1/batches", {"input_file_id": self.file, "endpoint": CHAT,
                                              "completion_window": "24h"})
        if not created.is_ok():
            return created.check_failure()
        self.batch = created.json()["id"]
        until = time.monotonic() + PATIENCE_S
        # Once the fault has struck, what is left is settle()'s.
        while time.monotonic() < until and not target.shim.get("failed"):
            looked = target.ask("GET", f"/v1/batches/{self.batch}")
            if not looked.is_ok():
                return looked.check_failure()
            record = looked.json()
            self.counted = max(self.counted, record["request_counts"]["completed"])
            if record["status"] in ENDED:
                return
            time.sleep(0.01)

    def record(self, target):
        answer = target.ask("GET", f"/v1/batches/{self.batch}")
        if answer.status == 404:
            raise Broken("a batch that was acknowledged is gone", "lost lines")
        return target.must(answer, "a batch")

    def settle(self, target):
        if self.batch is None:  # the answer was lost: it may have been made all the same
            made = target.must(target.ask("GET", "/v1/batches?limit=5"), "the list of batches")["data"]
            self.batch = next((batch["id"] for batch in made if batch["input_file_id"] == self.file), None)
        if self.batch is not None:
            target.wait_for(lambda: self.record(target)["status"] in ENDED, "the end of a batch", 2 * PATIENCE_S)
            self.check(target, self.record(target))
        target.must(target.ask("DELETE", f"/v1/files/{self.file}"), "deleting a file")

    def check(self, target, record):
        counts = record["request_counts"]
        if record["status"] == "failed":  # as a whole, before any line ran
            if not record["errors"]["data"] or self.counted:
                raise Broken(f"a batch failed after {self.counted} lines: {record}", "lost lines")
            return
        found = {}
        for kind in ("output_file_id", "error_file_id"):
            if record[kind]:
                content = target.ask("GET", f"/v1/files/{record[kind]}/content")
                found[kind] = [json.loads(line)["custom_id"] for line in content.body.splitlines()]
                target.must(target.ask("DELETE", f"/v1/files/{record[kind]}"), "deleting an output")
        done, failed = found.get("output_file_id", []), found.get("error_file_id", [])
        wanted = sorted(f"c{i}" for i in range(self.LINES))
        if sorted(done + failed) != wanted or len(done) != counts["completed"] or len(done) < self.counted:
            raise Broken(f"lines {done} and errors {failed} of a batch that counts {counts}", "lost lines")


class Start(Phase):
    """A process of its own: it may end with status 1 and a message, or serve."""

    name = "start"
    share = 1.5

    def prepare(self, target):
        target.kill()

    def act(self, target):
        target.launch()
        if not target.wait_ready():
            code = target.process.returncode
            if code < 0:
                raise Broken(f"the start ends by signal {-code}")
            if code != 1 or not target.messages().strip():
                raise Broken(f"the start ends with status {code}, saying {target.messages()!r}")

    def settle(self, target):
        if not target.is_alive():
            target.kill()
            target.start()


class Drain(Phase):
    """SIGTERM while a stream runs."""

    name = "drain"
    share = 0.7

    def prepare(self, target):
        if not target.is_alive():
            target.kill()
            target.start()

    def act(self, target):
        target.terminate()
        code = target.wait_end(PATIENCE_S)
        if code != 0:
            raise Broken(f"SIGTERM ends with status {code}: {target.messages()[-300:]!r}")

    def settle(self, target):
        check_database(target.state / "skein.db")
        target.kill()
        target.start()


PHASES = (Chat, Stream, Completions, Messages, Tokenize, Metrics, Upload, Delete, Keys, Load, Batch, Start, Drain)
