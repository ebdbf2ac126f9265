"""Converts what a tool shows into content blocks of the Model Context Protocol, as they stand in JSON.

Resources are named as the door names them: what a block says is its plugin's word, and is told under its plugin's name.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from fumehood.v1 import content_pb2

from fumehood_server.mcp.names import resource_uri
from fumehood_server.mcp.resource_links import LINK_TYPE, resource_link

Block = dict[str, Any]


def content_blocks(
    content: Iterable[content_pb2.Content], call_id: str, plugin: str, *, links: bool = True
) -> list[Block]:
    """One block for each of a call of a tool of `plugin`.

    What is of a resource is a link to it or has it embedded; a blob that neither is nor is image or sound is embedded
    under a URI of its own, which can't be read. `links`: whether the client knows links; else they are such blobs.
    """
    return [_block(each, f"fumehood:{call_id}/{index}", plugin, links=links) for index, each in enumerate(content)]


def _block(content: content_pb2.Content, own_uri: str, plugin: str, *, links: bool) -> Block:
    block = _held(content, own_uri, plugin, links=links)
    if content.HasField("annotations"):
        block["annotations"] = annotations_json(content.annotations)
    return block


def _held(content: content_pb2.Content, own_uri: str, plugin: str, *, links: bool) -> Block:
    uri = resource_uri(plugin, content.resource_uri) if content.resource_uri else ""
    if content.WhichOneof("block") == "text":
        if uri:
            return _resource(uri, content.text_media_type, text=content.text)
        return {"type": "text", "text": content.text}
    media_type = content.blob.media_type or "application/octet-stream"
    if uri and media_type == LINK_TYPE:
        link = resource_link(content.blob.data, uri) if links else None
        # What is told as no link is not what that resource holds either.
        return link or _blob(content.blob.data, media_type, own_uri)
    if uri:
        return _resource(uri, media_type, blob=base64.b64encode(content.blob.data).decode())
    return _blob(content.blob.data, media_type, own_uri)


def _blob(data: bytes, media_type: str, own_uri: str) -> Block:
    kind = media_type.partition("/")[0].lower()
    if kind in {"image", "audio"}:
        return {"type": kind, "data": base64.b64encode(data).decode(), "mimeType": media_type}
    if kind == "text":
        try:
            return _resource(own_uri, media_type, text=data.decode())
        except UnicodeDecodeError:
            pass
    return _resource(own_uri, media_type, blob=base64.b64encode(data).decode())


def _resource(uri: str, media_type: str, **held: str) -> Block:
    said = {"mimeType": media_type} if media_type else {}
    return {"type": "resource", "resource": {"uri": uri, **said, **held}}


def annotations_json(said: content_pb2.ContentAnnotations) -> Block:
    """Annotations as MCP has them."""
    made: Block = {}
    if said.audience:
        made["audience"] = list(said.audience)
    if said.HasField("priority"):
        made["priority"] = said.priority
    if said.last_modified:
        made["lastModified"] = said.last_modified
    return made
