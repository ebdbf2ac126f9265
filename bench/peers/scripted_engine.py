"""An engine that answers at once: OpenAI's chat completions over HTTP/1.1. Prints its port once it serves.

To a user it answers with as many calls of the first tool as the user's message says in digits, and to whatever else
with text. It parses nothing but what decides the answer.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from typing import Any

import orjson

from bench.payload import TEXT

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_ARGUMENTS = orjson.dumps({"text": TEXT}).decode()
_MODEL = "scripted"
_numbers = itertools.count(1)


class _Connection(asyncio.Protocol):
    """Requests of one connection, one after the other."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while (head := received.find(_HEAD_END)) >= 0:
            found = _LENGTH.search(received, 0, head)
            start = head + len(_HEAD_END)
            end = start + (int(found[1]) if found else 0)
            if len(received) < end:
                return
            body = bytes(received[start:end])
            del received[:end]
            if self._transport is not None:
                self._transport.write(_answer(orjson.loads(body)))


def _answer(request: dict[str, Any]) -> bytes:
    last = request["messages"][-1]
    number = next(_numbers)
    if last["role"] == "user":
        function = {"name": request["tools"][0]["function"]["name"], "arguments": _ARGUMENTS}
        calls = [
            {"index": index, "id": f"call-{number}-{index}", "type": "function", "function": function}
            for index in range(int(last["content"]))
        ]
        said: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": calls}
        reason = "tool_calls"
    else:
        said, reason = {"role": "assistant", "content": TEXT}, "stop"
    answer = {"id": f"answer-{number}", "created": 1, "model": _MODEL}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    if not request.get("stream"):
        choice = {"index": 0, "message": said, "finish_reason": reason}
        document = answer | {"object": "chat.completion", "choices": [choice], "usage": usage}
        return _response(b"application/json", orjson.dumps(document))
    answer["object"] = "chat.completion.chunk"
    chunks = (
        answer | {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
        answer | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        answer | {"choices": [], "usage": usage},
    )
    events = b"".join(b"data: " + orjson.dumps(each) + b"\n\n" for each in chunks)
    return _response(b"text/event-stream", events + b"data: [DONE]\n\n")


def _response(kind: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


async def main() -> None:
    """Serve until it is terminated."""
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
