"""What Claude Code and Codex send is answered with the frames that they read: thoughts, texts and calls, streamed and
whole, on a tiny model of 64k context."""
import json
import tempfile
import unittest

import agents
import serving

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
FIXED = {"seed": 5, "temperature": 1}


def input_of(text):
    """None for a call that was cut."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def joined_message(events):
    """The message that a stream of Anthropic's adds up to."""
    message, pieces = events[0]["message"], {}
    assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop"
    for event in events[1:-1]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(message["content"]), "indices rise"
            message["content"].append(event["content_block"])
            pieces[event["index"]] = ""
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(message["content"]) - 1, "one block after the other"
            block, delta = message["content"][-1], event["delta"]
            kind = delta["type"].removesuffix("_delta")
            if kind == "input_json":
                pieces[event["index"]] += delta["partial_json"]
            else:
                block[kind] += delta[kind]
        elif event["type"] == "content_block_stop":
            if pieces[event["index"]]:
                message["content"][-1]["input"] = input_of(pieces[event["index"]])
        elif event["type"] == "message_delta":
            message.update(event["delta"])
            message["usage"].update(event["usage"])
    return message


def joined_items(events):
    """The items that a stream of Responses adds up to, by their deltas."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    items, texts = [], []
    for event in events[2:-1]:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(texts)
            texts.append("")
        elif kind.endswith(".delta"):
            assert event["output_index"] == len(texts) - 1
            texts[-1] += event["delta"]
        elif kind == "response.output_item.done":
            item = event["item"]
            whole = item.get("arguments", item.get("input")) if "call_id" in item else item["content"][0]["text"]
            assert whole == texts[-1], (whole, texts[-1])
            items.append(item)
    return items


class AgentTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = serving.tiny_model(cls.folder.name, context=65536)
        (model / "chat_template.jinja").write_text(serving.thinking_template())
        cls.server = serving.Server("--memory", "1GiB", "--log-level", "error", models=(model,))

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.folder.cleanup()

    def ask(self, path, body):
        """The events of a stream, and the plain answer to the same."""
        streamed = self.server.post(path, {**body, "stream": True, **FIXED})
        self.assertEqual(streamed.status, 200, streamed.body[:500])
        plain = self.server.post(path, {**body, "stream": False, **FIXED})
        self.assertEqual(plain.status, 200, plain.body[:500])
        return serving.frames(streamed.body.decode()), plain.json()

    def message(self, **fields):
        events, plain = self.ask(MESSAGES, agents.claude_code(**fields))
        joined = joined_message(events)
        # A call that is cut is in the stream, which could not know, and not in the plain answer; so is one whose arguments are
        # whole and whose last brace is missing.
        last = joined["content"][-1] if joined["content"] else {}
        if joined["stop_reason"] == "max_tokens" and last.get("type") == "tool_use" and len(joined["content"]) > len(plain["content"]):
            joined["content"].pop()
        self.assertEqual(joined["content"], plain["content"])
        self.assertEqual(joined["stop_reason"], plain["stop_reason"])
        self.assertEqual(joined["usage"]["output_tokens"], plain["usage"]["output_tokens"])
        read = lambda usage: usage["input_tokens"] + usage["cache_read_input_tokens"]
        self.assertEqual(read(joined["usage"]), read(plain["usage"]))
        return plain

    def response(self, **fields):
        events, plain = self.ask(RESPONSES, agents.codex(**fields))
        self.assertEqual(joined_items(events), events[-1]["response"]["output"])
        self.assertEqual(events[-1]["type"], f"response.{plain['status']}")
        self.assertEqual(events[-1]["response"]["usage"]["output_tokens"], plain["usage"]["output_tokens"])
        told = lambda item: {name: value for name, value in item.items() if name not in ("id", "call_id")}
        self.assertEqual(list(map(told, events[-1]["response"]["output"])), list(map(told, plain["output"])))
        return plain

    def test_claude_code_is_answered(self):
        plain = self.message(max_tokens=60, ignore_eos=True)
        self.assertEqual([block["type"] for block in plain["content"]], ["thinking", "text"])
        self.assertEqual(plain["stop_reason"], "max_tokens")
        self.assertEqual(len(plain["content"][0]["signature"]), 32)
        request = {k: v for k, v in agents.claude_code().items() if k not in ("max_tokens", "stream")}
        counted = self.server.post(f"{MESSAGES}/count_tokens", request).json()["input_tokens"]
        usage = plain["usage"]
        self.assertEqual(counted, usage["input_tokens"] + usage["cache_read_input_tokens"])
        self.assertGreater(usage["cache_read_input_tokens"], counted / 2, "the prompt was there already")

    def test_claude_code_calls(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "Tool_1"},
                       {"type": "any", "disable_parallel_tool_use": True}):
            plain = self.message(tool_choice=choice, max_tokens=2000)
            calls = [block for block in plain["content"] if block["type"] == "tool_use"]
            self.assertEqual(plain["content"][0]["type"], "thinking")
            self.assertEqual(plain["stop_reason"], "tool_use")
            self.assertEqual(len(calls) + 1, len(plain["content"]), "nothing but calls behind the thought")
            for call in calls:
                self.assertRegex(call["id"], "^toolu_[A-Za-z0-9]{24}$")
                self.assertIn("a", call["input"])
            if choice.get("name"):
                self.assertEqual([(call["name"], type(call["input"]["a"])) for call in calls], [("Tool_1", int)])

    def test_a_call_that_is_cut_is_left_out(self):
        body = agents.claude_code(tools=2, tool_choice={"type": "tool", "name": "Tool_1"}, thinking={"type": "disabled"})
        seen = set()
        for tokens in range(30, 90, 3):
            plain = self.server.post(MESSAGES, {**body, "stream": False, "max_tokens": tokens, **FIXED}).json()
            seen.add((len(plain["content"]), plain["stop_reason"]))
        # The arguments may be whole before the marker behind them is.
        self.assertLessEqual({(0, "max_tokens"), (1, "tool_use")}, seen)
        self.assertLessEqual(seen, {(0, "max_tokens"), (1, "max_tokens"), (1, "tool_use")})

    def test_answers_that_are_cut_anywhere(self):
        seen = set()
        for tokens in range(1, 230, 8):
            message = self.message(tools=2, max_tokens=tokens, tool_choice={"type": "tool", "name": "Tool_1"})
            seen.add((message["stop_reason"], tuple(block["type"] for block in message["content"])))
            response = self.response(max_output_tokens=tokens, thinking_token_budget=20,
                                     tool_choice={"type": "function", "name": "shell_command"})
            seen.add((response["status"], tuple(f"{item['type']}: {item['status']}" for item in response["output"])))
            if response["output"] and response["status"] == "incomplete":
                self.assertTrue(all(item["status"] == "completed" for item in response["output"][:-1]))
        for kind in (("max_tokens", ("thinking",)), ("tool_use", ("thinking", "tool_use")), ("incomplete", ("reasoning: incomplete",)),
                     ("incomplete", ("reasoning: completed", "function_call: incomplete"))):
            self.assertIn(kind, seen)

    def test_thoughts_can_be_omitted_or_off(self):
        shown = self.message(tools=1, max_tokens=60)
        omitted = self.message(tools=1, max_tokens=60, thinking={"type": "enabled", "budget_tokens": 20, "display": "omitted"})
        self.assertEqual(omitted["content"][0], {**shown["content"][0], "thinking": ""})
        self.assertEqual(omitted["content"][1:], shown["content"][1:])
        off = self.message(tools=1, max_tokens=60, thinking={"type": "disabled"})
        self.assertEqual([block["type"] for block in off["content"]], ["text"])

    def test_codex_is_answered(self):
        plain = self.response(max_output_tokens=60, thinking_token_budget=20, ignore_eos=True)
        self.assertEqual([item["type"] for item in plain["output"]][:1], ["reasoning"])
        self.assertEqual(plain["status"], "incomplete")
        self.assertEqual((plain["store"], plain["instructions"]), (False, "You are Codex."))
        self.assertEqual([tool["name"] for tool in plain["tools"]], ["shell_command", "update_plan", "apply_patch"])
        counted = self.server.post(f"{RESPONSES}/input_tokens", agents.codex()).json()
        self.assertEqual(counted, {"object": "response.input_tokens", "input_tokens": plain["usage"]["input_tokens"]})

    def test_codex_calls(self):
        plain = self.response(tool_choice="required", reasoning={"effort": "none"})
        self.assertEqual(plain["status"], "completed")
        for item in plain["output"]:
            self.assertIn(item["type"], ("function_call", "custom_tool_call"))
            self.assertRegex(item["call_id"], "^call_[A-Za-z0-9]{24}$")
        plain = self.response(tool_choice={"type": "function", "name": "shell_command"}, reasoning={"effort": "none"})
        self.assertEqual([item["name"] for item in plain["output"]], ["shell_command"])
        self.assertIsInstance(json.loads(plain["output"][0]["arguments"]), dict)
        patch = self.response(tool_choice={"type": "custom", "name": "apply_patch"}, reasoning={"effort": "none"},
                              max_output_tokens=200)
        self.assertEqual([item["type"] for item in patch["output"]], ["custom_tool_call"])
        self.assertTrue(patch["output"][0]["input"].startswith("*** Begin Patch\n"), patch["output"])

    def test_refusals_name_what_they_refuse(self):
        for fields, status, param in (({"previous_response_id": "resp_1"}, 404, "previous_response_id"),
                                      ({"background": True}, 400, "background"),
                                      ({"input": [{"type": "item_reference", "id": "x"}]}, 404, "input[0].id")):
            answer = self.server.post(RESPONSES, agents.codex(**fields))
            self.assertEqual((answer.status, answer.json()["error"]["param"]), (status, param))
        answer = self.server.post(MESSAGES, agents.claude_code(tools=0) | {
            "tools": [{"type": "web_search_20250305", "name": "web_search"}]})
        self.assertEqual(answer.status, 400)
        self.assertIn("web_search_20250305", answer.json()["error"]["message"])


if __name__ == "__main__":
    unittest.main()
