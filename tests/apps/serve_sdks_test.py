"""Tools, thoughts and forms through the clients that people have, unchanged: openai's responses, anthropic's messages,
LangChain and LiteLLM, on a tiny model whose template opens a thought. Every frame also is what the clients' own types say."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

VENV = pathlib.Path(__file__).resolve().parents[2] / "build/venv"
if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
    # The packages come uncompiled, for most of what is in them is never imported.
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), "-X", f"pycache_prefix={VENV}/pycache", *sys.argv])

import agents
import serving

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks the network for one otherwise
try:
    import anthropic
    import langchain_openai
    import litellm

    litellm.suppress_debug_info = True
    import openai
    import pydantic
    from openai.types import responses
    MISSING = None

    class Trip(pydantic.BaseModel):
        model_config = {"extra": "forbid"}
        city: str = pydantic.Field(max_length=6)
        days: int = pydantic.Field(ge=1, le=9)
except ImportError as error:
    MISSING = f"{error.name} is not there; `tools/python_env.sh` installs it"

NAME = "tiny"
QUESTION = [{"role": "user", "content": "How is the weather?"}]
SCHEMA = {"type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
    "city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}
FUNCTION = {"type": "function", "name": "get_weather", "description": "Of a city", "parameters": SCHEMA, "strict": True}
CUSTOM = {"type": "custom", "name": "shout", "format": {"type": "grammar", "syntax": "regex", "definition": "[A-Z]{1,4}!"}}
TOOL = {"name": "get_weather", "description": "Of a city", "input_schema": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Of a city", "parameters": SCHEMA}}
GREEDY = {"temperature": 0, "seed": 3}
STATE = None


def setUpModule():
    global STATE
    if MISSING:
        raise (AssertionError if serving.REQUIRE_ALL else unittest.SkipTest)(MISSING)
    STATE = tempfile.TemporaryDirectory()
    model = serving.tiny_model(STATE.name, context=32768)
    (model / "chat_template.jinja").write_text(serving.thinking_template())
    STATE.server = serving.Server("--memory", "1GiB", "--log-level", "error", models=(model,))
    STATE.url = f"http://127.0.0.1:{STATE.server.port}"


def tearDownModule():
    if STATE:
        STATE.server.close()
        STATE.cleanup()


def check_weather(test, arguments):
    test.assertEqual(set(arguments), {"city", "days"})
    test.assertIn(arguments["city"], ("Paris", "Rome"))
    test.assertIn(arguments["days"], range(1, 10))


class OpenAiResponsesTest(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"{STATE.url}/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def create(self, **fields):
        extra = {"seed": 3, "thinking_token_budget": 12}
        return self.client.responses.create(**{"model": NAME, "input": "Hi", "temperature": 0, "extra_body": extra, **fields})

    def test_text_and_thought(self):
        answer = self.create(max_output_tokens=40, instructions="Be short.", metadata={"who": "me"})
        self.assertEqual([item.type for item in answer.output], ["reasoning", "message"])
        self.assertEqual((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        self.assertTrue(answer.output_text)
        self.assertEqual(answer.metadata, {"who": "me"})
        self.assertGreater(answer.usage.output_tokens_details.reasoning_tokens, 0)
        text = ""
        for event in self.create(max_output_tokens=40, instructions="Be short.", stream=True):
            text += event.delta if event.type == "response.output_text.delta" else ""
        self.assertEqual(text, answer.output_text)
        self.assertEqual(event.type, "response.incomplete")
        self.assertEqual(event.response.output_text, text)
        counted = self.client.responses.input_tokens.count(model=NAME, input="Hi", instructions="Be short.")
        self.assertEqual(counted.input_tokens, answer.usage.input_tokens)

    def test_calls_and_their_results(self):
        asked = {"tools": [FUNCTION, CUSTOM], "tool_choice": "required", "input": QUESTION}
        answer = self.create(**asked)
        self.assertEqual(answer.status, "completed")
        calls = [item for item in answer.output if item.type != "reasoning"]
        for call in calls:
            if call.type == "function_call":
                check_weather(self, json.loads(call.arguments))
            else:
                self.assertRegex(call.input, "^[A-Z]{1,4}!$")
        results = [{"type": f"{call.type}_output", "call_id": call.call_id, "output": "fine"} for call in calls]
        history = [*QUESTION, *(item.to_dict() for item in answer.output), *results]
        self.assertGreater(self.create(tools=[FUNCTION, CUSTOM], input=history, max_output_tokens=20).usage.input_tokens,
                           answer.usage.input_tokens)
        with self.client.responses.stream(model=NAME, temperature=0, extra_body={"seed": 3, "thinking_token_budget": 12},
                                          **asked) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_response()
        self.assertIn("response.output_item.done", kinds)
        told = lambda item: item.to_dict() | {"id": None}
        self.assertEqual([told(item) | {"parsed_arguments": None} for item in final.output],
                         [told(item) | {"parsed_arguments": None} for item in answer.output])

    def test_a_custom_call(self):
        choice = {"type": "custom", "name": "shout"}
        events = list(self.create(tools=[FUNCTION, CUSTOM], tool_choice=choice, reasoning={"effort": "none"}, stream=True))
        deltas = "".join(e.delta for e in events if e.type == "response.custom_tool_call_input.delta")
        done = [e.input for e in events if e.type == "response.custom_tool_call_input.done"]
        self.assertEqual(done, [deltas])
        self.assertRegex(deltas, "^[A-Z]{1,4}!$")

    def test_parsed_forms(self):
        answer = self.client.responses.parse(model=NAME, input="Hi", text_format=Trip, temperature=0,
                                             extra_body={"thinking_token_budget": 12})
        self.assertIsInstance(answer.output_parsed, Trip)

    def test_every_frame_is_of_its_type(self):
        known = {kind.model_fields["type"].annotation.__args__[0]: kind
                 for kind in responses.ResponseStreamEvent.__args__[0].__args__}
        body = agents.codex(thinking_token_budget=12, tool_choice="required", seed=3, max_output_tokens=400)
        frames = serving.frames(STATE.server.post("/v1/responses", body).body.decode())
        for frame in frames:
            known[frame["type"]].model_validate(frame)
        self.assertIn(frames[-1]["type"], ("response.completed", "response.incomplete"))
        plain = STATE.server.post("/v1/responses", {**body, "stream": False}).json()
        responses.Response.model_validate(plain)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.create(previous_response_id=5)
        self.assertEqual(raised.exception.param, "previous_response_id")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.create(tools=[FUNCTION], tool_choice={"type": "function", "name": "none"})
        self.assertEqual(raised.exception.code, "tool_not_found")


class OpenAiChatTest(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"{STATE.url}/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def test_parsed_forms_and_calls(self):
        asked = {"model": NAME, "messages": QUESTION, "temperature": 0, "extra_body": {"thinking_token_budget": 12, "seed": 3}}
        answer = self.client.chat.completions.parse(response_format=Trip, **asked).choices[0]
        self.assertIsInstance(answer.message.parsed, Trip)
        self.assertTrue(answer.message.reasoning_content)
        tool = openai.pydantic_function_tool(Trip)
        tool["function"]["strict"] = True
        asked |= {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
        plain = self.client.chat.completions.parse(**asked).choices[0]
        self.assertEqual(plain.finish_reason, "tool_calls")
        self.assertIsInstance(plain.message.tool_calls[0].function.parsed_arguments, Trip)
        with self.client.chat.completions.stream(**asked) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion().choices[0]
        self.assertIn("tool_calls.function.arguments.done", kinds)
        self.assertEqual(final.message.tool_calls[0].function.parsed_arguments,
                         plain.message.tool_calls[0].function.parsed_arguments)
        history = [*QUESTION, plain.message.to_dict(), {"role": "tool", "content": "fine",
                                                        "tool_call_id": plain.message.tool_calls[0].id}]
        again = self.client.chat.completions.create(**{**asked, "messages": history, "tool_choice": "none", "max_tokens": 20})
        self.assertEqual(again.choices[0].finish_reason, "length")


class AnthropicToolsTest(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=STATE.url, api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def test_thoughts_and_calls(self):
        asked = {"model": NAME, "max_tokens": 200, "messages": QUESTION, "tools": [TOOL],
                 "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
                 "thinking": {"type": "enabled", "budget_tokens": 12}, "output_config": {"effort": "low"}, "extra_body": GREEDY}
        answer = self.client.messages.create(**asked)
        self.assertEqual((answer.stop_reason, answer.content[0].type), ("tool_use", "thinking"))
        calls = answer.content[1:]
        self.assertTrue(calls)
        for call in calls:
            self.assertEqual((call.type, call.name), ("tool_use", "get_weather"))
            check_weather(self, call.input)
        with self.client.messages.stream(**asked) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        self.assertTrue({"thinking", "signature", "input_json"} <= set(kinds), kinds)
        self.assertEqual([block.to_dict() for block in final.content], [block.to_dict() for block in answer.content])
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "fine"}]} for call in calls]
        history = [*QUESTION, {"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
        again = self.client.messages.create(**{**asked, "messages": history, "max_tokens": 20, "tool_choice": {"type": "auto"}})
        self.assertEqual(again.stop_reason, "max_tokens")
        counted = self.client.messages.count_tokens(model=NAME, messages=history, tools=[TOOL])
        self.assertEqual(counted.input_tokens, again.usage.input_tokens + again.usage.cache_read_input_tokens)

    def test_forms(self):
        answer = self.client.messages.create(model=NAME, max_tokens=200, messages=QUESTION, thinking={"type": "disabled"},
                                             output_config={"format": {"type": "json_schema", "schema": SCHEMA}}, extra_body=GREEDY)
        check_weather(self, json.loads(answer.content[0].text))

    def test_every_frame_is_of_its_type(self):
        event = pydantic.TypeAdapter(anthropic.types.RawMessageStreamEvent)
        body = agents.claude_code(tools=6, tool_choice={"type": "any"}, max_tokens=2000, seed=3)
        for frame in serving.frames(STATE.server.post("/v1/messages", body).body.decode()):
            event.validate_python(frame)
        plain = STATE.server.post("/v1/messages", {**body, "stream": False}).json()
        anthropic.types.Message.model_validate(plain)


class LangChainToolsTest(unittest.TestCase):
    def chat(self, **options):
        return langchain_openai.ChatOpenAI(base_url=f"{STATE.url}/v1", api_key="none", model=NAME, temperature=0,
                                           extra_body={"thinking_token_budget": 12, "seed": 3}, **options)

    def check_calls(self, chat):
        bound = chat.bind_tools([CHAT_TOOL], tool_choice="any")
        plain = bound.invoke("Hi")
        self.assertTrue(plain.tool_calls)
        for call in plain.tool_calls:
            check_weather(self, call["args"])
        whole = None
        for piece in bound.stream("Hi"):
            whole = piece if whole is None else whole + piece
        args = lambda message: [(call["name"], call["args"]) for call in message.tool_calls]
        self.assertEqual(args(whole), args(plain))

    def test_chat(self):
        self.check_calls(self.chat())
        self.assertIsInstance(self.chat().with_structured_output(Trip).invoke("Hi"), Trip)

    def test_responses(self):
        self.check_calls(self.chat(use_responses_api=True))


class LiteLlmTest(unittest.TestCase):
    def test_calls_in_both_dialects(self):
        for model, base in (("openai/tiny", f"{STATE.url}/v1"), ("anthropic/tiny", STATE.url)):
            asked = {"model": model, "api_base": base, "api_key": "none", "messages": QUESTION, "max_tokens": 300,
                     "tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0,
                     "extra_body": {"thinking_token_budget": 12, "seed": 3}}
            if model.startswith("anthropic"):
                asked |= {"thinking": {"type": "disabled"}, "allowed_openai_params": ["thinking"]}
                asked.pop("extra_body")
            plain = litellm.completion(**asked).choices[0]
            self.assertEqual(plain.finish_reason, "tool_calls")
            for call in plain.message.tool_calls:
                check_weather(self, json.loads(call.function.arguments))
            joined = litellm.stream_chunk_builder(list(litellm.completion(stream=True, **asked))).choices[0]
            told = lambda choice: [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]
            self.assertEqual(told(joined), told(plain))

    def test_responses(self):
        answer = litellm.responses(model="openai/tiny", api_base=f"{STATE.url}/v1", api_key="none", input="Hi", tools=[FUNCTION],
                                   tool_choice="required", reasoning={"effort": "none"}, max_output_tokens=300)
        self.assertEqual({item.type for item in answer.output}, {"function_call"})


if __name__ == "__main__":
    unittest.main()
