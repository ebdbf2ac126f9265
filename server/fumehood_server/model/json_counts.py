"""Counts what JSON holds without parsing it: parsers keep the interpreter for all of a text, however much it holds.

Bytes don't bound that: in 2 MB there is room for 700,000 empty arrays, which take half a second. Numbers and texts are
cheap beside arrays, objects and keys. It is for messages of MCP clients and for answers of engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAX_NODES = 10_000
"""Arrays, objects and keys on all levels together: 1 to 2 µs each on an ordinary machine, in the slowest shapes."""

MAX_VALUES = 100_000
"""Of any kind: as many numbers of ten characters as the largest arguments have room for. 0.1 to 0.2 µs each."""

TOO_MANY_NODES = f"more than {MAX_NODES:,} arrays, objects and keys together"
TOO_MANY_VALUES = f"more than {MAX_VALUES:,} values"

_PORTION_BYTES = 16 * 1024
"""Counted in 0.3 ms at most."""

_NODES, _COMMA = b"[{:", b","


def too_much_of(*parts: bytes) -> str:
    """What they hold more of together than JSON may, in words. Empty: they are within the bounds. See `counting`."""
    return next(filter(None, counting(parts)), "")


def counting(parts: Iterable[bytes]) -> Iterator[str]:
    """The same, told after each portion, so that others can have their turn.

    What stands in texts is not counted. A text ends with its part. Of what is no JSON, at least as much is counted as
    a parser reads.
    """
    parts = tuple(parts)
    raw = [_counted(each) for each in parts]
    if not _problem(sum(nodes for nodes, _ in raw), sum(commas for _, commas in raw)):  # whatever stands in texts
        return
    nodes = commas = 0
    for part in parts:
        if b"\0" in part:  # UTF-16 or UTF-32, whose other bytes mean other things. There is none in JSON of UTF-8.
            yield TOO_MANY_NODES
            return
        for portion in _outside_texts(part):
            more_nodes, more_commas = _counted(portion)
            nodes, commas = nodes + more_nodes, commas + more_commas
            problem = _problem(nodes, commas)
            yield problem
            if problem:
                return


def _outside_texts(data: bytes) -> Iterator[bytes]:
    """What stands outside of JSON's texts, portion by portion."""
    at, in_text = 0, False
    while at < len(data):
        end = at + _PORTION_BYTES
        portion = data[at:end]
        if (len(portion) - len(portion.rstrip(b"\\"))) % 2:  # an escape is not cut in two
            portion = data[at : end + 1]
        at += len(portion)
        pieces = portion.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b" ".join(pieces[in_text::2])
        in_text ^= len(pieces) % 2 == 0


def _counted(data: bytes) -> tuple[int, int]:
    return len(data) - len(data.translate(None, _NODES)), data.count(_COMMA)


def _problem(nodes: int, commas: int) -> str:
    if nodes > MAX_NODES:
        return TOO_MANY_NODES
    return TOO_MANY_VALUES if commas >= MAX_VALUES else ""
