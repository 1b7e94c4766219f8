"""Answers a question from a few texts of its own: the nearest ones, by embeddings, become the prompt.

  build/skein serve --model default --pooling mean
  python3 rag.py "How tall is the tower?"

A model that was made for embeddings finds better; it can be served beside the one that talks (EMBEDDINGS=its-name).
"""
import os
import sys

from openai import OpenAI

TEXTS = [
    "The lighthouse of Nordkap was built in 1932 and is 38 metres tall. Its lamp is seen from 23 miles away.",
    "The harbour office opens at seven in the morning and closes at four in the afternoon.",
    "Fishing in the bay needs a permit, which costs 12 crowns and holds for a year.",
    "The ferry to the island leaves every two hours, the last one at nine in the evening.",
]
client = OpenAI(base_url=os.environ.get("SKEIN_URL", "http://127.0.0.1:8080") + "/v1", api_key=os.environ.get("SKEIN_KEY", "none"))
model = client.models.list().data[0].id
embedder = os.environ.get("EMBEDDINGS", model)


def vectors(texts):
    return [item.embedding for item in client.embeddings.create(model=embedder, input=texts).data]


def nearest(question, count=2):
    *known, asked = vectors([*TEXTS, question])
    scores = [sum(a * b for a, b in zip(one, asked)) for one in known]  # vectors have length 1
    return sorted(range(len(TEXTS)), key=lambda i: -scores[i])[:count]


question = sys.argv[1] if len(sys.argv) > 1 else "How tall is the lighthouse?"
found = [TEXTS[i] for i in nearest(question)]
for text in found:
    print("found:", text)
answer = client.chat.completions.create(
    model=model, temperature=0, max_tokens=60,
    messages=[{"role": "system", "content": "Answer in one sentence from these texts alone:\n" + "\n".join(found)},
              {"role": "user", "content": question}])
print("answer:", answer.choices[0].message.content)
