"""Search of a text for every form of the secrets at once (Aho-Corasick), in short steps."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Generator, Mapping, Sequence

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

SEARCHED_BYTES = 32 * 1024
"""Searched at once, in some 0.2 ms, or 1 ms where every eight bytes are a secret."""
STEP_MATCHES = 512
"""Replaced in one step, in some 0.3 ms."""
BEGINNING_BYTES = 256
"""Of a form that are looked for. What follows them in the text is taken out as far as it is as in the form.

So the automaton, and what adjacent steps both search, stay small however long a secret is: that of a secret of 48 KB
took 0.4 s to build, all of it with the interpreter's lock (GIL).
"""

_COMPARED_BYTES = 4096
_ESCAPE_SEARCHED_BYTES = 64
_ESCAPE_BEGUN = re.compile(rb"\\+(?:u[0-9A-Fa-f]{0,3})?$")


class FormSearch:
    """Replaces forms by masks. Immutable: it may be used by several threads at once."""

    __slots__ = ("_automaton", "_longer", "_masks", "longest_bytes")

    def __init__(self, masks: Mapping[bytes, bytes]) -> None:
        """`masks` has the mask of each form."""
        beginnings: dict[bytes, bytes] = {}
        longer: dict[bytes, list[bytes]] = {}
        for form, mask in masks.items():
            beginning = form[:BEGINNING_BYTES]
            beginnings[beginning] = mask
            if len(form) > BEGINNING_BYTES:
                longer.setdefault(beginning, []).append(form)
        # A DFA, which is chosen by itself for up to a hundred forms, takes a hundred times as long to build.
        self._automaton = BytesAhoCorasick(
            list(beginnings), matchkind=MatchKind.LeftmostLongest, implementation=Implementation.ContiguousNFA
        )
        self._masks = tuple(beginnings.values())
        self._longer = tuple(sorted(longer.get(each, ())) for each in beginnings)
        self.longest_bytes = max(map(len, beginnings), default=0)
        """Of what is looked for: where text is cut, this much beyond the cut must be searched first."""

    def replace(self, data: bytes) -> Generator[None, None, bytes]:
        """The bytes with the masks; the same object where there is nothing to replace. Yields between steps."""
        made, kept = list[bytes](), 0
        for at in range(0, len(data), SEARCHED_BYTES):
            if at:
                yield
            pieces = list[bytes]()
            window = data[at : at + SEARCHED_BYTES + self.longest_bytes]
            for count, (form, first, last) in enumerate(self._automaton.find_matches_as_indexes(window), 1):
                if count % STEP_MATCHES == 0:
                    yield
                if first >= SEARCHED_BYTES:  # the next step finds it
                    break
                if at + last > kept:
                    if at + first >= kept:
                        pieces += (data[kept : at + first], self._masks[form])
                    longer = self._longer[form]
                    kept = _end(data, at + first, at + last, longer) if longer else at + last
            if pieces:
                made.append(b"".join(pieces))
        if not kept:
            return data
        made.append(data[kept:])
        return b"".join(made)


def _end(data: bytes, start: int, end: int, forms: Sequence[bytes]) -> int:
    """Where that ends which begins at `start` and is as in one of the forms, sorted, which all agree up to `end`."""
    at = end - start
    while True:
        chunk = data[start + at : start + at + _COMPARED_BYTES]
        agreeing = [each for each in forms if each.startswith(chunk, at)] if chunk else []
        if not agreeing:
            break
        forms = agreeing
        at += len(chunk)
    # Of sorted ones, those beside a text have the longest beginning in common with it.
    place = bisect_left(forms, chunk, key=lambda each: each[at : at + _COMPARED_BYTES])
    beside = {forms[each] for each in (place - 1, place) if 0 <= each < len(forms)}
    agreed, form = max((_agreed(chunk, each[at : at + _COMPARED_BYTES]), each) for each in beside)
    at += agreed
    if at == len(form):
        return start + at
    # Only a part: no character and no JSON escape is cut into two, so that what is left is text and JSON as before.
    begun = _ESCAPE_BEGUN.search(data, start + max(0, at - _ESCAPE_SEARCHED_BYTES), start + at)
    if begun is not None and begun.start() > start:
        return begun.start()
    while start + at < len(data) and data[start + at] & 0xC0 == 0x80:  # noqa: PLR2004 - UTF-8's continuation bytes
        at += 1
    return start + at


def _agreed(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
