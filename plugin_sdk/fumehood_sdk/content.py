"""Content blocks of results: text, bytes, and a whole result of both."""

from __future__ import annotations

from typing import Generic, TypeVar

from fumehood_sdk.wire.plugin_frames import Annotations

Details = TypeVar("Details")


class Text:
    """A block of text."""

    __slots__ = ("annotations", "media_type", "resource_uri", "text")

    def __init__(
        self, text: str, *, media_type: str = "", resource_uri: str = "", annotations: Annotations | None = None
    ) -> None:
        """Keep the text, and what is said of it.

        Args:
            text: The text.
            media_type: Such as "text/markdown". Empty: nothing is said.
            resource_uri: Of the resource that it is the contents of. Empty: of none.
            annotations: For whom it is and how important.
        """
        self.text = text
        self.media_type = media_type
        self.resource_uri = resource_uri
        self.annotations = annotations

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.text, self.media_type, self.resource_uri, self.annotations

    def __repr__(self) -> str:
        return f"Text({self.text!r})"


class Blob:
    """A block of bytes with a media type (RFC 6838), such as an image."""

    __slots__ = ("annotations", "data", "media_type", "resource_uri")

    def __init__(
        self,
        data: bytes,
        media_type: str = "application/octet-stream",
        *,
        resource_uri: str = "",
        annotations: Annotations | None = None,
    ) -> None:
        """Keep the bytes, as they are and not base64, their type, and what is said of them.

        Args:
            data: The bytes.
            media_type: Such as "image/png".
            resource_uri: Of the resource that they are the contents of. Empty: of none.
            annotations: For whom they are and how important.
        """
        self.data = data
        self.media_type = media_type
        self.resource_uri = resource_uri
        self.annotations = annotations

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.data, self.media_type, self.resource_uri, self.annotations

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


__all__ = ["Annotations", "Blob", "Content", "Text"]
