"""What the journal is told of pins: which files and definitions stand behind a plugin's name from now on."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fumehood_server.model.events import About, Document, Event
from fumehood_server.model.journal import Journal
from fumehood_server.model.operation_events import PluginChanged, PluginPinned
from fumehood_server.model.schema import canonical_json
from fumehood_server.model.tool import ToolDefinition
from fumehood_server.plugins.definitions import definition_json
from fumehood_server.plugins.lock import Lock
from fumehood_server.plugins.registration import Registration

_CHANGED = frozenset({"definition_changed", "digest_changed"})


@dataclass(frozen=True, slots=True)
class PinEvent:
    """One event, ready to be recorded."""

    plugin: str
    digest: str
    event: Event
    documents: tuple[Document, ...] = ()


class PinRecords:
    """Records each pin once, however often its plugin is loaded, and each change that is refused."""

    def __init__(self, journal: Journal, known: Mapping[str, str]) -> None:
        """`known`: the digests that were recorded last, by plugin."""
        self._journal = journal
        self._pinned = dict(known)
        self._refused: dict[str, str] = {}

    def prepare(self, registrations: Sequence[Registration], lock: Lock, first_seen: Collection[str]) -> list[PinEvent]:
        """What is to be recorded of these. Takes milliseconds for a plugin whose pin has changed: for a thread."""
        if not self._journal.recording:
            return []
        found = []
        for each in registrations:
            name, loaded = each.plugin.name, each.loaded
            if loaded is not None and self._pinned.get(name) != loaded.digest:
                documents = {tool.name: _document(tool) for tool in loaded.tools}
                event = PluginPinned(
                    version=loaded.manifest.version,
                    digest=loaded.digest,
                    previous=self._pinned.get(name, ""),
                    definitions={tool: f"sha256:{each.digest.hex()}" for tool, each in documents.items()},
                    first_seen=name in first_seen,
                )
                found.append(PinEvent(name, loaded.digest, event, tuple(documents.values())))
            elif loaded is None and self._refused.get(name) != each.plugin.digest:
                reason = next((reason.code for reason in each.plugin.reasons if reason.code in _CHANGED), "")
                pinned = lock.plugins.get(name)
                if reason and pinned is not None:
                    changed = PluginChanged(reason=reason, pinned=pinned.digest, found=each.plugin.digest)
                    found.append(PinEvent(name, each.plugin.digest, changed))
        return found

    def record(self, found: Sequence[PinEvent]) -> None:
        """Record what was prepared, now that it is in force."""
        for each in found:
            known = self._pinned if isinstance(each.event, PluginPinned) else self._refused
            known[each.plugin] = each.digest
            self._journal.record(each.event, About(plugin=each.plugin), (), each.documents)


def _document(tool: ToolDefinition) -> Document:
    """As `definition_digest` hashes it."""
    data = canonical_json(definition_json(tool)).encode()
    return Document(hashlib.sha256(data).digest(), data)
