"""What is wrong with tools, and what is too much of them."""
import time
import unittest

from serve_tools_test import PING, USER, WEATHER, ToolServer

# (fields, status, code, param)
F = "tools[0].function"
REFUSED = [
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, 400, "invalid_tool", f"{F}.name"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, 400, "invalid_tool", f"{F}.name"),
    ({"tools": [{"type": "function", "function": {"name": "x" * 129}}]}, 400, "invalid_tool", f"{F}.name"),
    ({"tools": [PING, PING]}, 400, "invalid_tool", "tools[1].function.name"),
    ({"tools": [{"type": "function", "function": {}}]}, 400, None, f"{F}.name"),
    ({"tools": [{"type": "function"}]}, 400, None, f"{F}"),
    ({"tools": [{"type": "web_search"}]}, 400, None, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, 400, None, f"{F}.parameters"),
    ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]}, 400, "schema_too_complex", "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "description": "x" * (1 << 20)}}]}, 400, "schema_too_complex", "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "strin"}}}]}, 400, "invalid_schema", "tools/0/type"),
    ({"tools": [PING, {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"type": "array", "contains": {"const": 1}}}}}}]}, 400, "unsupported_schema",
     "tools/1/properties/a/contains"),
    ({"tools": [PING, {"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]}, 400, "unsatisfiable_schema", "tools/1"),
    ({"tools": [PING, {"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": {
        "syntax": "regex", "definition": "a)|(?:b"}}}}]}, 400, "invalid_regex", "tools[1].custom.format.grammar.definition"),
    ({"tools": None, "guided_json": {"enum": []}}, 400, "unsatisfiable_schema", "guided_json"),
    ({"tool_choice": {"type": "function", "function": {"name": "nothing"}}}, 400, "tool_not_found", "tool_choice"),
    ({"tool_choice": "required", "tools": None}, 400, None, "tool_choice"),
    ({"tool_choice": "maybe"}, 400, None, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, 400, None, "tool_choice.function"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}, 400, None, "tool_choice.allowed_tools.tools"),
    ({"tools": None, "functions": [PING["function"]], "function_call": {"name": "no"}}, 400, "tool_not_found", "function_call"),
    ({"reasoning_format": "xml"}, 400, None, "reasoning_format"),
    ({"thinking_token_budget": -1}, 400, None, "thinking_token_budget"),
]


class RefusingTest(ToolServer):
    def test_what_is_wrong_is_named(self):
        for fields, status, code, param in REFUSED:
            for stream in (False, True):
                with self.subTest(fields=str(fields)[:200], stream=stream):
                    answer = self.chat(**fields, stream=stream)
                    self.assertEqual(answer.status, status, answer.body[:300])
                    error = answer.json()["error"]
                    self.assertEqual((error["code"], error["param"]), (code, param))

    def test_what_is_not_enforced_is_named_in_a_header(self):
        loose = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "array", "contains": {"const": 1}}}}}}
        answer = self.chat(tools=[PING, loose], max_tokens=1)
        self.assertEqual(answer.headers.get("x-skein-relaxed"), "/tools/1/properties/a/contains")
        anything = {"type": "function", "function": {**loose["function"], "strict": False}}
        self.assertNotIn("x-skein-relaxed", self.chat(tools=[anything], max_tokens=1).headers)

    def test_hostile_tools_are_refused_soon(self):
        laughs = {f"d{i}": {"oneOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}}]}
                  for i in range(25)} | {"d25": {"type": "string", "pattern": "^(a|b)*c(a|b){9}$"}}
        hostile = [{"type": "function", "function": {"name": f"f{i}", "parameters": {
            "type": "object", "properties": {f"p{k}": {"$ref": "#/$defs/d0"} for k in range(20)}, "$defs": laughs}}} for i in range(100)]
        for model in ("hermes", "parameters", "told_python"):
            started = time.monotonic()
            answer = self.chat(model=model, tools=hostile, max_tokens=1)
            self.assertIn(answer.status, (200, 400), answer.body[:300])
            self.assertLess(time.monotonic() - started, 20)
            self.assertEqual(self.chat(model=model, max_tokens=1).status, 200)

    def test_tools_up_to_the_limits(self):
        many = [{"type": "function", "function": {"name": f"f{i}", "parameters": WEATHER["function"]["parameters"]}} for i in range(128)]
        answer = self.chat(model="no_tools", tools=many, tool_choice={"type": "function", "function": {"name": "f127"}},
                           messages=USER, max_tokens=10)
        self.assertEqual(answer.json()["error"]["code"], "context_length_exceeded", answer.body[:300])


if __name__ == "__main__":
    unittest.main()
