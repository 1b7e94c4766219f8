"""Forms over HTTP: every way to ask for one, what is refused, and answers that keep to theirs whatever else is asked.

With SKEIN_TEST_FULL=1 (`make forms`) also 1,000 real schemas of ../shared/vectors, checked by python3-jsonschema."""
import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import unittest

import serving
from serving import Server

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
USER = [{"role": "user", "content": "Tell me."}]
PERSON = {"type": "object", "required": ["name", "age"], "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 130}}}
NOT_ENFORCED = {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer", "minimum": 0, "maximum": 9},
                "contains": {"type": "integer", "minimum": 3}}


def is_person(text):
    value = json.loads(text)
    return (list(value) == ["name", "age"] and 1 <= len(value["name"]) <= 8 and type(value["age"]) is int
            and 0 <= value["age"] <= 130)


def is_small_list(text):
    value = json.loads(text)
    return isinstance(value, list) and 1 <= len(value) <= 2 and all(type(x) is int and 0 <= x <= 9 for x in value)


LARK = 'start: "<" DIGIT+ ">"\nDIGIT: /[0-9]/\n'
GBNF = 'root ::= "<" [0-9]{1,4} ">"'


def is_number_in_brackets(text):
    return re.fullmatch("<[0-9]+>", text)


# Every spelling, with what must hold of the answer.
SPELLINGS = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON, "strict": True}}}, is_person),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}}, is_person),
    ({"response_format": {"type": "json_schema", "schema": PERSON}}, is_person),
    ({"response_format": {"type": "json_object", "schema": PERSON}}, is_person),
    ({"json_schema": PERSON}, is_person),
    ({"json_schema": json.dumps(PERSON)}, is_person),
    ({"structured_outputs": {"json": PERSON}}, is_person),
    ({"structured_outputs": {"json": json.dumps(PERSON)}}, is_person),
    ({"guided_json": PERSON}, is_person),
    ({"structured_outputs": {"json": PERSON, "whitespace_pattern": " ?"}}, is_person),
    ({"structured_outputs": {"json": PERSON, "disable_any_whitespace": True}},
     lambda text: is_person(text) and text.startswith('{"name":"') and '","age":' in text),
    ({"guided_json": PERSON, "guided_whitespace_pattern": ""}, is_person),
    ({"structured_outputs": {"regex": "[a-c]{3,5}z"}}, lambda text: re.fullmatch("[a-c]{3,5}z", text)),
    ({"guided_regex": "[a-c]{3,5}z"}, lambda text: re.fullmatch("[a-c]{3,5}z", text)),
    ({"regex": "[a-c]{3,5}z"}, lambda text: re.fullmatch("[a-c]{3,5}z", text)),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, lambda text: text in ("yes", "no")),
    ({"guided_choice": ["yes", "no"]}, lambda text: text in ("yes", "no")),
    ({"grammar": GBNF}, is_number_in_brackets),
    ({"ebnf": GBNF}, is_number_in_brackets),
    ({"structured_outputs": {"grammar": GBNF}}, is_number_in_brackets),
    ({"structured_outputs": {"grammar": LARK}}, is_number_in_brackets),
    ({"guided_grammar": LARK}, is_number_in_brackets),
    ({"regex": "a{4}", "guided_regex": "a{4}", "structured_outputs": {"regex": "a{4}"}}, lambda text: text == "aaaa"),
]

# (fields, status, code, param)
REFUSED = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {
        "type": "object", "properties": {"a": NOT_ENFORCED}}}}}, 400, "unsupported_schema",
     "response_format.json_schema.schema/properties/a/contains"),
    ({"guided_json": {"type": "strin"}}, 400, "invalid_schema", "guided_json/type"),
    ({"json_schema": "{\"type\":"}, 400, "invalid_schema", "json_schema"),
    ({"structured_outputs": {"json": {"type": "array", "minItems": 3, "maxItems": 2}}}, 400, "unsatisfiable_schema", None),
    ({"json_schema": False}, 400, "unsatisfiable_schema", "json_schema"),
    ({"regex": "(a"}, 400, "invalid_regex", "regex"),
    ({"guided_regex": "(a)\\1"}, 400, "invalid_regex", "guided_regex"),
    ({"grammar": "root = x"}, 400, "invalid_grammar", "grammar"),
    ({"ebnf": "root ::= missing"}, 400, "invalid_grammar", "ebnf"),
    ({"guided_json": {"type": "string", "minLength": 1000001}}, 400, "schema_too_complex", None),
    ({"regex": "a", "guided_regex": "b"}, 400, None, "regex"),
    ({"response_format": {"type": "json_object"}, "structured_outputs": {"json": PERSON}}, 400, None, "structured_outputs.json"),
    ({"structured_outputs": {"json": PERSON, "regex": "a"}}, 400, None, "structured_outputs.regex"),
    ({"structured_outputs": {"choice": []}}, 400, None, "structured_outputs.choice"),
    ({"structured_outputs": {"choice": ["a", 1]}}, 400, None, "structured_outputs.choice[1]"),
    ({"structured_outputs": []}, 400, None, "structured_outputs"),
    ({"guided_json": 5}, 400, None, "guided_json"),
    ({"grammar": 5}, 400, None, "grammar"),
    ({"response_format": {"type": "json_schema"}}, 400, None, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, 400, None, "response_format.json_schema.schema"),
    ({"response_format": {"type": "structural_tag"}}, 501, "not_supported", "response_format.type"),
    ({"structured_outputs": {"structural_tag": "{}"}}, 501, "not_supported", "structured_outputs.structural_tag"),
    ({"structural_tag": "{}"}, 501, "not_supported", "structural_tag"),
    ({"structured_outputs": {"json": PERSON, "whitespace_pattern": "x"}}, 400, "invalid_regex", "structured_outputs.whitespace_pattern"),
    ({"guided_json": PERSON, "guided_whitespace_pattern": "("}, 400, "invalid_regex", "guided_whitespace_pattern"),
    ({"guided_json": PERSON, "guided_decoding_backend": "lm-format-enforcer"}, 501, "not_supported", "guided_decoding_backend"),
    ({"guided_json": {"type": "object", "properties": {"a": {"type": 7}}}}, 400, "invalid_schema", "guided_json/properties/a/type"),
    ({"grammar": GBNF, "grammar_lazy": True}, 501, "not_supported", "grammar_lazy"),
]


def text_of(answer):
    body = answer.json()
    if "content" in body:
        return "".join(block["text"] for block in body["content"])
    choice = body["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


class FormServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        folder = cls.stack.enter_context(tempfile.TemporaryDirectory())
        cls.server = cls.stack.enter_context(Server("--log-level", "error", models=(serving.tiny_model(folder),)))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def chat(self, **fields):
        return self.server.post(CHAT, {"messages": USER, "max_tokens": 300, "temperature": 1.2, "seed": 7, **fields})

    def ends_well(self, answer):
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json()["choices"][0]["finish_reason"], "stop", answer.body)
        return text_of(answer)


class AskingTest(FormServer):
    def test_every_spelling_binds_the_answer(self):
        for fields, holds in SPELLINGS:
            for temperature in (0, 1.2):
                with self.subTest(fields=fields, temperature=temperature):
                    text = self.ends_well(self.chat(**fields, temperature=temperature))
                    self.assertTrue(holds(text), text)

    def test_completions_take_them_too(self):
        answer = self.server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 200, "guided_json": PERSON, "echo": False})
        self.assertTrue(is_person(self.ends_well(answer)))

    def test_any_json_object(self):
        answer = self.chat(response_format={"type": "json_object"}, max_tokens=900, temperature=0.3)
        text = text_of(answer)
        self.assertEqual(text[0], "{")
        if answer.json()["choices"][0]["finish_reason"] == "stop":
            self.assertIsInstance(json.loads(text), dict)

    def test_anthropics_output_config_is_strict(self):
        def ask(schema, name="output_config"):
            form = {"type": "json_schema", "schema": schema}
            return self.server.post(MESSAGES, {"messages": USER, "max_tokens": 200,
                                               name: {"format": form} if name == "output_config" else form})
        for name in ("output_config", "output_format"):
            answer = ask(PERSON, name)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(answer.json()["stop_reason"], "end_turn")
            self.assertTrue(is_person(text_of(answer)))
        refused = ask(NOT_ENFORCED)
        self.assertEqual(refused.status, 400)
        self.assertIn("contains", refused.json()["error"]["message"])

    def test_objects_are_closed_unless_they_are_opened(self):
        schema = {"type": "object", "properties": {"a": {"const": 1}}}
        for fields in ({}, {"disable_additional_properties": True}):
            for seed in range(10):
                answer = self.chat(structured_outputs={"json": schema, **fields}, seed=seed)
                self.assertLessEqual(set(json.loads(self.ends_well(answer))), {"a"})
        others = 0
        for seed in range(20):
            answer = self.chat(structured_outputs={"json": schema, "disable_additional_properties": False}, seed=seed,
                               max_tokens=30)
            others += re.match(r'\s*{\s*"(?!a")', text_of(answer)) is not None
        self.assertGreater(others, 0)

    def test_what_is_wrong_is_named(self):
        for fields, status, code, param in REFUSED:
            for stream in (False, True):
                with self.subTest(fields=fields, stream=stream):
                    answer = self.chat(**fields, stream=stream)
                    self.assertEqual(answer.status, status, answer.body)
                    error = answer.json()["error"]
                    self.assertEqual(error["code"], code)
                    if param:
                        self.assertEqual(error["param"], param)
                    self.assertTrue(error["message"])

    def test_what_is_not_enforced_is_named_in_a_header(self):
        for stream in (False, True):
            answer = self.chat(guided_json=NOT_ENFORCED, stream=stream)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(answer.headers.get("x-skein-relaxed"), "/contains")
            self.assertNotIn("x-skein-relaxed", self.chat(guided_json=PERSON, stream=stream).headers)
        self.assertTrue(is_small_list(self.ends_well(self.chat(guided_json=NOT_ENFORCED))))
        # A name cannot break the header.
        odd = self.chat(guided_json={"type": "object", "properties": {"a\r\nb: é,%": NOT_ENFORCED}})
        self.assertEqual(odd.headers.get("x-skein-relaxed"), "/properties/a%0D%0Ab:%20%C3%A9%2C%25/contains")

    def test_the_model_is_told_where_that_is_wanted(self):
        tokens = [self.chat(guided_json=PERSON, describe_form=told).json()["usage"]["prompt_tokens"] for told in (False, True)]
        self.assertGreater(tokens[1], tokens[0] + len(json.dumps(PERSON, separators=(",", ":"))))

    def test_text_is_still_served(self):
        for fields in ({"response_format": {"type": "text"}}, {"grammar": ""}, {"guided_json": None}):
            self.assertEqual(self.chat(**fields, max_tokens=3).status, 200)


class AnsweringTest(FormServer):
    """What else a request asks for changes nothing of the promise (G13)."""

    def test_cut_at_every_position(self):
        whole = self.chat(guided_json=PERSON, return_token_ids=True)
        text = self.ends_well(whole)
        tokens = whole.json()["usage"]["completion_tokens"]
        for cut in range(1, tokens + 1):
            answer = self.chat(guided_json=PERSON, max_tokens=cut)
            self.assertEqual(answer.json()["choices"][0]["finish_reason"], "stop" if cut == tokens else "length")
            self.assertTrue(text.startswith(text_of(answer)))

    def test_joined_stream_is_the_plain_answer(self):
        for seed in range(5):
            plain = text_of(self.chat(guided_json=PERSON, seed=seed))
            streamed = self.chat(guided_json=PERSON, seed=seed, stream=True).body.decode()
            chunks = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
            self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks), plain)
            self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "stop")

    def test_stop_texts_are_looked_for_in_the_document(self):
        text = self.ends_well(self.chat(guided_json=PERSON))
        answer = self.chat(guided_json=PERSON, stop='"age"')
        self.assertEqual(text_of(answer), text[:text.index('"age"')])
        self.assertEqual(answer.json()["choices"][0]["finish_reason"], "stop")

    def test_min_tokens_and_ignore_eos_yield(self):
        for fields in ({"min_tokens": 250}, {"ignore_eos": True}):
            self.assertTrue(is_person(self.ends_well(self.chat(guided_json=PERSON, **fields))))
            longer = self.chat(regex="[ab]{2,400}", max_tokens=250, **fields)
            self.assertEqual(longer.json()["usage"]["completion_tokens"], 250)

    def test_a_bias_against_the_only_token_is_not_enough(self):
        token = self.server.post("/tokenize", {"content": "{"}).json()["tokens"][0]
        space = self.server.post("/tokenize", {"content": " "}).json()["tokens"][0]
        self.assertTrue(is_person(self.ends_well(self.chat(guided_json=PERSON, logit_bias={str(token): -100, str(space): 100}))))

    def test_choices_and_logprobs(self):
        answer = self.chat(guided_json=PERSON, n=4, logprobs=True, top_logprobs=2)
        self.assertEqual(answer.status, 200, answer.body)
        texts = {c["message"]["content"] for c in answer.json()["choices"]}
        self.assertEqual(len(texts), 4)
        for choice in answer.json()["choices"]:
            self.assertTrue(is_person(choice["message"]["content"]))
            joined = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
            self.assertEqual(joined.decode(), choice["message"]["content"])

    def test_the_same_among_others(self):
        def ask(i):
            return text_of(self.chat(**SPELLINGS[i % len(SPELLINGS)][0], seed=i))
        count = 3 * len(SPELLINGS)
        alone = [ask(i) for i in range(count)]
        self.assertEqual(serving.in_parallel(count, ask), alone)

    def test_lines_of_a_batch_have_forms(self):
        bodies = [{"guided_json": PERSON}, {"regex": "(a"}, {"structured_outputs": {"choice": ["yes", "no"]}}]
        rows = serving.run_batch(self.server, CHAT, [{"messages": USER, "max_tokens": 200, **body} for body in bodies])
        content = lambda i: rows[i]["response"]["body"]["choices"][0]["message"]["content"]  # noqa: E731
        self.assertTrue(is_person(content("0")))
        self.assertIn(content("2"), ("yes", "no"))
        self.assertIn("invalid_regex", json.dumps(rows["1"]))

    def test_metrics_and_explain(self):
        before = self.server.metrics()
        self.chat(guided_regex="[x-z]{5}")
        self.chat(guided_regex="[x-z]{5}")
        self.chat(guided_regex="[x-z")
        after = self.server.metrics()

        def grown(name, labels=""):
            pick = lambda page: sum(v for k, v in page.items() if k.split("{")[0] == name and labels in k)  # noqa: E731
            return pick(after) - pick(before)
        self.assertEqual(grown("skein:grammar_cache_hits_total"), 1)
        self.assertEqual(grown("skein:grammar_cache_misses_total"), 2)
        self.assertEqual(grown("skein:grammar_compile_seconds_count"), 2)
        self.assertEqual(grown("skein:schema_refused_total", 'code="invalid_regex"'), 1)
        self.assertGreater(grown("skein:mask_seconds_count"), 0)
        connection, response = self.server.send("POST", CHAT, {
            "messages": USER, "max_tokens": 900, "stream": True, "ignore_eos": True,
            "structured_outputs": {"json": {**NOT_ENFORCED, "maxItems": 5000, "minItems": 4000}}})
        first = response.readline()
        live = self.server.get("/v1/requests/" + json.loads(first[6:])["id"])
        self.assertEqual(live.json()["form"], {"relaxed": ["/contains"]})
        self.assertEqual(live.json()["form_use"], live.json()["choices"][0]["form_use"])
        self.assertEqual(set(live.json()["form_use"]), {"zone", "masks", "slowest_mask_ms"})
        self.assertEqual(live.json()["form_use"]["zone"], "bound")
        self.assertGreater(live.json()["form_use"]["masks"], 0)
        plain, first = self.server.send("POST", CHAT, {"messages": USER, "max_tokens": 900, "stream": True, "ignore_eos": True})
        self.assertNotIn("form_use", self.server.get("/v1/requests/" + json.loads(first.readline()[6:])["id"]).json())
        plain.close()
        connection.close()


# Small schemas whose answers end: with what must hold of a value.
SMALL = [
    ({"type": "boolean"}, lambda v: type(v) is bool),
    ({"enum": [1, "two", None, [3]]}, lambda v: v in (1, "two", None, [3])),
    ({"const": {"a": [1, {"b": None}]}}, lambda v: v == {"a": [1, {"b": None}]}),
    ({"type": "integer", "minimum": -50, "maximum": 17}, lambda v: type(v) is int and -50 <= v <= 17),
    ({"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 100}, lambda v: v % 7 == 0 and 1 <= v <= 100),
    ({"type": "string", "pattern": "^[A-F]{2}-[0-9]{3}$"}, lambda v: re.fullmatch("[A-F]{2}-[0-9]{3}", v)),
    ({"type": "string", "format": "date"}, lambda v: re.fullmatch(r"\d{4}-\d\d-\d\d", v)),
    ({"type": "string", "format": "uuid"}, lambda v: re.fullmatch("[0-9a-fA-F-]{36}", v)),
    ({"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "maxItems": 3, "minItems": 1},
     lambda v: 1 <= len(v) <= 3 and len(set(v)) == len(v) and set(v) <= {1, 2, 3}),
    ({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": False, "minItems": 2},
     lambda v: len(v) == 2 and v[0] is None and type(v[1]) is bool),
    ({"anyOf": [{"const": "x"}, {"type": "integer", "minimum": 5, "maximum": 6}]}, lambda v: v in ("x", 5, 6)),
    ({"type": "object", "properties": {"k": {"$ref": "#/$defs/d"}}, "required": ["k"], "$defs": {"d": {"enum": ["p", "q"]}}},
     lambda v: v in ({"k": "p"}, {"k": "q"})),
]


@serving.needs_model
class DefaultModelTest(unittest.TestCase):
    """Its vocabulary lacks control characters, which no form needs."""

    def test_a_schema_binds_its_answer(self):
        schema = {"type": "object", "properties": {"color": {"enum": ["red", "green"]}, "why": {"type": "string", "maxLength": 40}},
                  "required": ["color", "why"]}
        with Server("--log-level", "error", models=(serving.MODEL,)) as server:
            answer = server.post(CHAT, {"messages": USER, "max_tokens": 120, "temperature": 0, "response_format": {
                "type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": {**schema, "additionalProperties": False}}}})
        self.assertEqual(answer.status, 200, answer.body)
        value = json.loads(text_of(answer))
        self.assertEqual(list(value), ["color", "why"])
        self.assertIn(value["color"], ("red", "green"))
        self.assertLessEqual(len(value["why"]), 40)


class ValidTest(FormServer):
    """G2: whatever ends with `stop` is valid, at any temperature."""

    def test_small_schemas(self):
        ended = 0
        for schema, holds in SMALL:
            for seed in range(8):
                answer = self.chat(guided_json=schema, seed=seed, max_tokens=200)
                self.assertEqual(answer.status, 200, answer.body)
                if answer.json()["choices"][0]["finish_reason"] != "stop":
                    continue
                ended += 1
                value = json.loads(text_of(answer))
                self.assertTrue(holds(value), (schema, value))
        self.assertGreater(ended, 8 * len(SMALL) * 0.9)

    @unittest.skipUnless(serving.FULL, "`make forms` runs it")
    def test_a_thousand_real_schemas(self):
        import jsonschema
        beside = pathlib.Path(__file__).resolve().parents[3] / "shared/vectors"
        vectors = pathlib.Path(os.environ.get("SKEIN_TEST_VECTORS", beside)) / "maskbench-even.tar.xz"
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["tar", "-xf", vectors, "-C", folder], check=True)
            files = sorted(pathlib.Path(folder).rglob("*.json"))
            random.Random(17).shuffle(files)
            counts = {"ended": 0, "cut": 0, "refused": 0, "wrong": 0}
            for file in files:
                if sum(counts.values()) >= int(os.environ.get("SKEIN_TEST_SCHEMAS", "1000")):
                    break
                text = json.loads(file.read_text())
                schema = text["schema"] if isinstance(text, dict) and "schema" in text else text
                answer = self.chat(max_tokens=400, response_format={
                    "type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
                if answer.status == 400:
                    counts["refused"] += 1
                    continue
                self.assertEqual(answer.status, 200, answer.body)
                if answer.json()["choices"][0]["finish_reason"] != "stop":
                    counts["cut"] += 1
                    continue
                counts["ended"] += 1
                kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
                try:
                    kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text_of(answer)))
                except jsonschema.ValidationError as error:
                    counts["wrong"] += 1
                    print(f"{file.name}: {error.message}")
        print(f"forms: {counts}")
        self.assertEqual(counts["wrong"], 0)


if __name__ == "__main__":
    unittest.main()
