"""JSON-RPC 2.0 over an MCP server's stdin and stdout, one message a line, many requests in flight."""

from __future__ import annotations

import json
import os
import select
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from fumehood_sdk.adapters.mcp.client_requests import CLIENT_FEATURES, RefusedInput
from fumehood_sdk.adapters.mcp.faults import ServerFault
from fumehood_sdk.adapters.mcp.messages import METHOD_NOT_FOUND, Message, one_line, read_message, shown
from fumehood_sdk.adapters.mcp.server_process import ServerProcess

Answered = Callable[[Message], None]
"""Takes a response: a message with `result`, with `error`, or with what is wrong with it (`messages.problem_of`)."""
Respond = Callable[["bytes | RefusedInput"], None]
"""Takes the result that a server's request is answered with, as JSON, or why there is none."""

READ_BYTES = 65536
MAX_UNSENT_BYTES = 48 * 1024 * 1024
"""What waits for a server that doesn't read: as many arguments as the sidecar may have under way here, and answers."""
MAX_STRAY_LINES = 256
"""Lines in a row that are no JSON-RPC, or answer nothing: servers print banners, and this is no banner any more."""
MAX_ABANDONED = 1024
"""Requests that nobody waits for any more, and whose late answers are expected."""
MAX_EARLY = 100
"""Notifications that are kept until somebody takes them: as many lines as the log takes in a second."""
LIST_CHANGED = "notifications/tools/list_changed"
EXIT_WAIT_S = 1.0
"""From the end of a server's stdout to its exit."""
REFUSED = -1
"""What the protocol's own examples answer where a person says no."""


class ServerConnection:
    """One server and the requests under way there. For one thread, which polls `process.stdout` and `process.stdin`."""

    __slots__ = (
        "_abandoned",
        "_early",
        "_early_change",
        "_has_forgotten",
        "_last_id",
        "_max_line_bytes",
        "_on_notification",
        "_pending",
        "_rest",
        "_roots",
        "_scanned",
        "_stray",
        "_unneeded",
        "_unsent",
        "_unsent_bytes",
        "log",
        "on_request",
        "process",
    )

    def __init__(self, process: ServerProcess, *, max_line_bytes: int, roots: str, log: Callable[[str], None]) -> None:
        """`roots` is the result of `roots/list` as JSON. `log` takes a line for the plugin's log."""
        self.process = process
        self.log = log
        self._on_notification: Callable[[Message], None] = self._keep_early
        self._early: list[Message] = []
        self._early_change: Message | None = None
        self.on_request: Callable[[Message, Respond], None] = _refuse
        """Takes each request for one of `CLIENT_FEATURES`, and what its answer is given to, once."""
        self._max_line_bytes = max_line_bytes
        self._roots = roots
        self._pending: dict[int, Answered] = {}
        self._abandoned: deque[int] = deque(maxlen=MAX_ABANDONED)
        self._has_forgotten = False
        self._unneeded: deque[int] = deque(maxlen=MAX_ABANDONED)
        """Requests other than calls, likewise: a server asks its client for nothing on their behalf."""
        self._last_id = 0
        self._rest = bytearray()
        self._scanned = 0
        """Bytes of `_rest` that hold no end of a line."""
        self._stray = 0
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0

    @property
    def next_id(self) -> int:
        """The id that the next request has."""
        return self._last_id + 1

    @property
    def has_unsent(self) -> bool:
        """Whether something waits for the server to read."""
        return bool(self._unsent)

    @property
    def has_abandoned(self) -> bool:
        """Whether the server may be at work on a call that nobody waits for: it has not answered it."""
        return bool(self._abandoned) or self._has_forgotten

    def request(self, method: str, params: bytes, answered: Answered) -> int:
        """Send a request with `params` as JSON in one line. Returns its id."""
        number = self._last_id = self._last_id + 1
        self._pending[number] = answered
        self._send(b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}\n' % (number, method.encode(), params))
        return number

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification."""
        self._send(b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), params))

    def pass_notifications(self, take: Callable[[Message], None]) -> None:
        """Give `take` each notification from now on, and first those that came before."""
        self._on_notification = take
        early = [*self._early, *([self._early_change] if self._early_change else ())]
        self._early, self._early_change = [], None
        for message in early:
            take(message)

    def _keep_early(self, message: Message) -> None:
        """A change of the tools is kept whatever else comes: they may have been listed before it."""
        if message["method"] == LIST_CHANGED:
            self._early_change = message
        elif len(self._early) < MAX_EARLY:
            self._early.append(message)

    def abandon(self, number: int, *, is_call: bool) -> None:
        """Wait for the answer to a request no more. `is_call`: what the server asks from then on may be for it."""
        if self._pending.pop(number, None) is None:
            return
        if is_call:
            self._has_forgotten = self._has_forgotten or len(self._abandoned) == MAX_ABANDONED
            self._abandoned.append(number)
        else:
            self._unneeded.append(number)

    def wait_for(self, done: Callable[[], bool], within_s: float) -> bool:
        """Read and write until something is so, for callers that have nothing else to wait for. Says whether it is.

        Raises:
            ServerFault: the server is gone or broke the protocol.
        """
        deadline = time.monotonic() + within_s
        poller = select.poll()
        poller.register(self.process.stdout, select.POLLIN)
        while not done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if self._unsent:
                poller.register(self.process.stdin, select.POLLOUT)
            for fd, _ in poller.poll(left_s * 1000):
                if fd == self.process.stdout:
                    self.read()
                else:
                    self.flush()
                    poller.unregister(fd)
        return True

    def read(self) -> None:
        """Take what the server wrote.

        Raises:
            ServerFault: it closed its stdout, or broke the protocol.
        """
        try:
            data = os.read(self.process.stdout, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ServerFault(f"the MCP server closed its stdout: {self.process.end(EXIT_WAIT_S)}")
        rest = self._rest
        rest += data
        start = 0
        while (end := rest.find(b"\n", max(start, self._scanned))) >= 0:
            line = bytes(rest[start:end])
            start = end + 1
            self._take_line(line)
        if start:
            del rest[:start]
        self._scanned = len(rest)
        if self._scanned > self._max_line_bytes:
            raise ServerFault(f"the MCP server wrote a line of more than {self._max_line_bytes} bytes")

    def flush(self) -> None:
        """Write what waits, as far as the pipe takes it."""
        unsent = self._unsent
        while unsent:
            data = unsent.popleft()
            written = self._write(data)
            self._unsent_bytes -= written
            if written < len(data):
                unsent.appendleft(data[written:])
                return

    def _send(self, line: bytes) -> None:
        if not self._unsent:
            written = self._write(line)
            if written == len(line):
                return
            line = line[written:]
        self._unsent.append(line)
        self._unsent_bytes += len(line)
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            raise ServerFault("the MCP server asks for more and more and doesn't read its stdin")

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self.process.stdin, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)  # what it still has to say, and its end, are read

    def _take_line(self, line: bytes) -> None:
        if line.isspace() or not line:
            return
        message = read_message(line)
        if message is None or not _is_message(message):
            self._stray_line(f"the MCP server wrote a line to stdout that is no JSON-RPC: {line[:200]!r}")
            return
        try:
            self._take_message(message)
        except (ServerFault, OSError):
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {one_line(error)}"
            raise ServerFault(f"a line of the MCP server's can't be handled ({problem}): {line[:200]!r}") from error

    def _take_message(self, message: Message) -> None:
        number = message.get("id")
        if "method" in message:
            if number is None:
                self._stray = 0
                self._on_notification(message)
            else:
                self._answer(message)
            return
        answered = self._pending.pop(number, None) if type(number) is int else None
        if answered is not None:
            self._stray = 0
            answered(message)
        elif type(number) is int and number in self._abandoned:
            self._abandoned.remove(number)
        elif type(number) is int and number in self._unneeded:
            self._unneeded.remove(number)
        else:
            self._stray_line(f"the MCP server answered the id {shown(number)}, which nobody asked")

    def _stray_line(self, problem: str) -> None:
        self._stray += 1
        if self._stray > MAX_STRAY_LINES:
            raise ServerFault(f"{problem}; that is the {self._stray}th such line in a row")
        self.log(problem)

    def _answer(self, message: Message) -> None:
        """Answer a request of the server's, or have it answered."""
        method, number = message["method"], message["id"]
        if method in CLIENT_FEATURES:
            self.on_request(message, partial(self._respond, number, method))
            return
        if method == "ping":
            outcome = '"result":{}'
        elif method == "roots/list":
            outcome = f'"result":{self._roots}'
        else:
            text = f"no method {shown(method)}"
            outcome = f'"error":{{"code":{METHOD_NOT_FOUND},"message":{json.dumps(text)}}}'
            self.log(f"the MCP server asked for {shown(method)}: {text}")
        self._send(f'{{"jsonrpc":"2.0","id":{json.dumps(number)},{outcome}}}\n'.encode())

    def _respond(self, number: object, method: str, answer: bytes | RefusedInput) -> None:
        shown = json.dumps(number).encode()
        if isinstance(answer, RefusedInput):
            text = f"{CLIENT_FEATURES[method]} is refused ({answer.reason}): {answer.problem}"
            self.log(f"the MCP server asked for {method}: {text}")
            error = json.dumps({"code": REFUSED, "message": text}).encode()
            self._send(b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (shown, error))
        else:
            self._send(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (shown, answer))


def _is_message(message: Message) -> bool:
    """Whether it may be JSON-RPC, by the types of its `method` and, beside that, its `id`."""
    if "method" not in message:
        return True
    return isinstance(message["method"], str) and isinstance(message.get("id"), str | int | float | None)


def _refuse(_message: Message, respond: Respond) -> None:
    respond(RefusedInput("no_call", "no call is under way that it could be for"))
