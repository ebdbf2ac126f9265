"""What every contender carries."""

from __future__ import annotations

TEXT = ("Fumehood carries these words there and back. " * 6)[:256]
"""256 bytes of plain ASCII, so that characters and bytes are the same and JSON escapes nothing."""
