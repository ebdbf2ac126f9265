"""Recognises which of an enumeration's values a model named: `Yes.` is "yes"."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_AROUND = "\"'`*_()[]\u201c\u201d\u201e\u2018\u2019«»"
"""Quotes, brackets and Markdown's emphasis."""
_AFTER = ".,;:!?…"
_MAX_MORE_CHARS = 64
"""A text that is so much longer than every value names none."""


def recognise(text: str, choices: Sequence[str]) -> str | None:
    """The one value that a text is, but for case, white space, quotes around it and punctuation after it.

    None: it is none of them, or may be several. Nothing is guessed from a sentence: "not yes" holds a "yes" too.
    """
    if text in choices:
        return text
    if len(text) > max(map(len, choices), default=0) + _MAX_MORE_CHARS:
        return None
    meant = _plain(text)
    found = {choice for choice in choices if meant and _plain(choice) == meant}
    return found.pop() if len(found) == 1 else None


def _plain(text: str) -> str:
    text = " ".join(unicodedata.normalize("NFKC", text).split()).casefold()
    while (shorter := text.rstrip(_AFTER).strip(_AROUND).strip()) != text:
        text = shorter
    return text
