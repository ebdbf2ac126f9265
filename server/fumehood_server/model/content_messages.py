"""Blocks of content to and from the protocol's `Content`, for both wires, within the bounds of content.proto."""

from __future__ import annotations

from fumehood.v1 import content_pb2

from fumehood_server.model.call import Annotations, Block

MAX_URI_CHARACTERS = 8192
"""`Content.resource_uri`."""

MAX_MEDIA_TYPE_CHARACTERS = 255
"""`Blob.media_type` and `Content.text_media_type`: RFC 6838 has no longer ones. The cap on results doesn't count it."""

MAX_TIME_CHARACTERS = 64
"""`ContentAnnotations.last_modified`."""

ROLES = ("user", "assistant")
"""Of `ContentAnnotations.audience`."""


def read_block(message: content_pb2.Content) -> Block | None:
    """A block by somebody else's word, what is out of bounds cut or left out. None: there is nothing in it."""
    text = message.text
    # Asking which one it is takes longer than all the rest.
    kind = "text" if text else message.WhichOneof("block")
    if kind is None:
        return None
    uri = message.resource_uri
    if uri and not _is_printable(uri, MAX_URI_CHARACTERS):
        uri = ""
    annotations = _annotations(message.annotations) if message.HasField("annotations") else None
    if kind == "text":
        return Block(
            text=text,
            media_type=message.text_media_type[:MAX_MEDIA_TYPE_CHARACTERS],
            resource_uri=uri,
            annotations=annotations,
        )
    blob = message.blob
    return Block(
        data=blob.data,
        media_type=blob.media_type[:MAX_MEDIA_TYPE_CHARACTERS] or "application/octet-stream",
        resource_uri=uri,
        annotations=annotations,
    )


def fill_block(into: content_pb2.Content, block: Block) -> None:
    """Fill in an empty message."""
    if block.data is not None:
        into.blob.data = block.data
        into.blob.media_type = block.media_type
    else:
        into.text = block.text or ""
        if block.media_type:
            into.text_media_type = block.media_type
    if block.resource_uri:
        into.resource_uri = block.resource_uri
    annotations = block.annotations
    if annotations is not None:
        into.annotations.audience.extend(annotations.audience)
        if annotations.priority is not None:
            into.annotations.priority = annotations.priority
        into.annotations.last_modified = annotations.last_modified


def _annotations(message: content_pb2.ContentAnnotations) -> Annotations | None:
    said = frozenset(message.audience)
    priority = message.priority if message.HasField("priority") and 0 <= message.priority <= 1 else None
    modified = message.last_modified if _is_printable(message.last_modified, MAX_TIME_CHARACTERS) else ""
    audience = tuple(each for each in ROLES if each in said)
    return Annotations(audience, priority, modified) if audience or modified or priority is not None else None


def _is_printable(text: str, most: int) -> bool:
    return len(text) <= most and text.isprintable()


__all__ = [
    "MAX_MEDIA_TYPE_CHARACTERS",
    "MAX_TIME_CHARACTERS",
    "MAX_URI_CHARACTERS",
    "ROLES",
    "fill_block",
    "read_block",
]
