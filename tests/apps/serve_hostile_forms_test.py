"""Schemas, grammars and tools that nobody should send, at a running server: each gets the right code, and neighbours go on (G10).

With SKEIN_TEST_FULL=1 (`make hostile-forms`) the time between the tokens of neighbours is held to 1.2 times, in p99, what it is beside the same
requests without their forms: those that were answered are sent again at the same moments. Every prompt that comes in makes the steps of its
neighbours longer, hostile or not (`--max-slowdown`), and that is not what is asked here. Nor are guessed tokens: a step that checks thirty of them is long and brings them all at once, and how many of
those fall into a window is decided by the texts."""
import contextlib
import datetime
import http.client
import json
import multiprocessing
import os
import pathlib
import tempfile
import threading
import time
import unittest

import serving
from serving import FULL, Server, needs_model, percentile

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "Tell me."}]
CLIENTS = 8
WINDOW_S, ROUNDS = 10, 4
MOST = 1.2
THREADS = os.environ.get("SKEIN_TEST_THREADS", "1")  # that compute
SOON_S = 60 if serving.SANITIZED else 10


def nested(depth, inner="{}", left='{"items":', right="}"):
    return left * depth + inner + right * depth


def doubling(depth):
    definitions = {f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i - 1}"}] * 2, "items": False} for i in range(1, depth)}
    return {"$defs": {"d0": {"type": "string"}, **definitions}, "$ref": f"#/$defs/d{depth - 1}"}


def one_of(depth):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"oneOf": [schema] * 3}
    return schema


def raw(text):
    """A body whose schema is text that Python would not write."""
    return '{"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "json_schema": ' + text + "}"


def schema(value, **fields):
    return json.dumps({"messages": USER, "max_tokens": 2, "guided_json": value, **fields})


def field(**fields):
    return json.dumps({"messages": USER, "max_tokens": 2, **fields})


def tools(count, parameters, **fields):
    made = [{"type": "function", "function": {"name": f"f{i}", "parameters": parameters}} for i in range(count)]
    return json.dumps({"messages": USER, "max_tokens": 2, "tools": made, **fields})


# What it is, the body, and the codes that are right: None where the form is taken.
HOSTILE = [
    ("nested oneOf", schema(one_of(6)), {"unsatisfiable_schema"}),
    ("nested oneOf, deeper", schema(one_of(9)), {"unsatisfiable_schema", "schema_too_complex"}),
    ("2,000 nested items", raw(nested(2000)), {"invalid_json", "invalid_schema", "schema_too_complex"}),
    ("50 nested items", raw(nested(50)), {None, "schema_too_complex"}),
    ("a million levels", raw("[" * 1_000_000), {"invalid_json"}),
    ("a million objects", raw('{"a":' * 150_000), {"invalid_json"}),
    ("an enum of 50,000", schema({"enum": [f"word {i}" for i in range(50_000)]}), {None, "schema_too_complex"}),
    ("an enum of 1 MiB", schema({"enum": ["x" * 1000 + str(i) for i in range(1000)]}), {None, "schema_too_complex"}),
    ("one constant of 1 MiB", schema({"const": "x" * (1 << 20)}), {None, "schema_too_complex"}),
    ("200 optional properties", schema({"properties": {f"p{i}": {} for i in range(200)}}), {None}),
    ("10,000 properties", schema({"properties": {f"p{i}": {"type": "string"} for i in range(10_000)}}), {None, "schema_too_complex"}),
    ("10,001 properties", schema({"properties": {f"p{i}": {} for i in range(10_001)}}), {"schema_too_complex"}),
    ("maxItems 100,000", schema({"type": "array", "items": {"type": "integer"}, "maxItems": 100_000}), {None}),
    ("maxLength 1,000,000", schema({"type": "string", "maxLength": 1_000_000}), {None}),
    ("minLength 1,000,001", schema({"type": "string", "minLength": 1_000_001}), {"schema_too_complex"}),
    ("minItems beyond maxItems", schema({"type": "array", "minItems": 3, "maxItems": 2}), {"unsatisfiable_schema"}),
    ("doubling $defs, 25", schema(doubling(25)), {None, "schema_too_complex"}),
    ("doubling $defs, 60", schema(doubling(60)), {None, "schema_too_complex"}),
    ("a schema that is itself", schema({"$ref": "#"}), {"unsatisfiable_schema"}),
    ("a circle of references", schema({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
     {"unsatisfiable_schema"}),
    ("a reference to nowhere", schema({"$ref": "#/$defs/none"}), {"invalid_schema"}),
    ("a reference to the network", schema({"$ref": "http://127.0.0.1:1/x.json"}), {"unsupported_schema", "invalid_schema", None}),
    ("(a*)*b", schema({"type": "string", "pattern": "^(a*)*b$"}), {None}),
    ("((a|aa)+)+c", field(guided_regex="((a|aa)+)+c"), {None}),
    ("a{1,129} of a{1,129}", field(guided_regex="((a{1,129}){1,129}){1,129}"), {None, "schema_too_complex", "invalid_regex"}),
    ("a repeat of a million and one", field(guided_regex="a{1000001}"), {"invalid_regex", "schema_too_complex"}),
    ("a regex of 64 KiB and more", field(guided_regex="a" * 66_000), {"invalid_regex", "schema_too_complex"}),
    ("a regex with a deep nest", field(guided_regex="(" * 5000 + "a" + ")" * 5000), {"invalid_regex", "schema_too_complex"}),
    ("intersections of patterns", schema({"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}$"} for i in range(2, 18)]}),
     {None, "schema_too_complex", "unsatisfiable_schema"}),
    ("a NUL in a pattern", schema({"type": "string", "pattern": "a\x00b"}), {None, "invalid_schema"}),
    ("half a pair", raw('{"pattern": "\\ud800"}'), {"invalid_json", "invalid_schema"}),
    ("a key that comes twice", raw('{"type": "string", "type": "integer"}'), {None, "invalid_json", "invalid_schema"}),
    ("numbers beyond any", raw('{"type": "number", "minimum": 1e400}'), {"invalid_json", "invalid_schema"}),
    ("a bound of 300 digits", raw('{"type": "integer", "minimum": ' + "9" * 300 + "}"), {None, "invalid_json", "invalid_schema",
                                                                                       "schema_too_complex", "unsatisfiable_schema"}),
    ("multiples of a prime", schema({"type": "integer", "multipleOf": 104729}), {None, "schema_too_complex"}),
    ("multiples of four numbers", schema({"type": "number", "allOf": [{"multipleOf": unit} for unit in (9.97, 9.73, 4.5, 3)]}), {None}),
    ("multiples of two primes", schema({"type": "number", "allOf": [{"multipleOf": 99991}, {"multipleOf": 99989}]}), {"schema_too_complex"}),
    ("not of not of not", raw(nested(60, '{"type":"string"}', '{"not":')), {None, "schema_too_complex", "unsatisfiable_schema",
                                                                           "unsupported_schema"}),
    ("300 alternatives of alternatives", schema({"anyOf": [{"anyOf": [{"const": [i, j]} for i in range(20)]} for j in range(300)]}),
     {None, "schema_too_complex"}),
    ("a grammar that grows", field(grammar="\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40)) + '\nr40 ::= "a"\nroot ::= r0'),
     {None, "schema_too_complex", "invalid_grammar"}),
    ("a grammar that says nothing", field(grammar="root ::= root"), {"unsatisfiable_schema", "invalid_grammar"}),
    ("a grammar of left turns", field(grammar='root ::= root "a" | root root | "b"'), {None}),
    ("a grammar of empty rules", field(grammar="root ::= a a a a a a a a\na ::= b*\nb ::= c*\nc ::= \"\"*"), {None, "invalid_grammar",
                                                                                                           "unsatisfiable_schema"}),
    ("a grammar of 1 MiB", field(grammar='root ::= "' + "a" * (1 << 20) + '"'), {None, "schema_too_complex"}),
    ("a Lark grammar without an end", field(guided_grammar='start: "a'), {"invalid_grammar"}),
    ("100,000 choices", field(structured_outputs={"choice": [f"choice {i}" for i in range(100_000)]}), {None, "schema_too_complex",
                                                                                                       "invalid_grammar"}),
    ("129 tools", tools(129, {}), {"schema_too_complex"}),
    ("128 tools of 1 MiB and more", tools(128, {"type": "object", "properties": {f"p{i}": {"enum": list("abcdefgh")} for i in range(200)}}),
     {"schema_too_complex"}),
    ("tools with laughs in them", tools(3, {"$defs": doubling(25)["$defs"], "properties": {"a": {"$ref": doubling(25)["$ref"]}}}), {None, "schema_too_complex"}),
    ("tools that take no object", tools(3, doubling(25)), {"unsatisfiable_schema", "schema_too_complex"}),
]


FRESH = (('"guided_json": {', '"guided_json": {"title": "%s", '), ('"json_schema": {', '"json_schema": {"title": "%s", '),
         ('"grammar": "', '"grammar": "# %s\\n'), ('"choice": [', '"choice": ["%s", '))


def fresh(body, name):
    """The same form in words that nobody has sent yet, so that it is compiled anew; tools stay as they are, for they are in the prompt."""
    for old, new in FRESH:
        body = body.replace(old, new % name, 1)
    return body


def leave_the_machine_alone():
    """A client stands for another machine: its own work, which is more with forms than without, runs where nobody else would.

    With a nice value alone, eight of them keep a thread of the server that gives way, and whoever waits for what it holds, from its core."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def post(connection, body, request_id=""):
    connection.request("POST", CHAT, body, {"Content-Type": "application/json", "X-Request-Id": request_id})
    response = connection.getresponse()
    return response.status, response.read()


def attack(host, port, number, stop, sent):
    """One client that sends them all, again and again, each with its number in front of the request's id."""
    leave_the_machine_alone()
    connection, at, answered = http.client.HTTPConnection(host, port, timeout=serving.PATIENCE_S), number * 5, 0
    while not stop.is_set():
        try:
            name = f"{at % len(HOSTILE)}.{os.getpid()}.{at}"
            answered += post(connection, fresh(HOSTILE[at % len(HOSTILE)][1], name), name)[0] == 200
        except (OSError, http.client.HTTPException):
            connection.close()
        at += 1
    sent.put(answered)


FORMS = {"guided_json", "json_schema", "guided_regex", "grammar", "guided_grammar", "structured_outputs"}


def without_form(body):
    """The same prompt: tools stay in it, and none is called."""
    fields = {name: value for name, value in json.loads(body).items() if name not in FORMS}
    return json.dumps({**fields, "tool_choice": "none"} if "tools" in fields else fields)


def repeat(host, port, requests, stop, sent):
    """One client that sends requests when it is told to, without the forms."""
    leave_the_machine_alone()
    bodies = {index: without_form(HOSTILE[index][1]) for _, index in requests}
    connection, began, answered = http.client.HTTPConnection(host, port, timeout=serving.PATIENCE_S), time.monotonic(), 0
    for send_at, index in requests:
        if stop.wait(max(0, began + send_at - time.monotonic())):
            break
        answered += post(connection, bodies[index])[0] == 200
    sent.put(answered)


class CodesTest(unittest.TestCase):
    def test_each_gets_the_right_code_and_the_server_goes_on(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server("--log-level", "error", models=(serving.tiny_model(folder, context=65536),)) as server:
            slowest = 0, ""
            for what, body, codes in HOSTILE:
                with self.subTest(what):
                    asked = time.monotonic()
                    with contextlib.closing(server.connect()) as connection:
                        status, answer = post(connection, body)
                    took = time.monotonic() - asked
                    slowest = max(slowest, (took, what))
                    code = None if status == 200 else json.loads(answer)["error"]["code"]
                    self.assertIn(status, (200, 400), answer[:300])
                    self.assertTrue(code in codes or ("any 400" in codes and status == 400), (code, answer[:300]))
                    self.assertLess(took, SOON_S)
            self.assertIsNone(server.process.poll())
            self.assertEqual(server.post(CHAT, json.loads(field())).status, 200)
        print(f"\n{len(HOSTILE)} hostile forms, the slowest answered in {1000 * slowest[0]:.0f} ms ({slowest[1]})")


class TurnsTest(unittest.TestCase):
    def test_one_keys_forms_do_not_go_before_everybody_elses(self):
        """Twelve that take a good part of a second each: another key's form waits for those that run, and for one more."""
        with tempfile.TemporaryDirectory() as folder:
            state = pathlib.Path(folder, "state")
            crowd, other = (serving.add_key(state, name) for name in ("crowd", "other"))
            with Server("--log-level", "error", models=(serving.tiny_model(folder),), state_dir=state) as server:
                ended = []

                def ask(key, wanted):
                    answer = server.post(CHAT, json.loads(schema(wanted)), {"Authorization": f"Bearer {key}"})
                    ended.append(key)
                    return answer

                self.assertEqual(ask(other, {"type": "integer"}).status, 200)  # the vocabulary is ready
                ended.clear()
                clients = [threading.Thread(target=ask, args=(crowd, {"type": "number", "multipleOf": (902 + 2 * i) / 100})) for i in range(12)]
                for client in clients:
                    client.start()
                server.settle(lambda: len(ended) >= 1)  # the others wait by now
                self.assertEqual(ask(other, {"type": "boolean"}).status, 200)
                before = ended.index(other)
                for client in clients:
                    client.join()
        self.assertLess(before, 8, ended)


@needs_model
@unittest.skipUnless(FULL, "a figure of a quiet machine: make hostile-forms")
class NeighboursTest(unittest.TestCase):
    def watch(self, server, stop, gaps):
        """The seconds between the tokens of one stream after the other."""
        while not stop.is_set():
            connection, response = server.send("POST", "/v1/completions", {
                "prompt": "Once upon a time", "stream": True, "ignore_eos": True, "max_tokens": 256})
            last = None
            while not stop.is_set() and (line := response.readline()):
                if not line.startswith(b"data: {"):
                    continue
                now = time.monotonic()
                if last is not None:
                    gaps.append((now, now - last))
                last = now
            connection.close()

    def window(self, server, gaps, work, arguments):
        """The gaps of a window beside clients that run `work`, and how many requests they were answered."""
        done, sent = multiprocessing.Event(), multiprocessing.Queue()
        clients = [multiprocessing.Process(target=work, args=(server.connect().host, server.port, argument, done, sent))
                   for argument in arguments]
        for client in clients:
            client.start()
        time.sleep(0.5)
        begin, before = time.monotonic(), len(gaps)
        time.sleep(WINDOW_S)
        server.settle(lambda: len(gaps) >= before + 20)  # on a machine that is busy with others
        end = time.monotonic()
        done.set()
        answered = sum(sent.get() for _ in clients)
        for client in clients:
            client.join()
        return [gap for at, gap in gaps if begin <= at < end], answered

    def arrivals(self, server, began):
        """(seconds after `began`, number of the form) of the attack's requests since then: when each came to the engine.

        Every prompt makes the steps that compute it longer, and two that come together make one step longer still. So what is compared are windows in which the
        same prompts come at the same times. They come when their forms are compiled, and not when they are sent."""
        found = []
        for line in server.messages().splitlines():
            stamp, level, what, *rest = line.split(" ", 3)
            if (level, what) != ("info", "request"):
                continue
            ended = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
            request = json.loads(rest[0])
            came = ended - began - sum(request[part] for part in ("queue_ms", "prefill_ms", "decode_ms")) / 1000
            if request["status"] == 200 and request["request_id"].count(".") == 2 and came > 0:
                found.append((came, int(request["request_id"].split(".")[0])))
        return sorted(found)

    def warm_up(self, server):
        """Every prompt once: else the first to send one pays for it, and who sends it again finds it in the prefix cache."""
        with contextlib.closing(server.connect()) as connection:
            for _, body, codes in HOSTILE:
                if None in codes:
                    post(connection, without_form(body))

    def test_they_go_on(self):
        alone, beside, hostile = [], [], []
        answered = [0, 0]
        with Server("--speculation", "off", models=(serving.MODEL,), threads=THREADS) as server:
            gaps, stop = [], threading.Event()
            watcher = threading.Thread(target=self.watch, args=(server, stop, gaps))
            watcher.start()
            self.warm_up(server)
            for _ in range(ROUNDS):
                alone += self.window(server, gaps, None, ())[0]
                began = time.time()
                window, count = self.window(server, gaps, attack, range(CLIENTS))
                hostile += window
                arrivals = self.arrivals(server, began)
                window, again = self.window(server, gaps, repeat, [arrivals[i::CLIENTS] for i in range(CLIENTS)])
                beside += window
                answered = [answered[0] + count, answered[1] + again]
            stop.set()
            watcher.join()
            put_off = server.gauge("skein:draws_put_off_total")
            self.assertIsNone(server.process.poll())
        print(f"\nbetween tokens, ms, {THREADS} threads, {put_off:.0f} tokens drawn beside the steps:")
        for name, of in (("alone", alone), (f"beside {answered[1]} of the same requests without forms", beside),
                         (f"beside {CLIENTS} clients that send hostile forms, {answered[0]} answered", hostile)):
            print(f"  {name}: p50 {1000 * percentile(of, 0.5):.1f}, p90 {1000 * percentile(of, 0.9):.1f}, "
                  f"p99 {1000 * percentile(of, 0.99):.1f}, most {1000 * max(of):.1f} of {len(of)}")
        ratio = percentile(hostile, 0.99) / percentile(beside, 0.99)
        print(f"hostile forms: neighbours' p99 is {ratio:.2f} times that beside the same requests without forms, "
              f"{percentile(hostile, 0.99) / percentile(alone, 0.99):.2f} times that alone")
        self.assertGreater(len(hostile), 20)
        self.assertGreaterEqual(answered[1], 0.8 * answered[0])
        self.assertLessEqual(ratio, MOST)


if __name__ == "__main__":
    unittest.main()
