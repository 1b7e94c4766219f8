"""What /metrics says is what clients saw, and promtool can read it."""
import re
import shutil
import subprocess
import unittest

import serving
from serving import Server, in_parallel, needs_model

REQUESTS = 60
NAMED_BY_VLLM = """num_requests_running num_requests_waiting kv_cache_usage_perc cache_config_info
prefix_cache_queries_total prefix_cache_hits_total num_preemptions_total prompt_tokens_total generation_tokens_total
request_success_total time_to_first_token_seconds inter_token_latency_seconds e2e_request_latency_seconds
request_queue_time_seconds request_prefill_time_seconds request_decode_time_seconds request_prompt_tokens
request_generation_tokens iteration_tokens_total""".split()


def mixed_request(server, i):
    """One of six kinds; (prompt tokens, output tokens, finish reasons)."""
    prompt = f"Number {i % 7}. " + "The quick brown fox jumps over the lazy dog. " * (i % 3)
    fields = {"max_tokens": 3 + i % 9, "seed": i, "temperature": 1}
    kind = i % 6
    chat = {"messages": [{"role": "user", "content": prompt}], **fields}
    if kind == 0:
        body = server.complete(prompt, **fields).json()
    elif kind == 1:
        body = server.post("/v1/chat/completions", chat).json()
    elif kind == 2:
        body = server.complete(prompt, n=2, **fields).json()
    elif kind == 3:
        body = server.complete(prompt, stop=["e", "\n"], **fields).json()
    elif kind == 4:
        body = server.post("/v1/messages", chat).json()
        usage = body["usage"]  # Anthropic counts what was cached apart
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"], 1
    else:
        stream = server.stream(prompt=prompt, stream_options={"include_usage": True}, **fields).read()
        assert stream.ended
        return stream.usage["prompt_tokens"], stream.usage["completion_tokens"], 1
    return body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"], 1


def total(page, name, *labels):
    return sum(value for sample, value in page.items()
               if sample.split("{")[0] == name and all(label in sample for label in labels))


@needs_model
class MetricsTest(unittest.TestCase):
    def test_counters_equal_the_clients_sums(self):
        with Server() as server:
            seen = in_parallel(6, lambda t: [mixed_request(server, i) for i in range(t, REQUESTS, 6)])
            answers = [answer for part in seen for answer in part]
            bad = [server.complete(max_tokens=0).status, server.complete(model="none").status,
                   server.post("/v1/completions", {"prompt": "x", "temperature": 9}).status]
            self.assertEqual(bad, [400, 404, 400])
            page = server.metrics()  # at once: who has an answer finds it counted
            self.assertEqual(total(page, "vllm:prompt_tokens_total"), sum(a[0] for a in answers))
            self.assertEqual(total(page, "vllm:generation_tokens_total"), sum(a[1] for a in answers))
            self.assertEqual(total(page, "vllm:request_success_total"), REQUESTS)
            self.assertEqual(total(page, "vllm:e2e_request_latency_seconds_count"), REQUESTS)
            self.assertEqual(total(page, "vllm:time_to_first_token_seconds_count"), REQUESTS)
            self.assertEqual(total(page, "vllm:request_prompt_tokens_sum"), sum(a[0] for a in answers))
            self.assertEqual(total(page, "vllm:request_generation_tokens_sum"), sum(a[1] for a in answers))
            self.assertEqual(total(page, "vllm:num_requests_running"), 0)
            self.assertEqual(total(page, "vllm:kv_cache_usage_perc"), 0)
            self.assertGreater(total(page, "vllm:prefix_cache_hits_total"), 0)
            self.assertEqual(total(page, "vllm:iteration_tokens_total_sum"), total(page, "skein:computed_tokens_total"))
            self.check_names(server)
            self.check_unload(server)

    def check_names(self, server):
        page = server.get("/metrics")
        self.assertTrue(page.headers["content-type"].startswith("text/plain; version=0.0.4"))
        text = page.body.decode()
        for name in NAMED_BY_VLLM:
            self.assertIn(f"# TYPE vllm:{name} ", text)
        names = set(re.findall(r'model_name="([^"]*)"', text))
        self.assertLessEqual(names, {serving.MODEL.stem, ""})
        if not shutil.which("promtool"):
            serving.lacks(self, "promtool is not there (Debian's prometheus)")
        told = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        said = (told.stdout + told.stderr).splitlines()
        expected = [line for line in said
                    if line.endswith("metric names should not contain ':'")
                    or line.startswith("vllm:iteration_tokens_total ")]
        self.assertEqual(said, expected)
        self.assertNotEqual(told.returncode, 1, told.stderr)  # 1: not parsed; 3: style, as above

    def check_unload(self, server):
        before = server.metrics()
        server.key = serving.run("keys", "add", "--name", "a", "--admin", "--print-key-only",
                                 "--state-dir", server.state_dir).stdout.strip()
        server.wait_for("/admin/stats", 200)
        self.assertEqual(server.post("/admin/models/unload", {"model": serving.MODEL.stem}).status, 200)
        gone = server.metrics()
        server.complete(max_tokens=2)
        after = server.metrics()
        for sample, value in before.items():
            if re.search(r"_total(\{|$)|_count\{|_bucket\{", sample):
                self.assertGreaterEqual(gone[sample], value, sample)
                self.assertGreaterEqual(after[sample], gone[sample], sample)
        self.assertEqual(total(after, "skein:model_loads_total"), 2)

    def test_a_full_queue_is_answered_with_an_honest_wait(self):
        with Server("--max-queue", "2", "--batch-max-batch-size", "1") as server:
            self.assertEqual(server.complete(max_tokens=8, ignore_eos=True).status, 200)
            answers = in_parallel(16, lambda i: server.complete(max_tokens=24, ignore_eos=True))
            refused = [answer for answer in answers if answer.status == 429]
            self.assertTrue(refused)
            self.assertEqual(len(refused) + sum(answer.status == 200 for answer in answers), 16)
            for answer in refused:
                self.assertEqual(answer.json()["error"]["code"], "queue_full")
                self.assertTrue(1 <= int(answer.headers["retry-after"]) <= 60)
            page = server.metrics()
            self.assertEqual(total(page, "skein:rejected_requests_total", 'reason="queue_full"'), len(refused))


if __name__ == "__main__":
    unittest.main()
