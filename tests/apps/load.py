"""Many clients at once on one thread: requests over raw sockets, read frame by frame."""
import asyncio
import json
import resource
import socket
import time

HEAD_LIMIT = 1 << 20


def allow_files(count):
    """Whether this process may have that many sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard >= count


class Reply:
    """What came back: the status (0: nothing did), headers, and of a stream its frames as they came."""

    def __init__(self):
        self.begun = time.monotonic()
        self.status, self.headers, self.body = 0, {}, b""
        self.answered = self.first = self.last = None  # times: of the head, the first token, the last byte
        self.tokens, self.times = 0, []
        self.done = self.left = False
        self.error = None

    @property
    def ttft(self):
        return self.first - self.begun

    @property
    def latency(self):
        return self.answered - self.begun

    def json(self):
        return json.loads(self.body)

    def take_frame(self, frame):
        if frame == b"data: [DONE]":
            self.done = True
        elif frame.startswith(b"data: {\"error\""):
            self.error = json.loads(frame[6:])
        elif b'"text":"' in frame or b'"content":"' in frame:
            if b'"content":""' in frame or b'"text":""' in frame:
                return  # the role, or the end
            self.tokens += 1
            self.times.append(time.monotonic())
            if self.first is None:
                self.first = self.times[0]


def request_bytes(method, path, body=None, key=None, headers=()):
    text = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(text)}"]
    return "\r\n".join([*lines, "", ""]).encode() + text


async def connect(server, receive_buffer=None):
    sock = socket.socket()
    sock.setblocking(False)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
    return sock


async def read_head(reader, reply):
    head = await reader.readuntil(b"\r\n\r\n")
    reply.answered = time.monotonic()
    lines = head.decode("latin-1").split("\r\n")
    reply.status = int(lines[0].split()[1])
    reply.headers = {name.lower(): value.strip() for name, value in
                     (line.split(":", 1) for line in lines[1:] if ":" in line)}


async def pieces(reader, headers):
    if headers.get("transfer-encoding") != "chunked":
        yield await reader.readexactly(int(headers.get("content-length", 0)))
        return
    while size := int(await reader.readline(), 16):
        yield (await reader.readexactly(size + 2))[:-2]


async def ask(server, path, body, key=None, headers=(), leave=None):
    """Sends one request and reads its answer. `leave(reply)`: hang up now? Asked at first before anything came."""
    reply = Reply()
    sock = await connect(server)
    reader, writer = await asyncio.open_connection(sock=sock, limit=HEAD_LIMIT)
    try:
        reply.begun = time.monotonic()
        writer.write(request_bytes("POST", path, body, key, headers))
        await writer.drain()
        if leave and leave(reply):
            reply.left = True
            return reply
        await read_head(reader, reply)
        rest = b""
        async for piece in pieces(reader, reply.headers):
            if not reply.headers["content-type"].startswith("text/event-stream"):
                reply.body += piece
                continue
            *frames, rest = (rest + piece).split(b"\n\n")
            for frame in frames:
                reply.take_frame(frame)
                if leave and leave(reply):
                    reply.left = True
                    return reply
        reply.last = time.monotonic()
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        reply.error = error
    finally:
        writer.close()
    return reply
