"""Forms in which a secret is usually written: itself, in JSON, JSON within JSON, URLs, HTML, hexadecimal and base64."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from itertools import product
from urllib.parse import quote, quote_plus

MIN_FORM = 8
"""Fewest characters of a form that is replaced. A shorter one would match in unrelated text."""
MAX_LINES = 64
"""Lines of a value that are replaced one by one. A key has thirty."""
MAX_FORM_BYTES = 4 * 1024 * 1024
"""That the forms of one value may have together. A key of 3 KiB takes 100 KiB, one full of signs 2 MiB."""
_BEGINNING = 1023
"""Bytes of a value over that, of which the forms are known that don't fit. A multiple of three, for base64."""


def forms_of(value: bytes) -> tuple[bytes, ...]:
    """Every form, as it stands in bytes. Of a value whose forms have over `MAX_FORM_BYTES`, some by their beginning.

    Takes up to some 100 ms for the largest secret, in short steps of Python: not for the event loop.
    """
    found = {value: None}
    left = MAX_FORM_BYTES
    for form in _every(value):
        data = form.encode("utf-8", "surrogateescape")
        if data in found or len(form) < MIN_FORM:
            continue
        left -= len(data)
        if left < 0:
            break
        found[data] = None
    else:
        return tuple(found)
    for form in _every(value[:_BEGINNING]):
        found.setdefault(form.encode("utf-8", "surrogateescape"))
    return tuple(each for each in found if each is value or len(each) >= MIN_FORM)


def _every(value: bytes) -> Iterator[str]:
    yield from _nested([value.decode("utf-8", "surrogateescape")])
    seen = dict[str, None]()
    for form in _written(value):
        if form not in seen:
            seen[form] = None
            yield form
    yield from _nested(seen)


def _is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _written(value: bytes) -> Iterator[str]:
    """The forms outside of JSON within JSON, the likeliest ones first."""
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


def _nested(forms: Iterable[str]) -> Iterator[str]:
    """The insides of JSON strings that hold these, and of those that hold such JSON, as Python and as Go write them."""
    for form in filter(_is_unicode, forms):
        for once in _json_insides(form):
            yield once
            yield from _json_insides(once)


def _json_insides(text: str) -> Iterator[str]:
    # Without quotes: what stands beside the form in the inner string is not known.
    for ascii_alone in (True, False):
        inside = json.dumps(text, ensure_ascii=ascii_alone)[1:-1]
        yield inside
        yield inside.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


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
