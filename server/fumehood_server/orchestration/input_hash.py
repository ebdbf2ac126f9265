"""SHA-256 of what inferences ask, by which a recorded answer is known again: computed once, and long text in a thread.

It is that of one JSON document, with sorted keys: `{"grammar":…,"messages":[…],"schema":…}`. The document is hashed as
it is written, and never there as a whole; what many inferences of a run begin with is hashed for the first of them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fumehood_server.orchestration.engines.engine import InferenceRequest
from fumehood_server.orchestration.messages import Message, messages_to_json

INLINE_CHARS = 64 * 1024
"""That the event loop hashes itself: 3 ms of control characters, each of which is six bytes of JSON."""
PIECE_CHARS = 16 * 1024
"""That are written in one call of C, which keeps the interpreter's lock."""
_KEPT = 4
"""Beginnings of conversations: replicas ask the same, and a chat goes on from what it has asked."""


@dataclass(frozen=True, slots=True)
class _Hashed:
    """A conversation's beginning. The messages are kept, so that no others have their ids."""

    messages: Sequence[Message]
    state: Any
    """Of `hashlib`, to be copied."""


class InputHasher:
    """Of one run. For one event loop."""

    __slots__ = ("_beginnings", "_turn")

    def __init__(self) -> None:
        """Nothing was hashed."""
        self._beginnings: OrderedDict[tuple[str, tuple[int, ...]], _Hashed] = OrderedDict()
        self._turn = asyncio.Lock()

    async def hash_of(self, request: InferenceRequest) -> str:
        """Of what is asked, but for how and with which tools. One after the other: the next may begin as this one."""
        async with self._turn:
            messages, grammar = request.messages, request.grammar
            begun = self._begun(grammar, messages)
            rest = messages[len(begun.messages) :]
            if rest:
                is_long = sum(map(_chars, rest)) > INLINE_CHARS
                found = await asyncio.to_thread(_go_on, begun, rest) if is_long else _go_on(begun, rest)
                self._keep(grammar, _Hashed(messages[:-1], found[0]))
                begun = self._keep(grammar, _Hashed(messages, found[1]))
        state = begun.state.copy()
        schema = None
        if request.schema is not None:
            schema = orjson.dumps(request.schema, option=orjson.OPT_SORT_KEYS).decode()
        state.update(b'],"schema":' + orjson.dumps(schema) + b"}")
        return str(state.hexdigest())

    def _begun(self, grammar: str, messages: Sequence[Message]) -> _Hashed:
        """The longest beginning that is known."""
        ids = tuple(map(id, messages))
        known = [
            each for (of, begins), each in self._beginnings.items() if of == grammar and begins == ids[: len(begins)]
        ]
        return max(known, key=lambda each: len(each.messages), default=None) or _Hashed(
            (), hashlib.sha256(b'{"grammar":' + orjson.dumps(grammar) + b',"messages":[')
        )

    def _keep(self, grammar: str, hashed: _Hashed) -> _Hashed:
        key = grammar, tuple(map(id, hashed.messages))
        self._beginnings[key] = hashed
        self._beginnings.move_to_end(key)
        if len(self._beginnings) > _KEPT:
            self._beginnings.popitem(last=False)
        return hashed


def _go_on(begun: _Hashed, messages: Sequence[Message]) -> tuple[Any, Any]:
    """Its state after all further messages but the last, and after them all."""
    state = before_last = begun.state.copy()
    comma = b"," if begun.messages else b""
    for number, each in enumerate(messages, 1):
        if number == len(messages):
            before_last = state.copy()
        state.update(comma)
        for piece in _pieces(messages_to_json([each])[0]):
            state.update(piece)
        comma = b","
    return before_last, state


def _pieces(value: Any) -> Iterator[bytes]:  # noqa: ANN401 - any JSON value
    """What `orjson.dumps` gives with sorted keys, long texts in pieces."""
    if not value:
        yield orjson.dumps(value)
    elif isinstance(value, dict):
        before = b"{"
        for name in sorted(value):
            yield before + orjson.dumps(name) + b":"
            yield from _pieces(value[name])
            before = b","
        yield b"}"
    elif isinstance(value, list):
        before = b"["
        for each in value:
            yield before
            yield from _pieces(each)
            before = b","
        yield b"]"
    elif isinstance(value, str) and len(value) > PIECE_CHARS:
        yield b'"'
        for at in range(0, len(value), PIECE_CHARS):
            yield orjson.dumps(value[at : at + PIECE_CHARS])[1:-1]
        yield b'"'
    else:
        yield orjson.dumps(value)


def _chars(message: Message) -> int:
    return message.size + len(message.tool_use_id) + len(message.tool)
