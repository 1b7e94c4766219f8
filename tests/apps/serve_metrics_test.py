"""What /metrics says is what clients saw, and promtool can read it."""
import collections
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import serving
from serving import Answer, Server, in_parallel, needs_model

REQUESTS = 60
NAMED_BY_VLLM = """num_requests_running num_requests_waiting kv_cache_usage_perc cache_config_info
prefix_cache_queries_total prefix_cache_hits_total num_preemptions_total spec_decode_num_drafts_total
spec_decode_num_draft_tokens_total spec_decode_num_accepted_tokens_total prompt_tokens_total generation_tokens_total
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


def routed_request(server, i):
    """One of ten kinds; (route, method, status, prompt tokens, output tokens) as the client saw it."""
    kind = i % 10
    prompt, tokens = "x" * (1 + i % 17), 1 + i % 5
    generated = {2: ("/v1/completions", {"prompt": prompt}), 4: ("/v1/completions", {"prompt": prompt}),
                 5: ("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}]}),
                 6: ("/v1/batch/completions", {"prompt": prompt})}
    if kind in generated:
        route, body = generated[kind]
        answer = server.post(route, {**body, "max_tokens": tokens, "ignore_eos": True})
        usage = answer.json()["usage"]
        return route, "POST", answer.status, usage["prompt_tokens"], usage["completion_tokens"]
    if kind == 0:
        return "/v1/models", "GET", server.get("/v1/models").status, 0, 0
    if kind == 1:
        return "/v1/models/{path}", "GET", server.get("/v1/models/no/such").status, 0, 0
    if kind == 3:
        return "/v1/completions", "POST", server.complete(max_tokens=-1).status, 0, 0
    if kind == 7:
        return "other", "other", server.get(f"/nothing/{i}").status, 0, 0
    if kind == 8:
        return "other", "other", server.post("/v1/models", {}).status, 0, 0
    return "/tokenize", "POST", server.post("/tokenize", {}, {"Content-Type": "text/plain"}).status, 0, 0


class RouteCountsTest(unittest.TestCase):
    COUNT, THREADS = 1000, 4

    def test_answers_are_counted_by_route_and_status(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server("--memory", "1GiB", models=(serving.tiny_model(folder),)) as server:
            parts = in_parallel(self.THREADS, lambda t: [routed_request(server, i)
                                                         for i in range(t, self.COUNT, self.THREADS)])
            seen = [answer for part in parts for answer in part]
            page = server.metrics()
            counted = {re.match(r'skein:http_requests_total{route="(.*)",method="(.*)",status="(\d+)"}', name).groups():
                       value for name, value in page.items() if name.startswith("skein:http_requests_total{")}
            expected = collections.Counter((route, method, str(status)) for route, method, status, _, _ in seen)
            self.assertEqual({key: value for key, value in counted.items() if key[0] not in ("/health", "/metrics")},
                             dict(expected))
            self.assertEqual({status for _, _, status in expected}, {"200", "400", "404", "405", "415"})
            self.assertEqual(total(page, "vllm:prompt_tokens_total"), sum(answer[3] for answer in seen))
            self.assertEqual(total(page, "vllm:generation_tokens_total"), sum(answer[4] for answer in seen))


class AuditTest(unittest.TestCase):
    def test_refusals_and_admin_calls_are_logged_without_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            state_dir = pathlib.Path(folder, "state")
            boss = serving.add_key(state_dir, "boss", "--admin")
            plain = serving.add_key(state_dir, "plain", "--models", "nothing")
            with Server("--memory", "1GiB", models=(serving.tiny_model(folder),), state_dir=state_dir) as server:
                self.check_log(server, boss, plain)

    def check_log(self, server, boss, plain):
        server.key = boss
        self.assertEqual(server.get("/admin/stats").status, 200)
        self.assertEqual(server.get("/admin/stats", Authorization=f"Bearer {plain}").status, 403)
        server.key = plain
        self.assertEqual(server.complete(max_tokens=1).status, 403)
        wrong = "sk-" + "0" * 16 + "-" + "5ec7e7" * 10 + "0000"
        for _ in range(30):
            self.assertEqual(server.get("/v1/models", Authorization=f"Bearer {wrong}").status, 401)
        server.key = boss
        made = server.post("/admin/keys", {"name": "new"}).json()
        self.assertEqual(Answer(*server.send("DELETE", f"/admin/keys/{made['id']}")).status, 200)
        calls = [f"audit: admin call {what} from 127.0.0.1 by key {boss.split('-')[1]} (boss)\n"
                 for what in ("GET /admin/stats", "POST /admin/keys", f"DELETE /admin/keys/{made['id']}")]
        self.assertTrue(server.settle(lambda: calls[-1] in server.messages(), 10), server.messages())
        log = server.messages()
        for call in calls:
            self.assertIn(call, log)
        self.assertIn(f"audit: refused with 403: GET /admin/stats from 127.0.0.1 by key {plain.split('-')[1]}\n", log)
        self.assertIn(f"audit: refused with 403: POST /v1/completions from 127.0.0.1 by key {plain.split('-')[1]}\n",
                      log)
        self.assertIn("audit: refused with 401: GET /v1/models from 127.0.0.1\n", log)
        self.assertEqual(log.count("audit: refused"), 10)  # of a minute
        for key in (boss, plain, wrong, made["key"]):
            self.assertNotIn(key.split("-")[2], log)
        counted = total(server.metrics(), "skein:http_requests_total", 'route="/v1/models"', 'status="401"')
        self.assertEqual(counted, 30)


if __name__ == "__main__":
    unittest.main()
