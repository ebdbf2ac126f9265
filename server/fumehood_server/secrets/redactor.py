"""Redaction of secrets from the output of plugins.

This is against accidents: a request's headers in a traceback, a configuration in a log. A plugin that means to leak a
secret can write it backwards; grants bound whom it could send it to.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Generator
from typing import TypeVar

from fumehood_server.secrets.forms import forms_of
from fumehood_server.secrets.search import FormSearch

MAX_VALUES = 4
"""Values of one secret that are replaced: its last ones, where it was changed while the sidecar ran."""
STEP_CHARS = 256 * 1024
"""Characters that are encoded or decoded in one step."""
INLINE_CHARS = 16 * 1024
"""Characters or bytes that are redacted on the event loop, in under 2 ms where all of them are secrets."""
UNPAUSED = 64 * 1024
"""Characters or bytes up to which a thread does not pause: they may be redacted on the event loop as well."""
PAUSE_S = 0.0001
"""In which another thread takes the interpreter's lock. Without one it gets it after 5 ms, for each system call."""

_T = TypeVar("_T")


class Redactor:
    """Replaces the values that were handed out by `[secret NAME]`, in each form in which they are usually written.

    One for each plugin, since its processes can pass text to each other. Idle until a secret was handed out. Takes
    linear time, in one pass over a text however many forms there are: what a plugin says is as long as it likes. On the
    event loop, long text is for `text_in_steps`.
    """

    __slots__ = ("_learning", "_search", "_values", "active")

    def __init__(self) -> None:
        """Replace nothing yet."""
        self._values: dict[str, OrderedDict[bytes, tuple[bytes, ...]]] = {}
        """Of each secret, its values with their forms."""
        self._learning = threading.Lock()
        self._search = FormSearch({})
        self.active = False
        """Whether there is anything to replace."""

    @property
    def longest_bytes(self) -> int:
        """Where text is cut, this much beyond the cut must be redacted first."""
        return self._search.longest_bytes

    async def learn_beside(self, name: str, value: bytes) -> None:
        """As `learn`, in a thread, for the event loop. Hand the value out when this has returned, and not before."""
        known = self._values.get(name)
        if known is None or next(reversed(known)) != value:
            await asyncio.to_thread(self.learn, name, value)

    def learn(self, name: str, value: bytes) -> None:
        """Replace this value from now on. Takes up to 0.1 s for a large one. Any thread may call it."""
        with self._learning:
            values = OrderedDict(self._values.get(name, {}))
            if value in values:
                values.move_to_end(value)
                self._values[name] = values
                return
            values[value] = forms_of(value)
            while len(values) > MAX_VALUES:
                values.popitem(last=False)
            masks = dict[bytes, bytes]()
            for each, known in {**self._values, name: values}.items():
                for forms in known.values():
                    masks |= dict.fromkeys(forms, f"[secret {each}]".encode())
            self._search = FormSearch(masks)
            self.active = True
            self._values[name] = values  # last: `learn_beside` hands out what it finds here

    def text(self, text: str) -> str:
        """The text without the secrets; the same object where there are none."""
        return run_steps(self.text_in_steps(text))

    def data(self, data: bytes) -> bytes:
        """The bytes without the secrets; the same object where there are none."""
        return run_steps(self.data_in_steps(data))

    async def data_beside(self, data: bytes) -> bytes:
        """As `data`, for the event loop: long ones in a thread."""
        return self.data(data) if len(data) <= INLINE_CHARS else await asyncio.to_thread(self.data_in_thread, data)

    async def text_beside(self, text: str) -> str:
        """As `text`, for the event loop: long text in a thread."""
        return self.text(text) if len(text) <= INLINE_CHARS else await asyncio.to_thread(self.text_in_thread, text)

    def text_in_thread(self, text: str) -> str:
        """As `text`, for a thread beside the event loop, which long text lets in between steps."""
        return run_steps(self.text_in_steps(text), pause_s=PAUSE_S if len(text) > UNPAUSED else 0.0)

    def data_in_thread(self, data: bytes) -> bytes:
        """As `data`, likewise."""
        return run_steps(self.data_in_steps(data), pause_s=PAUSE_S if len(data) > UNPAUSED else 0.0)

    def text_in_steps(self, text: str) -> Generator[None, None, str]:
        """As `text`, as a generator that returns it: each step takes a few milliseconds at most."""
        if not self.active or not text:
            return text
        encoded = list[bytes]()
        for at in range(0, len(text), STEP_CHARS):
            if at:
                yield
            # Lone surrogates, as of a file's name that is not UTF-8, stay what they are.
            encoded.append(text[at : at + STEP_CHARS].encode("utf-8", "surrogatepass"))
        data = b"".join(encoded)
        found = yield from self.data_in_steps(data)
        return text if found is data else (yield from _decoded(found))

    def data_in_steps(self, data: bytes) -> Generator[None, None, bytes]:
        """As `data`, likewise."""
        return self._search.replace(data)


def _decoded(data: bytes) -> Generator[None, None, str]:
    pieces, at = list[str](), 0
    while at < len(data):
        end = at + STEP_CHARS
        while end < len(data) and data[end] & 0xC0 == 0x80:  # noqa: PLR2004 - within a character of UTF-8
            end += 1
        try:
            pieces.append(data[at:end].decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:  # a secret that is no text was a part of characters
            pieces.append(data[at:end].decode("utf-8", "replace"))
        at = end
        yield
    return "".join(pieces)


def run_steps(steps: Generator[None, None, _T], *, pause_s: float = 0.0) -> _T:
    """What a generator returns, after a pause between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            value: _T = stop.value
            return value
        if pause_s:
            time.sleep(pause_s)
