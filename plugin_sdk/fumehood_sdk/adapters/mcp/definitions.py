"""Turns the tools that an MCP server lists into `ToolDefinition`s: names, schemas, and levels by their annotations."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fumehood_sdk.adapters.mcp.faults import ServerFault
from fumehood_sdk.adapters.mcp.schema_drafts import to_2020_12
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire import varint
from fumehood_sdk.wire.fields import bytes_field, number_field, optional_bytes_field, skip_field, text_field

READ, WRITE, EXTERNAL = 2, 3, 4
"""Levels by their numbers in `SideEffects`."""
TASK_REQUIRED = "taskRequired: true"
"""Claim of a tool that its server runs as a task alone (`execution.taskSupport` of 2025-11-25), which no call here is.
"""
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
MAX_TITLE_CHARACTERS = 128
MAX_DESCRIPTION_CHARACTERS = 8192
MAX_NAME_CHARACTERS = 64
DIGEST_CHARACTERS = 8
"""Of the suffix of a name that another tool of the server's would have, too."""
_TOO_DEEP = b"[" * 100 + b"]" * 100
"""Stands for a schema that is nested too deeply to be written, and is itself for the sidecar."""
_FIELDS = {2: "title", 3: "description", 4: "input schema", 5: "output schema", 6: "side effects", 15: "claims"}
"""Names of the fields that are encoded here."""


def encode_definitions(tools: Sequence[Mapping[str, Any]], server: str) -> dict[str, tuple[str, bytes]]:
    """By the name that callers know a tool by: its name at the server, and its encoded definition.

    A schema that is wrong is passed on: the sidecar says what of it isn't taken, and serves the other tools.

    Raises:
        ServerFault: a tool has no name, or another one's.
    """
    names = tool_names([_name_at_server(tool) for tool in tools])
    by_name = zip(names, tools, strict=True)
    return {name: (tool["name"], _encode(name, tool, server)) for name, tool in by_name}


def _name_at_server(tool: Mapping[str, Any]) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise ServerFault("the MCP server lists a tool without a name")
    return name


def tool_names(theirs: Sequence[str]) -> list[str]:
    """A server's names for its tools as names here, in the same order.

    Of those that come to one name, the one that is that name keeps it, and each other one gets a digest of its own name
    as suffix. Neither their order nor what is listed beside them later changes that.

    Raises:
        ServerFault: two are the same.
    """
    plain = [tool_name(each) for each in theirs]
    shared = {name for name, count in Counter(plain).items() if count > 1}
    names = [
        _distinguished(name, each) if name in shared and name != each else name
        for name, each in zip(plain, theirs, strict=True)
    ]
    found: dict[str, str] = {}
    for name, each in zip(names, theirs, strict=True):
        if name in found:
            what = (
                f"the tools {found[name]!r} and {each!r}, which are" if found[name] != each else f"two tools {each!r},"
            )
            raise ServerFault(f"the MCP server has {what} both {name} here: the server has to rename one of them")
        found[name] = each
    return names


def _distinguished(name: str, theirs: str) -> str:
    from hashlib import sha256  # noqa: PLC0415 - most servers need none, and it takes milliseconds to import

    digest = sha256(theirs.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]
    return f"{name[: MAX_NAME_CHARACTERS - DIGEST_CHARACTERS - 1].rstrip('_')}_{digest}"


def tool_name(name: str) -> str:
    """A server's name for a tool as a name here: `getUser-byId` becomes `get_user_by_id`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    plain = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_") or "tool"
    return (plain if plain[0].isalpha() else f"tool_{plain}")[:MAX_NAME_CHARACTERS]


def level_of(annotations: Mapping[str, Any]) -> int:
    """The level that a tool's annotations come to. What is not said counts as the protocol has it: open, not read-only.

    A hint is believed only as a ceiling: the tool's process can do no more than its level.
    """
    if annotations.get("readOnlyHint") is True:
        return READ
    return WRITE if annotations.get("openWorldHint") is False else EXTERNAL


def changed_fields(was: tuple[str, bytes], now: tuple[str, bytes] | None) -> str:
    """How two definitions of a tool differ, by the names of their fields. `now` is None where it is gone."""
    if now is None:
        return "is gone"
    before, after = _by_field(was[1]), _by_field(now[1])
    names = [name for number, name in _FIELDS.items() if before.get(number) != after.get(number)]
    return ", ".join(names) or "name"


def _by_field(encoded: bytes) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    position = 0
    while position < len(encoded):
        start, (tag, _) = position, varint.decode(encoded, position, len(encoded))
        position = skip_field(encoded, position, len(encoded))
        found.setdefault(tag >> 3, []).append(encoded[start:position])
    return found


def _encode(name: str, tool: Mapping[str, Any], server: str) -> bytes:
    given = tool.get("annotations")
    annotations: Mapping[str, Any] = given if isinstance(given, dict) else {}
    title = tool.get("title") or annotations.get("title")
    description = tool.get("description")
    if not (isinstance(description, str) and description.strip()):
        description = f"The tool {tool['name']} of the MCP server {server}."
    claims = [
        f"{hint}: {'true' if annotations[hint] else 'false'}"
        for hint in HINTS
        if isinstance(annotations.get(hint), bool)
    ]
    execution = tool.get("execution")
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        claims.append(TASK_REQUIRED)
    return b"".join(
        (
            text_field(0x0A, name),
            text_field(0x12, _one_line(title)),
            text_field(0x1A, description[:MAX_DESCRIPTION_CHARACTERS]),
            optional_bytes_field(0x22, _schema(tool.get("inputSchema") or {"type": "object"})),
            optional_bytes_field(0x2A, _schema(tool.get("outputSchema"))),
            number_field(0x30, level_of(annotations)),
            *(bytes_field(0x7A, claim.encode()) for claim in claims),
        )
    )


def _one_line(title: object) -> str:
    if not isinstance(title, str):
        return ""
    return "".join(each if each.isprintable() else " " for each in title[:MAX_TITLE_CHARACTERS])


def _schema(schema: object) -> bytes:
    """A schema as JSON, in the one dialect that the sidecar takes. What can't be written so is what it refuses."""
    if schema is None:
        return b""
    made = to_2020_12(schema)
    try:
        return dumps(made)
    except (ValueError, RecursionError):
        pass
    try:
        return json.dumps(made).encode()  # half of a surrogate pair as its escape
    except RecursionError:
        return _TOO_DEEP
