"""What the server does while a call of it fails, and what must be true afterwards.

A phase prepares without faults, acts while the shim is armed, and settles when it is not any more.
Each step raises Broken for a promise that was not kept. A fault may fail what was asked, in a way that a
client can see; it may not change an answer, hang, kill the process or take back what was acknowledged.
"""
import itertools
import json
import time

from answer_phases import (CHAT, Chat, Completions, Embeddings, Form, Load, Messages, Metrics, Phase, Rerank, Responses, Stream,
                           Tokenize, chat_body)
from target import PATIENCE_S, Broken, check_database

ENDED = ("completed", "failed", "expired", "cancelled")
unique = itertools.count(1)


def lines_of(count):
    return "".join(json.dumps({"custom_id": f"c{i}", "method": "POST", "url": CHAT,
                               "body": chat_body(f"Line {i}", max_tokens=4)}) + "\n" for i in range(count))


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


PHASES = (Chat, Stream, Completions, Messages, Responses, Form, Embeddings, Rerank, Tokenize, Metrics, Upload, Delete, Keys, Load, Batch, Start, Drain)
