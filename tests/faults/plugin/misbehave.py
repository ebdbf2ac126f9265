"""A plugin that does one thing wrong, chosen by its first argument (at start) or by the tool that is called.

It speaks the wire by hand and with the standard library alone, as a stranger's program would. Its second argument is a
token by which a test finds every process that stems from it. It is one file however long, for it runs under `-I -S` and
can import nothing that lies beside it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

STDIN, STDOUT, STDERR = 0, 1, 2


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = take(data, at)
        value, at = take(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value
        else:
            yield key >> 3, value


def take(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return number, at


def frame(kind: int, body: bytes) -> bytes:
    payload = field(kind, body)
    return varint(len(payload)) + payload


def ready(version: int = 1, calls: int = 0) -> bytes:
    return frame(1, field(1, version) + field(2, b"misbehave") + (field(4, calls) if calls else b""))


def update(invocation: int, text: bytes = b"on") -> bytes:
    return frame(2, field(1, invocation) + field(2, text))


def values(invocation: int, count: int = 1, size: int = 2) -> bytes:
    value = field(1, b"now") + field(2, b"") + field(3, 1) + field(4, b'"' + b"x" * size + b'"')
    return frame(7, field(1, invocation) + field(2, value) * count)


def log(invocation: int, text: bytes) -> bytes:
    return frame(3, field(1, invocation) + field(2, 2) + field(3, text))


def result(invocation: int, text: bytes = b"done") -> bytes:
    return frame(4, field(1, invocation) + field(2, field(1, text)))


def ask_secret(invocation: int, request: int, name: bytes = b"KEY") -> bytes:
    return frame(6, field(1, invocation) + field(2, request) + field(3, name))


def write(data: bytes, fd: int = STDOUT) -> None:
    while data:
        data = data[os.write(fd, data) :]


def read_frame() -> bytes | None:
    length = shift = 0
    while True:
        byte = os.read(STDIN, 1)
        if not byte:
            return None
        length |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
    data = b""
    while len(data) < length:
        data += os.read(STDIN, length - len(data))
    return data


def forever(action: Callable[[], object]) -> None:
    while True:
        action()


def hang() -> None:
    forever(signal.pause)


# One function for each fault of a call, named as the tool. It gets the call's id.


def echo(call: int) -> None:
    write(result(call, b"echo"))


def noisy(call: int) -> None:
    write(b"".join(update(call, b"step %d" % n) for n in range(5)) + log(call, b"a word") + result(call))


def garbage(_: int) -> None:
    write(varint(6) + b"\x22\xff\xff\xff\xff\xff")


def huge_frame(_: int) -> None:
    write(varint(1 << 30))
    hang()


def endless_length(_: int) -> None:
    write(b"\xff" * 64)


def half_frame_then_exit(call: int) -> None:
    write(result(call)[:-3])
    os._exit(0)


def half_frame_then_stall(call: int) -> None:
    write(result(call)[:-3])
    hang()


def unknown_invocation(call: int) -> None:
    write(result(call + 1000))


def invocation_zero(_: int) -> None:
    write(update(0))


def log_for_unknown_invocation(call: int) -> None:
    write(log(call + 1000, b"x"))


def two_results(call: int) -> None:
    write(result(call) + result(call))


def update_and_half_frame(call: int) -> None:
    write(update(call) + b"Hello, I am a plugin!\n")
    hang()


def exits_with_words(_: int) -> None:
    write(b"words of the crashed call\n", STDERR)
    os._exit(4)


def update_after_result(call: int) -> None:
    write(result(call) + update(call))


def thirty_thousand_blocks(call: int) -> None:
    write(frame(4, field(1, call) + field(2, b"") * 30_000))


def two_million_blocks(call: int) -> None:
    write(frame(4, field(1, call) + field(2, b"") * 2_000_000))


def two_million_headers(call: int) -> None:
    write(frame(5, field(1, call) + field(2, 1) + field(5, b"") * 2_000_000))


def headers_that_end_too_late(call: int) -> None:
    write(frame(5, field(1, call) + varint(5 << 3 | 2) + varint(1 << 20) + bytes(100_000)))


def fails_with_details(call: int, details: bytes) -> None:
    write(frame(4, field(1, call) + field(5, field(1, b"it broke") + field(4, details))))


def fails_with_nested_details(call: int) -> None:
    fails_with_details(call, b'{"nested": ' + b"[" * 64 + b"]" * 64 + b"}")


def fails_with_details_nested_less(call: int) -> None:
    fails_with_details(call, b'{"nested": ' + b"[" * 63 + b"]" * 63 + b"}")


def fails_with_reason(call: int, reason: bytes) -> None:
    write(frame(4, field(1, call) + field(5, field(1, b"it broke") + field(3, reason))))


def has_unknown_tools(call: int) -> None:
    fails_with_reason(call, b"definition_unknown")


def has_changed_tools(call: int) -> None:
    fails_with_reason(call, b"definition_changed")


def endless_media_type(call: int) -> None:
    write(frame(4, field(1, call) + field(2, field(2, field(1, b"image") + field(2, b"image/png" * 300_000)))))


def second_ready(_: int) -> None:
    write(ready())


def endless_updates(call: int) -> None:
    many = update(call) * 1000
    forever(lambda: write(many))


def endless_values(call: int) -> None:
    many = values(call) * 1000
    forever(lambda: write(many))


def values_after_result(call: int) -> None:
    write(result(call) + values(call))


def too_many_values(call: int) -> None:
    write(values(call, 1000) * 11 + values(call, 1) + result(call))


def short_frames_of_values(call: int) -> None:
    write(values(call, 600, 8) * 10 + result(call))


def short_frame_of_blocks(call: int) -> None:
    write(frame(4, field(1, call) + field(2, field(1, b"x" * 8)) * 600))


def too_long_values(call: int) -> None:
    write(values(call, 1, 1000) + values(call, 1, 1_000_000) * 4 + result(call))


def log_flood(call: int) -> None:
    many = log(call, b"x" * 100) * 500
    forever(lambda: write(many))


def stderr_flood(_: int) -> None:
    line = b"flood \x1b[31m\x07 of words\n" * 2000
    forever(lambda: write(line, STDERR))


def stderr_flood_without_newline(_: int) -> None:
    many = b"x" * 65536
    forever(lambda: write(many, STDERR))


def stdout_flood_of_text(_: int) -> None:
    many = b"y" * 65536
    forever(lambda: write(many))


def stdout_flood_of_empty_frames(_: int) -> None:
    many = bytes(65536)
    forever(lambda: write(many))


def is_killed(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exits(_: int) -> None:
    write(b"last words\n", STDERR)
    os._exit(7)


def ignores_cancel(_: int) -> None:
    hang()


def ignores_cancel_and_sigterm(call: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write(update(call, b"deaf"))
    hang()


def slow(call: int) -> None:
    """Answers when it is cancelled."""
    write(update(call, b"begun"))
    waiting.add(call)


def deaf(call: int) -> None:
    """Never answers, and lets others be served."""
    write(update(call, b"begun"))


def leaves_a_child(call: int) -> None:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        if os.fork() == 0:
            os.write(writing, b"!")
            hang()
        os._exit(0)
    os.read(reading, 1)
    write(result(call, b"a child is left"))


def leaves_a_child_and_exits(call: int) -> None:
    leaves_a_child(call)
    os._exit(0)


def closes_stdout(_: int) -> None:
    os.close(STDOUT)
    hang()


def closes_stdin(call: int) -> None:
    write(update(call, b"closing"))
    os.close(STDIN)
    write(result(call))
    hang()


def stops_reading(call: int) -> None:
    write(result(call))
    hang()


def stops_itself(_: int) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fills_threads(_: int) -> None:
    with contextlib.suppress(RuntimeError):
        forever(threading.Thread(target=hang, daemon=True).start)


def request_zero(call: int) -> None:
    write(ask_secret(call, 0))


def request_twice(call: int) -> None:
    write(ask_secret(call, 1) + ask_secret(call, 1))


def request_of_nobody(call: int) -> None:
    write(ask_secret(call + 1000, 1))


def request_after_result(call: int) -> None:
    write(result(call) + ask_secret(call, 1))


def asks_on_and_on(call: int) -> None:
    numbers = iter(range(1, 1 << 32))
    forever(lambda: write(b"".join(ask_secret(call, next(numbers), b"x" * 60) for _ in range(200))))


def asks_and_ends(call: int) -> None:
    """In one write, so that both are read at once."""
    write(frame(5, field(1, call) + field(2, 1) + field(3, b"GET") + field(9, b"x" * 20_000)) + result(call))


def asks_politely(call: int) -> None:
    """Reads each answer, and says what the last one was."""
    answers = []
    for number in range(1, 4):
        write(ask_secret(call, number))
        answer = read_frame()
        assert answer is not None
        ((kind, body),) = fields(answer)
        assert isinstance(body, bytes)
        answers.append((kind, dict(fields(body)).get(4, b"granted")))
    write(result(call, repr(answers).encode()))


waiting: set[int] = set()


def serve(calls: int = 0) -> None:
    while (data := read_frame()) is not None:
        for kind, body in fields(data):
            assert isinstance(body, bytes)
            said = dict(fields(body))
            if kind == 1:
                write(ready(calls=calls))
            elif kind == 2:
                call, tool = said[1], said[2]
                assert isinstance(call, int)
                assert isinstance(tool, bytes)
                globals()[tool.decode()](call)
            elif kind == 3 and said[1] in waiting:
                call = said[1]
                assert isinstance(call, int)
                waiting.discard(call)
                write(result(call, b"cancelled"))
            elif kind == 4:
                sys.exit(0)


def exits_at_start() -> None:
    write(b"Traceback: no module named moon\n", STDERR)
    os._exit(3)


def says(*frames: bytes) -> Callable[[], None]:
    def say() -> None:
        write(b"".join(frames))
        hang()

    return say


CASES: dict[str, Callable[[], None]] = {
    "serve": serve,
    "serve_two_at_a_time": lambda: serve(2),
    "exits_at_start": exits_at_start,
    "never_ready": hang,
    "other_version": says(ready(version=2)),
    "garbage_at_start": says(b"Hello, world!\n" * 10),
    "huge_frame_at_start": lambda: huge_frame(0),
    "result_before_ready": says(result(1)),
    "update_before_ready": says(update(1)),
    "log_before_ready": says(log(0, b"early")),
    "too_many_tools": says(frame(1, field(1, 1) + field(3, b"") * 1025)),
    "two_million_tools": says(frame(1, field(1, 1) + field(3, b"") * 2_000_000)),
    "two_million_capabilities": says(frame(1, field(1, 1) + field(3, field(8, b"") * 2_000_000))),
    "ready_twice": says(ready() + ready()),
    "prints_at_start": says(b"Hello, I am a plugin!\n"),
    "closes_stdout_at_start": lambda: closes_stdout(0),
    "stops_itself_at_start": lambda: stops_itself(0),
    "floods_at_start": lambda: stdout_flood_of_empty_frames(0),
}

CASES[sys.argv[1]]()
