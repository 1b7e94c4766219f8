#!/usr/bin/env python3
"""vLLM's gRPC face of `skein serve`, asked by an unmodified client: grpcio of build/venv-fleet, and messages by the .proto itself.

    SKEIN_TEST_BINARY=build/skein build/venv-fleet/bin/python -B tests/fleet/fleet_grpc_test.py
"""
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / "build/venv-fleet/bin/python"
if PYTHON.exists() and pathlib.Path(sys.prefix).resolve() != PYTHON.parents[1].resolve():
    os.execv(PYTHON, [str(PYTHON), "-B", *sys.argv])
sys.path.insert(0, str(HERE.parent / "apps"))
sys.path.insert(0, str(HERE))
import serving  # noqa: E402
from serving import Server, add_key, run, tiny_model  # noqa: E402

from grpc_client import MESSAGES, PROTOC, Client, grpc, joined, message, request_of  # noqa: E402

INVALID = "INVALID_ARGUMENT"


def names_of(pid):
    return [task.joinpath("comm").read_text().strip() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]


@serving.needs(grpc is not None, "there is no grpcio in build/venv-fleet")
@serving.needs(PROTOC, "there is no protoc")
class GrpcTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.tiny = tiny_model(cls.folder.name)

    def serve(self, *arguments, models=None, **more):
        server = Server("--grpc", "127.0.0.1:0", *arguments, models=models or (self.tiny,), **more)
        self.addCleanup(server.close)
        return server

    def client(self, server, model="tiny"):
        return Client(server.logged(rf"gRPC of {model}: port (\d+)")[1])

    def refused(self, code, ask):
        with self.assertRaises(grpc.RpcError) as caught:
            ask()
        self.assertEqual(caught.exception.code().name, code, caught.exception.details())
        return caught.exception.details()

    def test_what_a_router_asks_first(self):
        server = self.serve("--kv-events", "127.0.0.1:0", "--kv-events-topic", "kv", "--batch-block-pool-size", "64", "--batch-max-batch-size", "3")
        client = self.client(server)
        self.assertEqual([client.health(name) for name in ("", "vllm.Inference", "vllm.Control")], [1, 1, 1])
        self.refused("NOT_FOUND", lambda: client.health("another"))
        info = client.control("GetServerInfo", "ServerInfo")
        self.assertEqual((info.api_version, info.kv_block_size, info.total_kv_blocks, info.max_running_requests, info.max_model_len),
                         ("vllm", 32, 64, 3, 1024))
        self.assertEqual((info.parallelism.data_parallel_size, info.parallelism.data_parallel_rank), (1, 0))
        model = client.control("GetModelInfo", "ModelInfo")
        self.assertEqual((model.model_id, model.served_model_name, model.supports_token_ids_input), (str(self.tiny), "tiny", True))
        source, = client.control("GetKvEventSources", "GetKvEventSourcesResponse").sources
        port, replay = server.logged(r"KV events of tiny: port (\d+), again from port (\d+)").groups()
        self.assertEqual((source.transport, source.endpoint, source.replay_endpoint, source.topic, source.data_parallel_rank),
                         ("zmq", f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{replay}", "kv", 0))
        # What vLLM has for reinforcement learning.
        self.refused("UNIMPLEMENTED", lambda: client.call("/vllm.Control/Sleep", message("AbortRequest"), "vllm.AbortResponse"))

    def test_answers_are_those_of_http(self):
        server = self.serve()
        client = self.client(server)
        for prompt in ("Once upon a time", "Another text"):
            for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 7, "top_p": 0.9}):
                said = server.complete(prompt, max_tokens=40, ignore_eos=True, return_token_ids=True, **sampling).json()["choices"][0]
                fields = {"temperature": sampling["temperature"]}
                if "seed" in sampling:
                    fields["sampling"] = message("RandomSampling", seed=7, top_p=0.9)
                text, ids, end = joined(client.stream(prompt=prompt, tokens=40, **fields))
                self.assertEqual((text, ids), (said["text"], said["token_ids"]))
                self.assertEqual((end.finish_reason, end.num_output_tokens), (1, 40))
                whole = client.generate(prompt=prompt, tokens=40, **fields)
                self.assertEqual((whole.outputs.text, list(whole.outputs.token_ids), whole.prompt_info.num_prompt_tokens), (text, ids, len(prompt)))
        server.logged('"route":"/vllm.Inference/Generate"')

    def test_another_node_goes_on_at_any_piece(self):
        """What Dynamo does with a stream whose node has died: the tokens so far are a prompt."""
        client = self.client(self.serve())
        prompt = list(b"A stream that moves")
        for fields in ({"temperature": 0}, {"temperature": 1.2, "sampling": message("RandomSampling", seed=11)},
                       {"temperature": 1.2, "sampling": message("RandomSampling", seed=11), "stopping": message("StoppingCriteria", stop_strings=["ab", "\u00e9x"])}):
            pieces = list(client.stream(prompt=prompt, tokens=60, **fields))
            text, ids, _ = joined(pieces)
            for cut in range(1, len(pieces) - 1, 7):
                had_text, had, _ = joined(pieces[:cut])
                more_text, more, _ = joined(client.stream(prompt=prompt + had, tokens=60 - len(had), **fields))
                self.assertEqual((had_text + more_text, had + more), (text, ids))

    def test_logprobs(self):
        pieces = list(self.client(self.serve()).stream(response=message("ResponseOptions", output_token_ids=True, output_logprobs=True,
                                                                       output_candidates=message("CandidateTokens", top_n=3))))
        for piece in pieces:
            out = piece.outputs
            self.assertEqual({len(out.token_ids), len(out.logprobs), len(out.ranks), len(out.candidate_tokens)}, {out.num_tokens})
            for token, candidates in zip(out.token_ids, out.candidate_tokens):
                self.assertEqual([one.rank for one in candidates.tokens], [1, 2, 3])
                self.assertEqual(candidates.tokens[0].id, token)

    def test_forms(self):
        client = self.client(self.serve())
        free = {"temperature": 1, "stopping": message("StoppingCriteria")}

        def formed(**form):
            request = request_of(prompt="Say it", tokens=200, decoding=message("DecodingParameters", **form), sampling=message("RandomSampling", seed=3), **free)
            request.stopping.ignore_eos = False
            return client.call("/vllm.Inference/Generate", request).outputs.text

        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["n"], "additionalProperties": False}
        self.assertIn(json.loads(formed(json=json.dumps(schema)))["n"], range(10))
        self.assertRegex(formed(regex="(ab){2}c"), "^(ab){2}c$")
        self.assertIn(formed(choice=MESSAGES["vllm.DecodingParameters"].StringChoices(choices=["yes", "no"])), ("yes", "no"))
        self.assertEqual(formed(grammar='root ::= "x" "y"'), "xy")
        said = self.refused(INVALID, lambda: formed(json='{"type": 3}'))
        self.assertIn("decoding.json", said)
        self.assertIn("decoding.structural_tag", self.refused(INVALID, lambda: formed(structural_tag="x")))

    def test_bad_requests_are_told_which_field(self):
        server = self.serve()
        client = self.client(server)
        for field, fields in {"sampling.num_sequences": {"sampling": message("RandomSampling", num_sequences=2)},
                              "prompt": {"prompt": [300]},
                              "top_p": {"sampling": message("RandomSampling", top_p=2)},
                              "kv.cache_salt": {"kv": message("KVCacheParameters", cache_salt="x" * 600)},
                              "stopping.stop_strings": {"stopping": message("StoppingCriteria", stop_strings=["x"] * 17)},
                              "request_id": {"request_id": "x" * 300}}.items():
            self.assertIn(field, self.refused(INVALID, lambda: list(client.stream(**fields))))
        self.refused("NOT_FOUND", lambda: list(client.stream(model="another")))
        self.assertIn("1024", self.refused(INVALID, lambda: list(client.stream(prompt=[1] * 1020, tokens=100))))
        self.refused("RESOURCE_EXHAUSTED", lambda: list(client.stream(prompt="x" * (9 << 20))))  # gRPC's own word for a message that is too large
        self.assertEqual(len(joined(client.stream())[1]), 16)

    def test_who_goes_and_who_is_called_off(self):
        server = self.serve("--batch-max-batch-size", "2")
        client = self.client(server)
        running = 'vllm:num_requests_running{model_name="tiny"}'

        def long(**fields):
            return client.stream(prompt="A long one", tokens=1000, **fields)

        stream = long()
        next(stream)
        stream.cancel()
        self.assertTrue(server.settle(lambda: server.metrics()[running] == 0))
        # By its id: told how far it came.
        slow = [long(request_id=f"slow-{i}") for i in range(12)]
        slow[0] = itertools.chain([next(slow[0])], slow[0])
        client.control("Abort", "AbortResponse", request_ids=[f"slow-{i}" for i in range(12)] + ["nobody"])
        ends = []
        for stream in slow:
            try:
                ends.append(joined(stream))
            except grpc.RpcError as error:  # it had not begun
                self.assertEqual(error.code().name, "CANCELLED", error.details())
        self.assertTrue(any(end.finish_reason == 3 for _, _, end in ends))
        for _, ids, end in ends:
            self.assertEqual(end.num_output_tokens, len(ids))
        # By its time.
        self.refused("DEADLINE_EXCEEDED", lambda: [list(s) for s in [long(patience_s=0.01) for _ in range(8)]])
        self.assertTrue(server.settle(lambda: server.metrics()[running] == 0))
        self.assertTrue(server.settle(lambda: server.get("/v1/requests").json().get("running", []) == []))

    def test_who_does_not_read(self):
        server = self.serve()
        client = self.client(server)
        idle = [client.stream(prompt="Nobody reads this", tokens=900) for _ in range(4)]
        for _ in range(5):
            self.assertEqual(len(joined(client.stream())[1]), 16)
        expected = joined(client.stream(prompt="Nobody reads this", tokens=900))[:2]
        for stream in idle:
            self.assertEqual(joined(stream)[:2], expected)

    def test_tenants(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))
        key = add_key(folder / "state", "alice", "--tokens-per-minute", "400")
        server = self.serve("--kv-events", "127.0.0.1:0", state_dir=folder / "state", wait=False)
        server.key = key
        server.wait_for("/health", 200)
        client = self.client(server)
        prompt = "The same text of two who do not know each other. " * 3

        def cached(tenant, **fields):
            before = server.metrics()['vllm:prefix_cache_hits_total{model_name="tiny"}']
            joined(client.stream(prompt=prompt, tokens=2, kv=message("KVCacheParameters", cache_salt=tenant, **fields)))
            return server.metrics()['vllm:prefix_cache_hits_total{model_name="tiny"}'] - before

        self.assertEqual([cached("a"), cached("b"), cached("")], [0, 0, 0])
        self.assertTrue(all(found > 0 for found in (cached("a"), cached("b"), cached(""))))
        self.assertEqual(cached("a", bypass_prefix_cache=True), 0)
        # One that is a key has the key's tokens.
        name = "dynamo-cache-salt:" + server.get("/v1/auth/check").headers["x-tenant-id"]
        kv = message("KVCacheParameters", cache_salt=name)
        self.assertEqual(len(joined(client.stream(prompt=prompt, tokens=8, kv=kv))[1]), 8)
        server.logged('"key":"alice"')
        self.refused("RESOURCE_EXHAUSTED", lambda: [list(client.stream(prompt=prompt, tokens=100, kv=kv)) for _ in range(4)])

    def test_drain(self):
        server = self.serve("--drain-timeout", "20")
        client = self.client(server)
        streams = [client.stream(prompt="To the end", tokens=1000) for _ in range(8)]
        for stream in streams:
            next(stream)
        server.signal(signal.SIGTERM)
        self.assertTrue(server.settle(lambda: self.turned_away(client) or server.process.poll() is not None))
        for stream in streams:
            self.assertEqual(joined(stream)[2].finish_reason, 1)
        self.assertEqual(server.process.wait(30), 0, server.messages())

    def turned_away(self, client):
        try:
            return client.health("vllm.Inference") == 2
        except grpc.RpcError:
            return True

    def test_hung_drain_ends_in_time(self):
        server = self.serve("--drain-timeout", "0")
        client = self.client(server)
        streams = [client.stream(prompt="Cut", tokens=1000) for _ in range(32)]
        next(streams[0])
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        server.process.wait(30)
        self.assertLess(time.monotonic() - begin, 5)
        for stream in streams:
            try:
                self.assertEqual(joined(stream)[2].num_output_tokens, 1000)
            except (grpc.RpcError, IndexError) as error:
                if isinstance(error, grpc.RpcError):
                    self.assertIn(error.code().name, ("UNAVAILABLE", "CANCELLED"), error.details())

    @serving.hardware
    def test_sandbox_holds_gRPCs_threads_too(self):
        server = self.serve("--sandbox")
        client = self.client(server)
        self.assertEqual(len(joined(client.stream())[1]), 16)
        server.logged("sandbox: files and connections by Landlock")
        tasks = [dict(line.split(":\t", 1) for line in task.joinpath("status").read_text().splitlines() if ":\t" in line)
                 for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()]
        self.assertTrue(any("grpc" in task["Name"] for task in tasks), names_of(server.process.pid))
        for task in tasks:
            self.assertEqual((task["Seccomp"], task["NoNewPrivs"]), ("2", "1"), task["Name"])
        # Connections come and go; their number changes nothing.
        for _ in range(50):
            other = self.client(server)
            self.assertEqual(other.health(), 1)
            other.channel.close()
        self.assertLess(len(names_of(server.process.pid)), len(tasks) + 16)

    def test_only_this_machine_unless_told(self):
        done = run("serve", "--model", self.tiny, "--port", "0", "--grpc", "0.0.0.0:0", "--state-dir", pathlib.Path(self.folder.name, "s1"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--grpc-insecure-open", done.stderr)
        server = Server("--grpc", "0.0.0.0:0", "--grpc-insecure-open", models=(self.tiny,))
        self.addCleanup(server.close)
        self.assertEqual(self.client(server).health(), 1)

    def test_options(self):
        state = pathlib.Path(self.folder.name, "s2")
        for line, words in ((["--grpc", "nowhere"], "ADDR:PORT"), (["--grpc-tokenizer", "x"], "--grpc"),
                            (["--grpc", "127.0.0.1:0", "--grpc-tokenizer", "/nowhere"], "export-tokenizer")):
            done = run("serve", "--model", self.tiny, "--port", "0", "--state-dir", state, *line)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
        server = self.serve()
        port = server.logged(r"gRPC of tiny: port (\d+)")[1]
        done = run("serve", "--model", self.tiny, "--port", "0", "--state-dir", state, "--grpc", f"127.0.0.1:{port}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(port, done.stderr)
        self.assertIn("gRPC       vLLM's services", run("--version", "--verbose").stdout)

    def test_a_second_model_has_the_next_port(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))
        server = self.serve(models=(tiny_model(folder, "one"), tiny_model(folder, "two")))
        for model in ("one", "two"):
            client = self.client(server, model)
            self.assertEqual(client.control("GetModelInfo", "ModelInfo").served_model_name, model)
            self.assertEqual(len(joined(client.stream(model=model))[1]), 16)

    def test_many_at_once(self):
        server = self.serve("--max-queue", "4", "--batch-max-batch-size", "2")
        client = self.client(server)
        results, lock = [], threading.Lock()

        def ask():
            try:
                result = len(joined(client.stream(tokens=200))[1])
            except grpc.RpcError as error:
                result = error.code().name
            with lock:
                results.append(result)

        threads = [threading.Thread(target=ask) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 40)
        self.assertGreater(results.count(200), 2)
        self.assertLessEqual(set(results), {200, "RESOURCE_EXHAUSTED"})

    def test_crowd_that_leaves(self):
        server = self.serve("--batch-max-batch-size", "8")

        done = []

        def crowd(seed):
            rng, client = random.Random(seed), self.client(server)
            for _ in range(40):
                stream = client.stream(prompt=f"Someone {rng.random()}", tokens=rng.randrange(1, 400), request_id=f"id-{rng.randrange(5)}")
                try:
                    for _ in range(rng.randrange(0, 6)):
                        next(stream)
                    what = rng.choice([stream.cancel, lambda: None, client.channel.close, lambda: client.control("Abort", "AbortResponse", request_ids=["id-1"])])
                    what()
                    if what == client.channel.close:
                        client = self.client(server)
                except (StopIteration, grpc.RpcError):
                    pass
            done.append(seed)

        threads = [threading.Thread(target=crowd, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(done), 8)
        self.assertTrue(server.settle(lambda: server.metrics()['vllm:num_requests_running{model_name="tiny"}'] == 0))
        self.assertEqual(len(joined(self.client(server).stream())[1]), 16)
        self.assertIsNone(server.process.poll())

    def test_bytes_that_are_no_calls(self):
        server = self.serve()
        port = int(server.logged(r"gRPC of tiny: port (\d+)")[1])
        client, rng = self.client(server), random.Random(1)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for sent in [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", preface, preface + b"\0" * 4096, *(preface + rng.randbytes(200) for _ in range(50)), rng.randbytes(100_000)]:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
                try:
                    peer.sendall(sent)
                except OSError:
                    pass  # it was cut
        # A message that is none, of a method that there is.
        for method in ("Generate", "GenerateStream"):
            make = client.channel.unary_stream if method == "GenerateStream" else client.channel.unary_unary
            for _ in range(50):
                ask = make(f"/vllm.Inference/{method}", lambda m: m, MESSAGES["vllm.GenerateResponse"].FromString)
                self.refused(INVALID, lambda: list(answer) if hasattr(answer := ask(b"\x1a\xff" + rng.randbytes(50), timeout=30), "__next__") else answer)
        self.assertEqual(len(joined(client.stream())[1]), 16)
        # A text that is no text: the sender is told, and the log is not written full.
        self.refused(INVALID, lambda: client.channel.unary_unary("/vllm.Inference/Generate", lambda m: m, lambda m: m)(b"\x1a\x02\xff\xfe", timeout=30))
        self.assertNotIn("libprotobuf", server.messages())

    def test_connections_are_counted(self):
        """256 are all that may be, of whatever kind; who is there goes on, others are cut, and a place is free when a connection ends."""
        server = self.serve()
        port = int(server.logged(r"gRPC of tiny: port (\d+)")[1])
        client = self.client(server)
        stream = client.stream(prompt="It goes on", tokens=200)
        first = next(stream)
        before = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        peers = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(400)]
        self.addCleanup(lambda: [peer.close() for peer in peers])
        greeted = cut = 0
        for peer in peers:  # gRPC greets whom it has; who was cut hears nothing
            try:
                greeted, cut = (greeted + 1, cut) if peer.recv(1) else (greeted, cut + 1)
            except OSError:
                cut += 1
        self.assertEqual((greeted, cut), (255, 145))
        server.logged("256 connections are all")
        self.assertLess(len(os.listdir(f"/proc/{server.process.pid}/fd")) - before, 2 * 256 + 16)
        self.assertEqual(server.get("/health").status, 200)
        self.assertEqual(len(joined(itertools.chain([first], stream))[1]), 200)
        self.assertEqual(client.health(), 1)
        for peer in peers:
            peer.close()
        self.assertTrue(server.settle(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) <= before + 16))
        self.assertEqual(self.client(server).health(), 1)


if __name__ == "__main__":
    serving.main()
