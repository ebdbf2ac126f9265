"""The text that stands for a secret in arguments that are shown: what comes back with it is not what is to run."""

from __future__ import annotations

import json
from collections.abc import Iterable


def placeholder_in(document: str, secrets: Iterable[str]) -> str:
    """One that is in a JSON document, however its strings are escaped. Empty: none is."""
    if "\\" in document:  # a lone surrogate is JSON here
        document = json.dumps(json.loads(document), ensure_ascii=False)
    return next((text for text in map(_placeholder, secrets) if text in document), "")


def _placeholder(secret: str) -> str:
    return f"[secret {secret}]"


__all__ = ["placeholder_in"]
