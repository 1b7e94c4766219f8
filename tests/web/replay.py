"""A server that says what a test wants: the console's files as they are in the tree, and answers that were made beforehand.

What a real model will not say on demand is tested with it: ten thousand tokens at once, scripts, thoughts, a full KV pool.
"""
import http.server
import json
import pathlib
import re
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def policy():
    """The header that the real server sends with its pages."""
    text = (ROOT / "src/server/router.cpp").read_text()
    block = re.search(r'\{"Content-Security-Policy",(.*?)\},', text, re.S)[1]
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', block))


def chunk(delta, finish=None, logprobs=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    if logprobs:
        choice["logprobs"] = {"content": logprobs}
    return {"id": "chatcmpl-replay", "object": "chat.completion.chunk", "model": "replay", "choices": [choice]}


def answer_frames(pieces, thoughts=(), calls=(), probable=True):
    """Frames of a chat that says these pieces, a token each."""
    frames = [chunk({"role": "assistant", "content": ""})]
    frames += [chunk({"reasoning_content": thought}) for thought in thoughts]
    for piece in pieces:
        likely = [{"token": piece, "logprob": -0.2, "bytes": None, "top_logprobs": [{"token": piece, "logprob": -0.2}, {"token": " or", "logprob": -1.9}]}]
        frames.append(chunk({"content": piece}, logprobs=likely if probable else None))
    for at, (name, arguments) in enumerate(calls):
        frames.append(chunk({"tool_calls": [{"index": at, "id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}]}))
    frames.append(chunk({}, finish="tool_calls" if calls else "stop"))
    frames.append({"id": "chatcmpl-replay", "object": "chat.completion.chunk", "model": "replay", "choices": [],
                   "usage": {"prompt_tokens": 12, "completion_tokens": max(1, len(pieces)), "total_tokens": 12 + len(pieces)}})
    return frames


class Replay:
    """Serves until the `with` block ends. `answer(body)` makes the frames of a chat, `pause_s` passes between two of them."""

    def __init__(self, answer=lambda body: answer_frames(["Hello."]), live=None, pages=None, pause_s=0.0):
        self.answer, self.live, self.pages, self.pause_s = answer, live, pages or {}, pause_s
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def head(self, status, kind, length=None):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Security-Policy", policy())
                if length is None:
                    self.send_header("Transfer-Encoding", "chunked")
                else:
                    self.send_header("Content-Length", str(length))
                self.end_headers()

            def whole(self, body, kind="application/json", status=200):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.head(status, kind, len(data))
                self.wfile.write(data)

            def stream(self, frames, pause_s):
                self.head(200, "text/event-stream")
                held = b""
                for frame in frames:
                    held += b"data: " + (frame if isinstance(frame, bytes) else json.dumps(frame).encode()) + b"\n\n"
                    if pause_s or len(held) > 60_000:
                        self.piece(held)
                        held = b""
                        time.sleep(pause_s)
                self.piece(held)
                self.wfile.write(b"0\r\n\r\n")

            def piece(self, data):
                if data:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()

            def do_GET(self):
                path = self.path.split("?")[0]
                name = "index.html" if path == "/" else path.removeprefix("/web/") if path.startswith("/web/") else None
                if name and (ROOT / "web" / name).is_file():
                    return self.whole((ROOT / "web" / name).read_bytes(), TYPES[name.rsplit(".", 1)[1]])
                if path == "/v1/live" and outer.live:
                    return self.guarded(outer.live(), 0.25)
                known = {"/health": {"status": "ok"}, "/v1/models": {"object": "list", "data": [{"id": "replay", "object": "model"}]}, **outer.pages}
                if path in known:
                    return self.whole(known[path])
                self.whole({"error": {"message": "There is nothing here.", "code": None}}, status=404)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                if self.path != "/v1/chat/completions":
                    return self.whole({"error": {"message": "There is nothing here."}}, status=404)
                self.guarded([*outer.answer(body), b"[DONE]"], outer.pause_s)

            def guarded(self, frames, pause_s):
                try:
                    self.stream(frames, pause_s)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
