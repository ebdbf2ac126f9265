"""Calls that end before they have a result: the frame that asks for it, who ignores that, and who is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood_sandbox import Level

from fumehood_server.model.worker import CancelReason
from fumehood_server.workers import faults
from fumehood_server.workers.faults import Rung
from fumehood_server.workers.limits.exhaustion import exhausted_error
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.process.attempt import WorkerCall
    from fumehood_server.workers.process.ending import Ends
    from fumehood_server.workers.process.requests import HostCallRouter
    from fumehood_server.workers.process.timers import Timers
    from fumehood_server.workers.settings import WorkerSettings
    from fumehood_server.workers.wire.channel import Channel

_LINGER = "linger"


class Cancelling:
    """One worker's. Calls that can be repeated may finish beside the one that hangs; others end with it."""

    __slots__ = (
        "_calls",
        "_channel",
        "_end_ignorers",
        "_ends",
        "_loop",
        "_plugin_requests",
        "_settings",
        "_spec",
        "_timers",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        spec: WorkerSpec,
        settings: WorkerSettings,
        calls: dict[int, WorkerCall],
        *,
        channel: Channel,
        plugin_requests: HostCallRouter,
        timers: Timers,
        ends: Ends,
        end_ignorers: Callable[[], None],
    ) -> None:
        """`calls` are those under way. `end_ignorers` makes the worker exit, with the calls that it still has."""
        self._loop = loop
        self._spec = spec
        self._settings = settings
        self._calls = calls
        self._channel = channel
        self._plugin_requests = plugin_requests
        self._timers = timers
        self._ends = ends
        self._end_ignorers = end_ignorers

    def cancel(self, call: WorkerCall, reason: CancelReason) -> None:
        """Ask for the end of one call."""
        self._plugin_requests.cancel(call.invocation_id)
        grace_s = self._settings.cancel_grace_of(self._spec.isolation)
        self._channel.send(messages.cancel(call.invocation_id, reason, grace_s))
        call.grace_timer = self._loop.call_later(grace_s, self._ignored, call)

    def _ignored(self, call: WorkerCall) -> None:
        """The grace is over."""
        call.grace_timer = None
        name = call.invocation.call_id
        reason = call.cancel_reason
        others = any(each.cancel_reason is None for each in self._calls.values())
        self._ends.condemn()
        if reason is not None and others and self._spec.policy.level in (Level.NONE, Level.READ):
            self._ends.say(
                f"call {name} ignored its cancellation; other calls may go on for {self._settings.linger_s:g} s"
            )
            call.fail(self.error(call, Rung.CONDEMNED))
            if _LINGER not in self._timers:
                self._timers.after(_LINGER, self._settings.linger_s, self._end_ignorers)
        else:
            self._ends.say(f"call {name} ignored its cancellation")
            self._end_ignorers()

    def end_when_only_ignorers_are_left(self) -> None:
        """A call is over: whoever lingered for the others' sake needs to no more when it was the last of them."""
        if _LINGER not in self._timers:
            return
        if not self._calls:
            self._ends.finish()
        elif all(call.done.done() for call in self._calls.values()):
            self._end_ignorers()

    def lose_all(self, cause: CallError, rung: Rung) -> None:
        """Answer every call: the process is gone by `cause`, or by `rung` for the sake of those that were cancelled."""
        for call in self._calls.values():
            if call.cancel_reason is not None:
                call.fail(self.error(call, rung))
            else:
                dispatched = call.starts_at_byte < self._channel.written_bytes
                call.fail(faults.lost_call_error(cause, self._spec.policy.level, dispatched=dispatched))
        self._calls.clear()

    def error(self, call: WorkerCall, rung: Rung, *, tool_finished: bool = False) -> CallError:
        """What a call ends with that was cancelled; `rung` is what ended it."""
        plugin, level, reason = self._spec.plugin, self._spec.policy.level, call.cancel_reason
        error = None if call.limit is None else exhausted_error(plugin, call.limit)
        return faults.cancelled_error(
            plugin, level, reason or CancelReason.CALLER, rung, tool_finished=tool_finished, error=error
        )
