"""Tools as models are offered them: the schema of each definition is read once, and not for each run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from fumehood_server.model.events import Document
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.orchestration.engines.engine import OfferedTool

MAX_KEPT_BYTES = 4 * 1024 * 1024
"""Of the JSON of those that are kept. Models take less, so that all that runs are offered is there."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """One tool."""

    tool: OfferedTool
    json: bytes
    """As the journal keeps it."""


class ToolOffers:
    """Those of the tools that there are, by their definitions. For one event loop."""

    __slots__ = ("_kept", "_kept_bytes")

    def __init__(self) -> None:
        """None was asked for."""
        self._kept: dict[tuple[str, str], ToolOffer] = {}
        self._kept_bytes = 0

    def of(self, tools: Mapping[str, RegisteredTool]) -> tuple[ToolOffer, ...]:
        """As models are told of them, by name."""
        return tuple(self._of(name, tool) for name, tool in sorted(tools.items()))

    def _of(self, name: str, tool: RegisteredTool) -> ToolOffer:
        key = name, tool.definition_digest
        found = self._kept.get(key)
        if found is None:
            found = _read(name, tool)
            if self._kept_bytes + len(found.json) > MAX_KEPT_BYTES:
                self._kept.clear()
                self._kept_bytes = 0
            self._kept[key] = found
            self._kept_bytes += len(found.json)
        return found


def tools_document(offers: Sequence[ToolOffer]) -> Document:
    """What a model is offered, as a document: most runs are offered the same. See `tools_from_document`."""
    data = b"[" + b",".join(each.json for each in offers) + b"]"
    return Document(hashlib.sha256(data).digest(), data)


def tools_from_document(data: bytes) -> tuple[OfferedTool, ...]:
    """What `tools_document` wrote.

    Raises:
        KeyError, TypeError, ValueError: it did not write that.
    """
    return tuple(OfferedTool(**each) for each in orjson.loads(data))


def _read(name: str, tool: RegisteredTool) -> ToolOffer:
    offered = OfferedTool(
        name=name,
        description=tool.definition.description,
        parameters=orjson.loads(tool.definition.input_schema_json),
    )
    fields = {"name": name, "description": offered.description, "parameters": offered.parameters}
    return ToolOffer(offered, orjson.dumps(fields, option=orjson.OPT_SORT_KEYS))
