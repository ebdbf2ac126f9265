"""Content blocks of results: text, bytes, and a whole result of both."""

from __future__ import annotations

from typing import Generic, TypeVar

Details = TypeVar("Details")


class Text:
    """A block of text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Keep the text."""
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Text({self.text!r})"


class Blob:
    """A block of bytes with a media type (RFC 6838), such as an image."""

    __slots__ = ("data", "media_type")

    def __init__(self, data: bytes, media_type: str = "application/octet-stream") -> None:
        """Keep the bytes, as they are and not base64, and their type."""
        self.data = data
        self.media_type = media_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and (other.data, other.media_type) == (self.data, self.media_type)

    def __hash__(self) -> int:
        return hash((self.data, self.media_type))

    def __repr__(self) -> str:
        return f"Blob({len(self.data)} bytes, {self.media_type!r})"


class Content(Generic[Details]):
    """A whole result: what is shown, the structured value, and a hint to stop.

    Annotate `-> Content` for blocks alone, or `-> Content[Roll]` for blocks and details whose schema is `Roll`'s.
    """

    __slots__ = ("blocks", "details", "terminate")

    def __init__(self, *blocks: Text | Blob | str, details: Details | None = None, terminate: bool = False) -> None:
        """Keep the result's parts.

        Args:
            blocks: What is shown, in order. A string is a `Text`.
            details: The structured value. None: there is none.
            terminate: Hint that the run may stop after this call.
        """
        self.blocks = tuple(Text(block) if isinstance(block, str) else block for block in blocks)
        self.details = details
        self.terminate = terminate

    def __repr__(self) -> str:
        return f"Content({', '.join(map(repr, self.blocks))}, details={self.details!r}, terminate={self.terminate})"
