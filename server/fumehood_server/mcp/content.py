"""Converts what a tool shows into content blocks of the Model Context Protocol, as they stand in JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from fumehood.v1 import content_pb2

Block = dict[str, Any]


def content_blocks(content: Iterable[content_pb2.Content], call_id: str) -> list[Block]:
    """One block for each. A blob that is neither image nor sound is an embedded resource."""
    return [_block(each, f"fumehood:{call_id}/{index}") for index, each in enumerate(content)]


def _block(content: content_pb2.Content, uri: str) -> Block:
    if content.WhichOneof("block") == "text":
        return {"type": "text", "text": content.text}
    blob = content.blob
    media_type = blob.media_type or "application/octet-stream"
    kind = media_type.partition("/")[0].lower()
    if kind in {"image", "audio"}:
        return {"type": kind, "data": base64.b64encode(blob.data).decode(), "mimeType": media_type}
    if kind == "text":
        try:
            return _resource(uri, media_type, text=blob.data.decode())
        except UnicodeDecodeError:
            pass
    return _resource(uri, media_type, blob=base64.b64encode(blob.data).decode())


def _resource(uri: str, media_type: str, **held: str) -> Block:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, **held}}
