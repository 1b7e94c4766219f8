#!/usr/bin/env python3
"""Spans of requests through HAProxy, as a collector of OpenTelemetry gets them from three nodes.

    tests/fleet/with_postgres.sh tests/fleet/fleet_traces_test.py build/skein

What is posted must be OTLP's own messages (opentelemetry-proto, tools/python_env.sh fleet), one trace for a request, below the
client's span, and its stretches must add up to it. The last line is the figure.
"""
import base64
import http.client
import http.server
import json
import os
import pathlib
import secrets
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE.parents[1] / "build/venv-fleet"
if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), "-B", *sys.argv])
for folder in (HERE, HERE.parent / "server/batch"):
    sys.path.insert(0, str(folder))
try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
except ImportError as error:
    print(f"fleet traces: {error.name} is not there; `tools/python_env.sh fleet` installs it")
    sys.exit(1 if os.environ.get("SKEIN_REQUIRE") == "all" else 77)
from batch_kill_test import write_tiny_model  # noqa: E402
from fleet_batch_test import wait_for  # noqa: E402
from fleet_router_test import Fleet  # noqa: E402

ROUNDS = 30
SLACK_NS = 200_000_000


class Collector:
    """Keeps every span that is posted, read as OTLP's JSON: ids are hex there, and base64 in protobuf's own."""

    def __init__(self):
        self.spans, self.nodes, self.wrong = [], set(), []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json", self.path
                    collector.take(body)
                except Exception as error:  # told by the test
                    collector.wrong.append(f"{type(error).__name__}: {error}")
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, body):
        message = json.loads(body)
        for resource in message["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for field in ("traceId", "spanId", "parentSpanId"):
                        if field in span:
                            span[field] = base64.b64encode(bytes.fromhex(span[field])).decode()
        parsed = json_format.ParseDict(message, trace_service_pb2.ExportTraceServiceRequest())
        for resource in parsed.resource_spans:
            told = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
            assert told["service.name"] == "skein", told
            self.nodes.add(told["service.instance.id"])
            for scope in resource.scope_spans:
                self.spans += scope.spans


def ask(front, trace, parent, streamed):
    body = {"messages": [{"role": "user", "content": f"Traced {trace}"}], "max_tokens": 20, "ignore_eos": True, "stream": streamed}
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    began = time.time_ns()
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Authorization": f"Bearer {front.key}", "Content-Type": "application/json", "traceparent": f"00-{trace}-{parent}-01"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, answer.status
    return began, time.time_ns()


def check_trace(spans, parent, began, ended):
    """-> nanoseconds of the request that no stretch but the first accounts for."""
    roots = [span for span in spans if span.parent_span_id.hex() == parent]
    assert len(roots) == 1, f"{len(roots)} spans below the client's"
    root = roots[0]
    # A request is written down when its client has the answer, which a busy machine may do a moment later.
    assert began <= root.start_time_unix_nano + SLACK_NS and root.end_time_unix_nano <= ended + SLACK_NS, "the span is not the client's call"
    parts = [span for span in spans if span.parent_span_id == root.span_id]
    assert [part.name for part in parts] == ["prepare", "queue", "prefill", "decode"], [part.name for part in parts]
    total = root.end_time_unix_nano - root.start_time_unix_nano
    together = sum(part.end_time_unix_nano - part.start_time_unix_nano for part in parts)
    assert abs(total - together) <= 1_000_000, f"{together} ns of {total} are accounted for"
    return total - sum(part.end_time_unix_nano - part.start_time_unix_nano for part in parts[1:])


def main():
    if not os.environ.get("SKEIN_TEST_STORE"):
        sys.exit("fleet traces: run it with tests/fleet/with_postgres.sh")
    collector = Collector()
    with tempfile.TemporaryDirectory(prefix="skein-traces-") as folder:
        options = type("Options", (), {})()
        options.binary, options.folder = sys.argv[1], pathlib.Path(folder)
        options.model = write_tiny_model(options.folder / "tiny")
        with Fleet(options, **{"otlp-endpoint": f"http://127.0.0.1:{collector.port}"}) as fleet:
            asked = {}
            for i in range(ROUNDS):
                trace, parent = secrets.token_hex(16), secrets.token_hex(8)
                asked[trace] = (parent, *ask(fleet.front, trace, parent, i % 2 == 1))
            wait_for("the spans", lambda: len(collector.spans) >= 5 * ROUNDS or collector.wrong, 10)
    assert not collector.wrong, collector.wrong[0]
    unaccounted = []
    for trace, (parent, began, ended) in asked.items():
        spans = [span for span in collector.spans if span.trace_id.hex() == trace]
        assert len(spans) == 5, f"{len(spans)} spans of a request"
        unaccounted.append(check_trace(spans, parent, began, ended))
    middle = sorted(unaccounted)[len(unaccounted) // 2] / 1e6
    assert middle <= 1, f"{middle:.2f} ms of a request are neither queue nor prefill nor decode"
    assert collector.nodes == {"n1", "n2", "n3"}, collector.nodes
    print(f"fleet traces: {ROUNDS} requests through HAProxy: one trace each, below the client's span; queue, prefill and decode are all but "
          f"{middle:.2f} ms of the total (median), and with what came before them all of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
