"""The chain that a call passes: middleware in its order, then hooks in theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fumehood_server.hooks.loading import LoadedMiddleware
from fumehood_server.hooks.middleware_turn import MiddlewareTurn
from fumehood_server.hooks.registry import HookRegistry, ServedHook
from fumehood_server.model.hooks import (
    MAX_SHOWN_AFTER_CHARS,
    Answered,
    HookedCall,
    HookedResult,
    HookKind,
    HookTurn,
    Stage,
    WhenGone,
)
from fumehood_server.model.plugin import RegisteredTool


class _ServedTurn:
    """See `HookTurn`: a hook, and one call."""

    __slots__ = ("_call", "_config", "_served")
    kind = HookKind.HOOK

    def __init__(self, served: ServedHook, call: HookedCall) -> None:
        self._served = served
        self._config = served.config  # a reload must not change what was begun
        self._call = call

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def stages(self) -> Sequence[Stage]:
        return self._config.stages

    @property
    def when_gone(self) -> WhenGone:
        return self._config.when_gone

    @property
    def timeout_s(self) -> float:
        return self._config.timeout_s

    async def before(self, arguments_json: str) -> Answered:
        return await self._served.ask(self._call, arguments_json, None)

    async def after(self, arguments_json: str, result: HookedResult) -> Answered:
        shown = arguments_json if len(arguments_json) <= MAX_SHOWN_AFTER_CHARS else ""
        if result.error is not None:  # its details are the caller's, and can be large
            result = replace(result, error=replace(result.error, details={}, caused_by=None))
        return await self._served.ask(self._call, shown, result)

    async def close(self) -> None:
        pass


class HookChain:
    """See `model.hooks.Hooks`."""

    __slots__ = ("middleware", "registry")

    def __init__(self, middleware: Sequence[LoadedMiddleware], registry: HookRegistry) -> None:
        """Middleware does not change while the sidecar runs; hooks do."""
        self.middleware = middleware
        self.registry = registry

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.middleware or self.registry.hooks)

    def turns(self, tool: RegisteredTool, call: HookedCall) -> Sequence[HookTurn]:
        """See `Hooks`."""
        caller = call.caller.name
        found: list[HookTurn] = [
            MiddlewareTurn(each, call) for each in self.middleware if each.config.matchers.speak_of(tool, caller)
        ]
        found += [
            _ServedTurn(each, call) for each in self.registry.hooks if each.config.matchers.speak_of(tool, caller)
        ]
        return found
