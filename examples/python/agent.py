"""An agent with two tools: the model calls them until it has an answer. What it calls always parses, since a call is bound to its
tool's schema while it is written.

  build/skein serve --model default
  python3 agent.py "What is 17 times 23?"
"""
import json
import os
import sys

from openai import OpenAI

TOOLS = [
    {"type": "function", "function": {
        "name": "multiply", "description": "Multiplies two whole numbers.", "strict": True,
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                       "required": ["a", "b"], "additionalProperties": False}}},
    {"type": "function", "function": {
        "name": "weather", "description": "The weather in a city.", "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 40}},
                       "required": ["city"], "additionalProperties": False}}},
]
RUN = {"multiply": lambda a, b: {"product": a * b}, "weather": lambda city: {"city": city, "sky": "clear", "celsius": 21}}
MOST_ROUNDS = 4

client = OpenAI(base_url=os.environ.get("SKEIN_URL", "http://127.0.0.1:8080") + "/v1", api_key=os.environ.get("SKEIN_KEY", "none"))
model = client.models.list().data[0].id
messages = [{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "What is 17 times 23?"}]
made, is_last = {}, False
for round_number in range(MOST_ROUNDS):
    # A small model needs to be told to begin; a larger one is left to choose. The last word has no tools to call.
    tools = {} if is_last or round_number == MOST_ROUNDS - 1 else {"tools": TOOLS, "tool_choice": "required" if round_number == 0 else "auto"}
    message = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=200, **tools).choices[0].message
    if not message.tool_calls:
        print("answer:", message.content)
        break
    calls = {call.function.name + call.function.arguments: call for call in message.tool_calls}
    if is_last := all(key in made for key in calls):
        continue  # it has these results already
    message.tool_calls = list(calls.values())
    messages.append(message.model_dump(exclude_none=True))
    for key, call in calls.items():
        arguments = json.loads(call.function.arguments)
        made[key] = RUN[call.function.name](**arguments)
        print(f"called: {call.function.name}({json.dumps(arguments)}) -> {json.dumps(made[key])}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(made[key])})
