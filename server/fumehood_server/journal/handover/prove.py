"""What a witness is shown: that the log has only grown."""

from __future__ import annotations

from collections.abc import Callable

Prove = Callable[[int, int], list[bytes]]
"""Given an older and a newer size: the proof that the log of the one is the beginning of that of the other.

Raises:
    StoreError: the journal can't be read.
    ValueError: it is shorter than that.
"""
