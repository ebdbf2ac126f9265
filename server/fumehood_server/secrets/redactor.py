"""Redaction of secrets from the output of plugins.

This is against accidents: a request's headers in a traceback, a configuration in a log. A plugin that means to leak a
secret can write it backwards; grants bound whom it could send it to.
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

MIN_FORM = 8
"""Fewest characters of a form that is replaced. A shorter one would match in unrelated text."""
MAX_VALUES = 4
"""Values of one secret that are replaced: its last ones, where it was changed while the sidecar ran."""
MAX_LINES = 64
"""Lines of a value that are replaced one by one. A key has thirty; each costs a search of all the plugin's output."""


class Redactor:
    """Replaces the values that were handed out by `[secret NAME]`, in each form in which they are usually written.

    One for each plugin, since its processes can pass text to each other. Idle until a secret was handed out.
    """

    __slots__ = ("_bytes", "_forms", "_values", "active", "longest_bytes")

    def __init__(self) -> None:
        """Replace nothing yet."""
        self._values: dict[str, OrderedDict[bytes, None]] = {}
        self._forms: tuple[tuple[str, str], ...] = ()
        self._bytes: tuple[tuple[bytes, bytes], ...] = ()
        self.active = False
        """Whether there is anything to replace."""
        self.longest_bytes = 0
        """Size of the longest form: where text is cut, this much beyond the cut must be redacted first."""

    def learn(self, name: str, value: bytes) -> None:
        """Replace this value from now on."""
        values = self._values.setdefault(name, OrderedDict())
        if value in values:
            values.move_to_end(value)
            return
        values[value] = None
        while len(values) > MAX_VALUES:
            values.popitem(last=False)
        known = [(each, one) for each, kept in self._values.items() for one in kept]
        found = {form: f"[secret {each}]" for each, one in known for form in _forms(one)}
        # The longest first, since one form can hold another.
        self._forms = tuple(sorted(found.items(), key=lambda pair: -len(pair[0])))
        encoded = [(form.encode("utf-8", "surrogateescape"), mask.encode()) for form, mask in self._forms]
        encoded += [(one, f"[secret {each}]".encode()) for each, one in known]
        self._bytes = tuple(sorted(dict(encoded).items(), key=lambda pair: -len(pair[0])))
        self.active = True
        self.longest_bytes = max(len(form) for form, _ in self._bytes)

    def text(self, text: str) -> str:
        """The text without the secrets."""
        for form, mask in self._forms:
            # `in` searches a gigabyte a second; a regular expression of all forms takes a hundred times as long.
            if form in text:
                text = text.replace(form, mask)
        return text

    def data(self, data: bytes) -> bytes:
        """The bytes without the secrets."""
        for form, mask in self._bytes:
            if form in data:
                data = data.replace(form, mask)
        return data


def _forms(value: bytes) -> Iterator[str]:
    """The ways in which a value is usually written."""
    found = dict.fromkeys(_all_forms(value))
    yield from (form for form in found if len(form) >= MIN_FORM)


def _all_forms(value: bytes) -> Iterator[str]:
    text = value.decode("utf-8", "surrogateescape")
    yield text
    # A value of several lines, such as a key, is logged line by line.
    yield from (line.strip() for line in text.splitlines()[:MAX_LINES])
    shown = value.decode("utf-8", "backslashreplace")
    for quoted in (json.dumps(shown), json.dumps(shown, ensure_ascii=False)):
        yield quoted[1:-1]
        yield quoted[1:-1].replace("/", "\\/")
    yield repr(shown)[1:-1]
    yield repr(value)[2:-1]
    yield quote(value, safe="")
    yield quote(value)
    yield quote_plus(value)
    yield value.hex()
    yield from _base64(value)


def _base64(value: bytes) -> Iterator[str]:
    """The value encoded by itself, and within something longer, such as `user:value`: at each of three places.

    Characters that depend on what comes before or after are left out.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(value).decode()
        yield encode(value).decode().rstrip("=")
        for before in range(3):
            whole = encode(bytes(before) + value).decode().rstrip("=")
            first = (before * 8 + 5) // 6
            last = (before + len(value)) * 8 // 6
            yield whole[first:last]
