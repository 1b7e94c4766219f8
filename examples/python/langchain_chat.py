"""LangChain against skein: a chat, a stream, and an answer in a form.

  build/skein serve --model default
  python3 langchain_chat.py
"""
import os

from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

url = os.environ.get("SKEIN_URL", "http://127.0.0.1:8080")
model = ChatOpenAI(base_url=url + "/v1", api_key=os.environ.get("SKEIN_KEY", "none"), model=os.environ.get("MODEL", ""),
                   temperature=0, max_tokens=40)
chain = ChatPromptTemplate.from_messages([("system", "You answer in one sentence."), ("user", "{question}")]) | model
print("answer:", chain.invoke({"question": "Why is the sky blue?"}).content)
print("stream:", "".join(piece.content for piece in chain.stream({"question": "Name a river."})))
colours = {"title": "colour", "type": "object", "properties": {"name": {"enum": ["red", "green", "blue"]}}, "required": ["name"],
           "additionalProperties": False}
print("form:", model.with_structured_output(colours, method="json_schema").invoke("Which colour has grass?"))
