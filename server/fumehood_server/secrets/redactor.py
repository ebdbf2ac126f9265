"""Redaction of secrets from the output of plugins.

This is against accidents: a request's headers in a traceback, a configuration in a log. A plugin that means to leak a
secret can write it backwards; grants bound whom it could send it to.
"""

from __future__ import annotations

import base64
import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import product
from urllib.parse import quote, quote_plus

from ahocorasick_rs import AhoCorasick, BytesAhoCorasick, MatchKind

MIN_FORM = 8
"""Fewest characters of a form that is replaced. A shorter one would match in unrelated text."""
MAX_VALUES = 4
"""Values of one secret that are replaced: its last ones, where it was changed while the sidecar ran."""
MAX_LINES = 64
"""Lines of a value that are replaced one by one. A key has thirty; each costs a search of all the plugin's output."""


class Redactor:
    """Replaces the values that were handed out by `[secret NAME]`, in each form in which they are usually written.

    One for each plugin, since its processes can pass text to each other. Idle until a secret was handed out. Takes one
    pass over a text, however many forms there are (Aho-Corasick): what a plugin says is as long as it likes.
    """

    __slots__ = ("_bytes", "_bytes_masks", "_in_json", "_text", "_text_masks", "_values", "active", "longest_bytes")

    def __init__(self, *, in_json: bool = False) -> None:
        """Replace nothing yet. `in_json`: each form also as it stands in a JSON string, and in one within another."""
        self._in_json = in_json
        self._values: dict[str, OrderedDict[bytes, tuple[str, ...]]] = {}
        """Of each secret, its values with their forms."""
        self._text = AhoCorasick([])
        self._text_masks: tuple[str, ...] = ()
        self._bytes = BytesAhoCorasick([])
        self._bytes_masks: tuple[bytes, ...] = ()
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
        found = [form for form in dict.fromkeys(_all_forms(value)) if len(form) >= MIN_FORM]
        values[value] = tuple(dict.fromkeys((*found, *_nested(found)))) if self._in_json else tuple(found)
        while len(values) > MAX_VALUES:
            values.popitem(last=False)
        forms, encoded = dict[str, str](), dict[bytes, bytes]()
        for each, known in self._values.items():
            mask = f"[secret {each}]"
            for one, its_forms in known.items():
                encoded[one] = mask.encode()
                for form in its_forms:
                    encoded[form.encode("utf-8", "surrogateescape")] = mask.encode()
                    if _is_unicode(form):
                        forms[form] = mask
        self._text = AhoCorasick(list(forms), matchkind=MatchKind.LeftmostLongest)
        self._text_masks = tuple(forms.values())
        self._bytes = BytesAhoCorasick(list(encoded), matchkind=MatchKind.LeftmostLongest)
        self._bytes_masks = tuple(encoded.values())
        self.active = True
        self.longest_bytes = max(map(len, encoded))

    def text(self, text: str) -> str:
        """The text without the secrets."""
        if not _is_unicode(text):  # such as a file's name that is not UTF-8
            data = text.encode("utf-8", "surrogatepass")
            return self.data(data).decode("utf-8", "surrogatepass")
        pieces, at = list[str](), 0
        for form, start, end in self._text.find_matches_as_indexes(text):
            pieces += (text[at:start], self._text_masks[form])
            at = end
        return "".join((*pieces, text[at:])) if pieces else text

    def data(self, data: bytes) -> bytes:
        """The bytes without the secrets."""
        pieces, at = list[bytes](), 0
        for form, start, end in self._bytes.find_matches_as_indexes(data):
            pieces += (data[at:start], self._bytes_masks[form])
            at = end
        return b"".join((*pieces, data[at:])) if pieces else data


def _is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _all_forms(value: bytes) -> Iterator[str]:
    text = value.decode("utf-8", "surrogateescape")
    yield text
    # A value of several lines, such as a key, is logged line by line.
    yield from (line.strip() for line in text.splitlines()[:MAX_LINES])
    shown = value.decode("utf-8", "backslashreplace")
    yield from _json_strings(shown)
    yield repr(shown)[1:-1]
    yield repr(value)[2:-1]
    yield from _percent(value)
    yield from _entities(shown)
    yield value.hex()
    yield value.hex().upper()
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


# Go, Rails and PHP escape what HTML would read; .NET these and more; some everything.
_JSON_ESCAPED = ("", "&<>", "&<>'", "&<>'\"", "&<>'\"+`")
_JSON_ESCAPE = re.compile(r"\\u[0-9a-f]{4}")


def _json_strings(text: str) -> Iterator[str]:
    r"""The insides of JSON strings: ASCII alone or not, more or less escaped, `\u002F` in either case, `\/` or `/`."""
    for quoted, escaped in product((json.dumps(text), json.dumps(text, ensure_ascii=False)), _JSON_ESCAPED):
        for digits in ("04x", "04X"):  # PHP has its own upper case beside the lower of other escapes
            form = quoted[1:-1]
            for character in escaped:
                form = form.replace('\\"' if character == '"' else character, f"\\u{ord(character):{digits}}")
            for one in (form, form.replace("/", "\\/")):
                yield one
                yield _JSON_ESCAPE.sub(lambda match: "\\u" + match.group()[2:].upper(), one)


def _nested(forms: Sequence[str]) -> Iterator[str]:
    """The insides of JSON strings that hold these, and of those that hold such JSON."""
    for form in filter(_is_unicode, forms):
        for ascii_alone in (True, False):
            once = json.dumps(form, ensure_ascii=ascii_alone)
            yield once[1:-1]
            for again in (True, False):
                # Without its quotes: what stands beside the form in the inner string is not known.
                yield json.dumps(once[1:-1], ensure_ascii=again)[1:-1]


# What is left alone: nothing, as encodeURIComponent does, as encodeURI does, as Python does in paths, as Java does.
_PERCENT_SAFE = ("", "!'()*", "!'()*;,/?:@&=+$#", "/", "*")
_PERCENT_ESCAPE = re.compile(r"%[0-9A-F]{2}")


def _percent(value: bytes) -> Iterator[str]:
    """In URLs (RFC 3986) and forms, with escapes in either case."""
    for safe in _PERCENT_SAFE:
        for form in (quote(value, safe=safe), quote_plus(value, safe=safe)):
            for one in (form, form.replace("~", "%7E")):
                yield one
                yield _PERCENT_ESCAPE.sub(lambda match: match.group().lower(), one)


# `"`, `'` and others as Python, Go and Jinja, lodash, PHP, XML, OWASP's encoders and Handlebars write them.
_ENTITIES: tuple[dict[str, str], ...] = (
    {},
    {'"': "&quot;", "'": "&#x27;"},
    {'"': "&#34;", "'": "&#39;"},
    {'"': "&#34;", "'": "&#39;", "+": "&#43;"},
    {'"': "&quot;", "'": "&#39;"},
    {'"': "&quot;", "'": "&#039;"},
    {'"': "&quot;", "'": "&apos;"},
    {'"': "&quot;", "'": "&#x27;", "/": "&#x2F;"},
    {'"': "&quot;", "'": "&#x27;", "`": "&#x60;", "=": "&#x3D;"},
)


def _entities(text: str) -> Iterator[str]:
    """In HTML and XML, with named and numbered character references."""
    for entities in _ENTITIES:
        named: dict[str, str | int | None] = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **entities}
        form = text.translate(str.maketrans(named))
        yield form
        yield form.encode("ascii", "xmlcharrefreplace").decode()
    yield "".join(each if each.isalnum() else f"&#{ord(each)};" for each in text)
    for digits in ("x", "X"):
        numbers = (format(ord(each), digits) for each in text)
        yield "".join(each if each.isalnum() else f"&#x{code};" for each, code in zip(text, numbers, strict=True))
