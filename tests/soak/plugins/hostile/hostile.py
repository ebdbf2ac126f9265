"""A plugin that speaks the wire by hand. Each tool is one attack on whoever reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes((number,))


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(kind: int, body: bytes) -> bytes:
    payload = field(kind, body)
    return varint(len(payload)) + payload


def take(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return number, at


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


def write(data: bytes, fd: int = 1) -> None:
    while data:
        data = data[os.write(fd, data) :]


def read_frame() -> bytes | None:
    length = shift = 0
    while True:
        byte = os.read(0, 1)
        if not byte:
            return None
        length |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
    data = b""
    while len(data) < length:
        data += os.read(0, length - len(data))
    return data


def result(call: int, more: bytes = b"") -> bytes:
    return frame(4, field(1, call) + more)


def empty_headers(call: int) -> None:
    write(frame(5, field(1, call) + field(2, 1) + field(5, b"") * 2_000_000))


def empty_blocks(call: int) -> None:
    write(frame(4, field(1, call) + field(2, b"") * 2_000_000))


def many_fields(call: int) -> None:
    """As many as are allowed, again and again."""
    write(frame(3, field(1, call) + field(9, b"") * 8000 + field(3, b"x" * 60_000)) * 500 + result(call))


def keys_twice(call: int) -> None:
    keys = b",".join(b'"%d":0' % number for number in range(60_000))
    write(result(call, field(3, b"{" + keys + b',"59999":0}')))


def controls(call: int) -> None:
    line = frame(3, field(1, call) + field(2, 2) + field(3, bytes(8192)))
    write(line * 1000 + result(call))


def short_lines(call: int) -> None:
    write(b"x\n" * 500_000, 2)
    write(result(call))


def updates(call: int) -> None:
    write(frame(2, field(1, call) + field(2, b"on")) * 90_000 + result(call))


def questions(call: int) -> None:
    """As many as are taken, each as long as one may be, and no answer read."""
    properties = b",".join(b'"colour-%d":{"type":"string","enum":["red","blue"]}' % number for number in range(280))
    schema = b'{"type":"object","properties":{' + properties + b"}}"
    for number in range(1, 1001):
        write(frame(8, field(1, call) + field(2, number) + field(3, b"?" * 8000) + field(4, schema)))
    write(result(call))


def costly_patterns(call: int) -> None:
    """Questions whose patterns are short and take long to build, and one that is no trouble."""
    for number in range(1, 61):
        patterns = b",".join(b'"p%d":{"pattern":"\\\\pL{%d}"}' % (each, 180 + each + number) for each in range(60))
        schema = b'{"type":"object","properties":{' + (b"" if number == 60 else patterns) + b"}}"
        write(frame(8, field(1, call) + field(2, number) + field(3, b"Which?") + field(4, schema)))
    write(result(call))


def refs(call: int) -> None:
    write(result(call))


def serve() -> None:
    while (data := read_frame()) is not None:
        for kind, body in fields(data):
            said = dict(fields(body)) if isinstance(body, bytes) else {}
            if kind == 1:
                write(frame(1, field(1, 1)))
            elif kind == 2:
                call, tool = said[1], said[2]
                if isinstance(call, int) and isinstance(tool, bytes):
                    globals()[tool.decode()](call)
            elif kind == 4:
                return


if __name__ == "__main__":
    serve()
