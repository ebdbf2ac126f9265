"""Holds what a plugin's later processes say of themselves against the definitions that were learnt and pinned."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from fumehood.v1 import tool_pb2

from fumehood_server.model.text import printable
from fumehood_server.plugins.changes import changes, summary
from fumehood_server.plugins.definitions import definition_digest
from fumehood_server.plugins.loading import LoadedPlugin, PluginRefusedError, add_remedy, checked_tools


class Recognition:
    """Whether a process of kind `python` is the plugin that was accepted (`model.plugin.Recognise`).

    Its files are the same, and its code may still say other things where it can read more than the sandbox that its
    definitions were learnt in. The first process is read and compared; later ones are as long as they send its bytes.
    """

    def __init__(self, loaded: LoadedPlugin) -> None:
        """`loaded` is what was accepted."""
        self._loaded = loaded
        self._recognised = b""

    @property
    def key(self) -> str:
        """What a worker's key has of it: processes that were held against other definitions are not shared."""
        digests = "".join(definition_digest(tool) for tool in self._loaded.tools)
        return hashlib.sha256(digests.encode()).hexdigest()

    async def __call__(self, sent: Sequence[bytes]) -> str:
        """See `Recognise`."""
        told = hashlib.sha256()
        for each in sent:
            told.update(len(each).to_bytes(8, "big") + each)
        if told.digest() == self._recognised:
            return ""
        # A hostile one takes long to read: not on the event loop.
        problem = await asyncio.to_thread(self._compare, sent)
        if not problem:
            self._recognised = told.digest()
        return problem

    def _compare(self, sent: Sequence[bytes]) -> str:
        manifest = self._loaded.manifest
        try:
            tools = checked_tools(manifest, [tool_pb2.ToolDefinition.FromString(each) for each in sent])
        except PluginRefusedError as error:
            found = printable(error)
        else:
            found = summary(changes(self._loaded.tools, tools))
        return f"{found} ({add_remedy(manifest.folder)})" if found else ""
