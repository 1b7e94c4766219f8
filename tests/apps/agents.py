"""Requests as agents send them: Claude Code to /v1/messages, Codex to /v1/responses."""

LONG_AGO = "2026-11-01"

# What their tools' schemas are made of: every keyword that they use, enforced or not.
PARTS = [
    {"type": "string", "description": "An absolute path", "minLength": 1, "maxLength": 12},
    {"type": "integer", "minimum": 0, "maximum": 99, "exclusiveMaximum": 100},
    {"type": "string", "enum": ["content", "files_with_matches", "count"], "default": "content"},
    {"type": "boolean", "description": "Set it to true to go on", "default": False},
    {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]},
    {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,4}$"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
    {"type": "object", "properties": {"from": {"$ref": "#/$defs/line"}, "to": {"$ref": "#/$defs/line"}},
     "required": ["from"], "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "number"}, "propertyNames": {"maxLength": 4}, "maxProperties": 1},
    {"oneOf": [{"const": "all"}, {"type": "integer", "minimum": 1, "maximum": 5}]},
    {"type": "string", "format": "date-time", "not": {"const": LONG_AGO}},
]


def schema(index):
    """Of the tool of that number: one property that must be there, and for some one that may."""
    made = {"type": "object", "properties": {"a": PARTS[index % len(PARTS)]}, "required": ["a"], "additionalProperties": False}
    if index % 4 == 0:
        made = {"$schema": "http://json-schema.org/draft-07/schema#", **made}
        made["properties"]["b"] = PARTS[(index * 7 + 3) % len(PARTS)]
    if "$ref" in str(made):
        made["$defs"] = {"line": {"type": "integer", "minimum": 1, "maximum": 9}}
    return made


def claude_code(tools=58, **more):
    """One turn, with a history of calls."""
    cached = {"cache_control": {"type": "ephemeral"}}
    return {
        "model": "tiny", "max_tokens": 300, "stream": True, "temperature": 1, "metadata": {"user_id": "user_1_account__session_2"},
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.160.1; cc_entrypoint=cli; cch=1f2e3;"},
                   {"type": "text", "text": "You are an agent.", **cached}, {"type": "text", "text": "Be brief.", **cached}],
        "tools": [{"name": f"Tool_{i}" if i % 9 else f"mcp__server__tool-{i}", "description": f"Does {i}.",
                   "input_schema": schema(i), **(cached if i == tools - 1 else {})} for i in range(tools)],
        "thinking": {"type": "enabled", "budget_tokens": 20}, "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "service_tier": "auto",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"},
                                         {"type": "text", "text": "List the files.", **cached}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "A tool can.", "signature": "EqQBCgIYAg=="},
                                              {"type": "redacted_thinking", "data": "Eo8BCg=="},
                                              {"type": "text", "text": "I look."},
                                              {"type": "tool_use", "id": "toolu_01A", "name": "Tool_1", "input": {"a": 3}},
                                              {"type": "tool_use", "id": "toolu_01B", "name": "Tool_3", "input": {"a": True}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_01A", "content": [{"type": "text", "text": "a.c"}]},
                {"type": "tool_result", "tool_use_id": "toolu_01B", "is_error": True, "content": "No such file", **cached}]},
            {"role": "system", "content": "The user has opened a.c."},
            {"role": "user", "content": "Go on."}],
        **more}


APPLY_PATCH = """start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: ("+" | "-") /(.*)/ LF -> line
%import common.LF
"""


def codex(**more):
    """One turn, with a history of calls."""
    text = lambda words: [{"type": "input_text", "text": words}]
    function = lambda name, i: {"type": "function", "name": name, "description": f"Does {i}.", "strict": False, "parameters": schema(i)}
    return {
        "model": "tiny", "instructions": "You are Codex.", "tool_choice": "auto", "parallel_tool_calls": True, "store": False,
        "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0199-ab", "service_tier": "priority",
        "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"}, "client_metadata": {"x-codex": "1"},
        "tools": [function("shell_command", 1), function("update_plan", 5), {"type": "web_search", "external_web_access": False},
                  {"type": "custom", "name": "apply_patch", "description": "Edits files.",
                   "format": {"type": "grammar", "syntax": "lark", "definition": APPLY_PATCH}},
                  {"type": "namespace", "name": "mcp", "description": "More.", "tools": [function("more", 2)]},
                  {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {}}],
        "input": [
            {"type": "message", "role": "developer", "content": text("<permissions>all</permissions>")},
            {"type": "message", "role": "user", "content": text("<environment_context/>")},
            {"type": "message", "role": "user", "content": text("List the files.")},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "A tool can."}], "encrypted_content": None},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}], "phase": "commentary"},
            {"type": "function_call", "name": "shell_command", "arguments": "{\"a\": 3}", "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "a.c"},
            {"type": "custom_tool_call", "status": "completed", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch\n"},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": text("Done!")},
            {"type": "message", "role": "user", "content": text("Go on.")}],
        **more}
