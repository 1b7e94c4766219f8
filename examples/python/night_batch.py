"""A night's work as one batch: a file of requests goes in, a file of answers comes out. It runs below everything that people wait for,
and goes on where it was when the server is started anew.

  build/skein serve --model default
  python3 night_batch.py texts.txt   # a request for each line
"""
import io
import json
import os
import sys
import time

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("SKEIN_URL", "http://127.0.0.1:8080") + "/v1", api_key=os.environ.get("SKEIN_KEY", "none"))
model = client.models.list().data[0].id
texts = open(sys.argv[1]).read().splitlines() if len(sys.argv) > 1 else ["The sea is calm.", "The train was late again."]
schema = {"type": "object", "properties": {"mood": {"enum": ["good", "bad", "neither"]}}, "required": ["mood"],
          "additionalProperties": False}
lines = [json.dumps({"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": {
    "model": model, "max_tokens": 40, "temperature": 0,
    "messages": [{"role": "user", "content": f"What mood is this text in? {text}"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "mood", "schema": schema, "strict": True}}}})
    for number, text in enumerate(texts)]
file = client.files.create(file=("night.jsonl", io.BytesIO("\n".join(lines).encode())), purpose="batch")
batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
while batch.status not in ("completed", "failed", "expired", "cancelled"):
    time.sleep(0.5)
    batch = client.batches.retrieve(batch.id)
print(f"batch {batch.status}: {batch.request_counts.completed} of {batch.request_counts.total}")
for line in client.files.content(batch.output_file_id).text.splitlines():
    row = json.loads(line)
    said = json.loads(row["response"]["body"]["choices"][0]["message"]["content"])
    print(f"{said['mood']}: {texts[int(row['custom_id'])]}")
