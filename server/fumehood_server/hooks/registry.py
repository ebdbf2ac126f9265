"""The hooks of the configuration and the streams that serve them: a call's question goes to one stream, in turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.hooks.connection import MAX_QUESTIONS, HookConnection
from fumehood_server.model.caller import Caller, CallerRights
from fumehood_server.model.hooks import Answered, Gone, HookConfig, HookedCall, HookedResult, HookGoneError
from fumehood_server.model.waiters import WaiterQueue


class _Place:
    """Leave to ask one question of one stream."""

    __slots__ = ("connection", "served")

    def __init__(self, served: ServedHook, connection: HookConnection) -> None:
        self.served = served
        self.connection = connection
        connection.held += 1

    def release(self) -> None:
        """Give it to whoever waits for longest."""
        self.connection.held -= 1
        self.served.give_places()


class ServedHook:
    """One hook, and the streams that serve it. For one event loop."""

    def __init__(self, config: HookConfig) -> None:
        """Nobody serves it yet."""
        self.config = config
        self.connections: list[HookConnection] = []
        """Whose turn it is first."""
        self._waiting: WaiterQueue[_Place] = WaiterQueue()

    async def ask(self, call: HookedCall, arguments_json: str, result: HookedResult | None) -> Answered:
        """The answer to one question.

        Raises:
            HookGoneError: nobody serves the hook, or there was no answer in time. Nobody else is asked: who had the
                question may have acted on it.
        """
        timeout_s = self.config.timeout_s
        ends_at = time.monotonic() + timeout_s
        asked: HookConnection | None = None
        try:
            async with asyncio.timeout(timeout_s) as timeout:
                place = await self._place()
                asked = place.connection
                question = asked.ask(call, arguments_json, result, ends_at)
                try:
                    return Answered(await question.answered, asked.by)
                finally:
                    asked.settle(question, missed=timeout.expired())
                    if asked.ended.done():
                        self.remove(asked, None)
                    place.release()
        except TimeoutError:
            raise HookGoneError(Gone.TIMEOUT, None if asked is None else asked.by) from None

    async def _place(self) -> _Place:
        if not self.connections:
            raise HookGoneError(Gone.NOT_CONNECTED)
        place = None if len(self._waiting) else self._free_place()
        return await self._waiting.wait() if place is None else place

    def _free_place(self) -> _Place | None:
        """Of the stream whose turn it is. One that left its last question unanswered comes after the others."""
        free = [each for each in self.connections if each.held < MAX_QUESTIONS]
        if not free:
            return None
        found = min(free, key=lambda each: each.missed)  # the first of several
        self.connections.remove(found)
        self.connections.append(found)
        return _Place(self, found)

    def give_places(self) -> None:
        """Let those who wait for a place have it."""
        self._waiting.serve(self._free_place)

    def add(self, connection: HookConnection) -> None:
        """A stream serves it from now on."""
        self.connections.append(connection)
        self.give_places()

    def remove(self, connection: HookConnection, refusal: Refusal | None) -> None:
        """One does so no more. Idempotent."""
        if connection in self.connections:
            self.connections.remove(connection)
        connection.end(refusal)
        if not self.connections:
            self._waiting.fail_all(lambda: HookGoneError(Gone.NOT_CONNECTED))


class HookRegistry:
    """All hooks, in their order. For one event loop."""

    def __init__(self, hooks: Sequence[HookConfig], rights: CallerRights) -> None:
        """`rights` say who is an operator."""
        self._rights = rights
        self.hooks: tuple[ServedHook, ...] = tuple(map(ServedHook, hooks))

    def take_up(self, hooks: Sequence[HookConfig]) -> None:
        """Have others in force, from the next call on. Streams go on that may serve theirs still."""
        known = {each.config.name: each for each in self.hooks}
        kept: list[ServedHook] = []
        for config in hooks:
            served = known.pop(config.name, None)
            if served is None:
                served = ServedHook(config)
            served.config = config
            kept.append(served)
        self.hooks = tuple(kept)
        for served in known.values():
            for connection in tuple(served.connections):
                served.remove(connection, _unknown(served.config.name))
        for served in kept:
            for connection in tuple(served.connections):
                refusal = self._refusal(served.config, connection.by)
                if refusal is not None:
                    served.remove(connection, refusal)

    def connect(self, hook: str, by: Caller) -> tuple[ServedHook, HookConnection]:
        """Have a stream serve a hook. `ServedHook.remove` ends that.

        Raises:
            RefusedError: there is no such hook, or this caller may not serve it.
        """
        served = next((each for each in self.hooks if each.config.name == hook), None)
        if served is None:
            # Who may serve none is not told which there are.
            raise RefusedError(_unknown(hook) if self._rights.is_operator(by) else _denied(hook, by))
        refusal = self._refusal(served.config, by)
        if refusal is not None:
            raise RefusedError(refusal)
        connection = HookConnection(hook, by)
        served.add(connection)
        return served, connection

    def check(self, served: ServedHook, by: Caller) -> None:
        """Whether this caller may go on serving it.

        Raises:
            RefusedError: no longer.
        """
        refusal = self._refusal(served.config, by)
        if refusal is not None:
            raise RefusedError(refusal)

    def _refusal(self, config: HookConfig, by: Caller) -> Refusal | None:
        allowed = by.name in config.served_by if config.served_by else self._rights.is_operator(by)
        return None if allowed else _denied(config.name, by)


def _unknown(hook: str) -> Refusal:
    text = f'fumehood.toml names no hook "{hook[:64]}"'
    return Refusal(RefusalReason.HOOK_NOT_FOUND, text, {"hook": hook[:64]})


def _denied(hook: str, by: Caller) -> Refusal:
    text = f'"{by.name}" may not serve the hook "{hook[:64]}": `served_by` in fumehood.toml says who may'
    return Refusal(RefusalReason.CALLER_DENIED, text, {"caller": by.name, "hook": hook[:64]})
