"""Verifies that each process of a plugin declares the definitions that were accepted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fumehood.v1 import tool_pb2

from fumehood_server.model.text import printable
from fumehood_server.plugins.changes import summarise_changes, tool_changes
from fumehood_server.plugins.declared_tools import checked_tools
from fumehood_server.plugins.definition_threads import in_thread
from fumehood_server.plugins.definitions import definition_digest
from fumehood_server.plugins.loading import LoadedPlugin, add_remedy
from fumehood_server.plugins.refusal import PluginRefusedError


class DefinitionVerifier:
    """Compares the `Ready` frame of a `python` process with the accepted definitions (`model.plugin.Recognise`).

    Its files are those that were pinned, but its code may declare other tools where it can read more than in the
    sandbox that it was described in. The first process's definitions are parsed and compared; a later process that
    sends the same bytes is accepted by their hash.
    """

    def __init__(self, loaded: LoadedPlugin) -> None:
        """`loaded` has the accepted definitions."""
        self._loaded = loaded
        self._accepted_hash = b""

    @property
    def key(self) -> str:
        """Part of a worker's key: processes that were verified by other definitions are not shared."""
        digests = "".join(definition_digest(tool) for tool in self._loaded.tools)
        return hashlib.sha256(digests.encode()).hexdigest()

    async def __call__(self, sent: Sequence[bytes]) -> str:
        """See `Recognise`."""
        sent_hash = hashlib.sha256()
        for each in sent:
            sent_hash.update(len(each).to_bytes(8, "big") + each)
        if sent_hash.digest() == self._accepted_hash:
            return ""
        # Hostile definitions take long to parse: not on the event loop.
        problem = await in_thread(self._compare, sent)
        if not problem:
            self._accepted_hash = sent_hash.digest()
        return problem

    def _compare(self, sent: Sequence[bytes]) -> str:
        manifest = self._loaded.manifest
        accepted = {tool.name: tool.isolation for tool in self._loaded.tools}
        try:
            tools = checked_tools(
                manifest,
                [tool_pb2.ToolDefinition.FromString(each) for each in sent],
                # What names none has what it was accepted with, by the default of that time and what its import was.
                lambda name: accepted.get(name, manifest.kind.default_isolation),
            )
        except PluginRefusedError as error:
            found = printable(error)
        else:
            found = summarise_changes(tool_changes(self._loaded.tools, tools))
        return f"{found} ({add_remedy(manifest.folder, self._loaded.pin_remedy)})" if found else ""
