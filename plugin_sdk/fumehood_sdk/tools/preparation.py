"""What a tool makes of its callers' arguments before they are validated: `prepare_arguments` of `@plugin.tool`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pydantic_core import from_json

from fumehood_sdk.call import Call
from fumehood_sdk.errors import PluginError, ToolError
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire.plugin_frames import Sent

Prepare = Callable[[Any], Any]
"""From what a caller sent, read from its JSON, to the arguments."""


class Preparation:
    """Runs an author's `prepare_arguments` for one call. The engine runs it as it runs a tool's function."""

    is_async = False
    sequential = False
    interruptible = True
    preparation = None

    __slots__ = ("_prepare", "name")

    def __init__(self, name: str, prepare: Prepare) -> None:
        """`name` is the tool's.

        Raises:
            PluginError: it is no function that can be called without an event loop.
        """
        given: object = prepare  # which a type checker alone holds to its annotation
        if not callable(given) or inspect.iscoroutinefunction(given):
            raise PluginError(f"{name}: prepare_arguments= takes a function that is not async")
        self.name = name
        self._prepare = prepare

    def invoke(self, call: Call) -> Sent:
        """The arguments as the result's details. Raises what the author's function raises."""
        return (), self.prepare(call.arguments_json), False

    async def invoke_async(self, call: Call) -> Sent:
        """Never used: see `is_async`."""
        return self.invoke(call)

    def prepare(self, arguments_json: bytes) -> bytes:
        """The arguments, as JSON. Text that is not JSON stays as it is: the sidecar says what is wrong with it.

        Raises:
            ToolError: they can't be written as JSON.
        """
        try:
            sent = from_json(arguments_json, allow_inf_nan=False)
        except ValueError:
            return arguments_json
        made = self._prepare(sent)
        if made is None:
            raise ToolError("prepare_arguments returned None: return the arguments", reason="nothing_prepared")
        return dumps(made)
