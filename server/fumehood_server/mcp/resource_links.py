"""Reads links to resources out of the JSON in which they are passed on: `resource_link`, by a plugin's own word."""

from __future__ import annotations

from typing import Any

import orjson

from fumehood_server.model.json_depth import is_deeper

LINK_TYPE = "application/vnd.modelcontextprotocol.resource-link+json"
"""Media type of a blob that is a link (content.proto)."""

MAX_DEPTH = 32
"""Of `_meta` and `icons`: clients' readers recurse."""

_TEXTS = ("title", "description", "mimeType")
_ICON_TEXTS = ("mimeType", "theme")
_THEMES = ("light", "dark")
_MAX_SIZE = 2**53 - 1
"""The largest whole number that every reader of JSON keeps (RFC 8259)."""

Json = dict[str, Any]


def resource_link(data: bytes, uri: str) -> Json | None:
    """The content block, under this URI. None: it is no link.

    A field that is not what the protocol has is left out: clients refuse a whole result for one.
    """
    try:
        told = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(told, dict):
        return None
    name, size, meta = told.get("name"), told.get("size"), told.get("_meta")
    link: Json = {"type": "resource_link", "uri": uri, "name": name if isinstance(name, str) else uri}
    link |= _said(told, _TEXTS)
    if type(size) is int and 0 <= size <= _MAX_SIZE:
        link["size"] = size
    icons = told.get("icons")
    if isinstance(icons, list) and (found := [icon for each in icons if (icon := _icon(each)) is not None]):
        link["icons"] = found
    if isinstance(meta, dict) and not is_deeper(meta, MAX_DEPTH):
        link["_meta"] = meta
    return link


def _icon(told: object) -> Json | None:
    if not isinstance(told, dict) or not isinstance(told.get("src"), str):
        return None
    icon: Json = {"src": told["src"], **_said(told, _ICON_TEXTS)}
    if icon.get("theme") not in _THEMES:
        icon.pop("theme", None)
    sizes = told.get("sizes")
    if isinstance(sizes, list) and all(isinstance(each, str) for each in sizes):
        icon["sizes"] = sizes
    return icon


def _said(told: Json, keys: tuple[str, ...]) -> Json:
    return {key: told[key] for key in keys if isinstance(told.get(key), str)}


__all__ = ["LINK_TYPE", "MAX_DEPTH", "resource_link"]
