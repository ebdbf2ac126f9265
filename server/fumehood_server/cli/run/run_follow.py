"""Follows one run to its end: shows what happens, hands on what is typed, and stops it on a signal."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from fumehood.v1 import orchestration_service_pb2 as pb

from fumehood_server.cli import output
from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.interrupts import SignalledError
from fumehood_server.cli.run.run_approvals import RunApprovals
from fumehood_server.cli.run.run_keyboard import Keyboard, can_type, open_keyboard
from fumehood_server.cli.run.run_stream import ConnectionLost, RunStream, StreamEnded
from fumehood_server.cli.run.run_views import RunView

STOP_S = 45.0
"""For a run to stop: its calls have 30 s at the sidecar to end."""
LEAVE_S = 5.0
"""Whoever was told to end does not wait long for a sidecar that is away."""
_TICK_S = 1.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What became of it."""

    wall_s: float
    response: pb.SystemResponse | None = None
    """None: it has no end yet."""
    signalled: int = 0
    """What ended the command."""
    stopped: bool = False
    """Whether the run was stopped, so that it can be gone on with. False beside a signal: it goes on by itself."""


def follow_run(client: SidecarClient, request: pb.SystemRequest, view: RunView, *, interactive: bool) -> Followed:
    """Send the request, and stay with the run. `interactive`: somebody may be asked, and type.

    A run that this has begun is stopped, so that it can be gone on with, where the command is told to end or can't
    write any more.

    Raises:
        CommandError: it was refused, or the connection is lost for good.
    """
    with contextlib.ExitStack() as stack:
        keyboard = stack.enter_context(open_keyboard()) if interactive and can_type() else None
        stack.enter_context(view)
        stream = stack.enter_context(RunStream(client, request))
        follower = _Follower(client, request, view, stream, keyboard)
        stack.enter_context(follower.signals())
        try:
            return follower.follow()
        except (CommandError, SignalledError):
            raise
        except BaseException:  # nothing can be written any more
            if stream.is_own:
                follower.stop(LEAVE_S)
            raise


class _Follower:
    def __init__(
        self,
        client: SidecarClient,
        request: pb.SystemRequest,
        view: RunView,
        stream: RunStream,
        keyboard: Keyboard | None,
    ) -> None:
        self._client = client
        self._request_id = request.request_id
        self._is_steerable = request.mode == pb.MODE_CHAT
        self._view = view
        self._stream = stream
        self._keyboard = keyboard
        self._approvals = RunApprovals(client, view, asks=keyboard is not None)
        self._began_at = time.monotonic()
        self._signalled = 0
        self._woken, self._wake = os.pipe()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Take note of signals that end. A second one raises `SignalledError`. What was ignored stays so."""
        defaults = (signal.SIG_DFL, signal.default_int_handler)
        before = {each: signal.getsignal(each) for each in _ENDING if signal.getsignal(each) in defaults}
        for each in before:
            signal.signal(each, self._take_signal)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _take_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signalled:
            raise SignalledError(number)
        self._signalled = number
        os.write(self._wake, b"x")

    def follow(self) -> Followed:
        """Until it ends, or the command is told to."""
        while True:
            self._show_typed()
            typed = [self._keyboard.descriptor] if self._keyboard is not None and self._keyboard.is_open else []
            ready, _, _ = select.select([self._stream.woken, self._woken, *typed], [], [], _TICK_S)
            if self._stream.woken in ready:
                os.read(self._stream.woken, 4_096)
            if self._signalled:
                return self._end_early()
            if self._keyboard is not None and self._keyboard.descriptor in ready:
                for line in self._keyboard.read():
                    self._enter(line)
            response = self._take_all()
            if response is not None:
                return Followed(response=response, wall_s=self._wall_s)

    def _take_all(self) -> pb.SystemResponse | None:
        """Show what has come. The response, where it has."""
        while not self._signalled and (item := self._stream.take()) is not None:
            if isinstance(item, ConnectionLost):
                self._view.say("The connection was lost and is being made again. The run goes on.", "yellow")
            elif not isinstance(item, StreamEnded):
                self._view.show(item)
                self._note(item)
                if item.HasField("finished"):
                    return item.finished
            elif item.error is not None:
                raise item.error
        return None

    @property
    def _wall_s(self) -> float:
        return time.monotonic() - self._began_at

    def _note(self, event: pb.StreamRunResponse) -> None:
        if event.HasField("approval_awaited"):
            self._approvals.add(event.approval_awaited.approval_id, event.approval_awaited.tool)
        elif event.HasField("tool_update"):
            self._approvals.drop(event.tool_update.call_id)
        elif event.HasField("tool_finished"):
            self._approvals.drop(event.tool_finished.call_id)

    def _show_typed(self) -> None:
        if self._keyboard is None:
            return
        question = self._approvals.question
        self._view.typed(question or ("say" if self._keyboard.text else ""), self._keyboard.text)

    def _enter(self, line: str) -> None:
        """A line was typed: about an approval where one is asked for, else for the model."""
        if not line.strip():
            return
        if self._approvals.question:
            self._approvals.answer(line)
            return
        if not self._is_steerable:
            self._view.say("this run takes no messages: it is not in mode chat", "dim")
            return
        at_once = line.startswith("!")
        text = line.removeprefix("!").strip()
        request = pb.SteerRunRequest(
            request_id=self._request_id,
            messages=[pb.Message(role=pb.MESSAGE_ROLE_USER, text=text)],
            kind=pb.STEER_KIND_STEER if at_once else pb.STEER_KIND_FOLLOW_UP,
        )
        try:
            self._client.steer_run(request)
        except CommandError as error:
            self._view.say(f"not said: {output.one_line(error.what)}", "yellow")
        else:
            when = "before its next answer" if at_once else "at its end"
            self._view.say(f"you ({when}): {output.one_line(text)}", "bold")

    def _end_early(self) -> Followed:
        number = self._signalled
        stopped = False
        with contextlib.suppress(SignalledError):
            if number == signal.SIGINT:
                self._view.say("stopping the run… Ctrl-C once more leaves it to itself", "yellow")
            if number == signal.SIGINT or self._stream.is_own or not self._stream.has_begun:
                stopped = self.stop(STOP_S if number == signal.SIGINT else LEAVE_S)
        return Followed(signalled=number, stopped=stopped, wall_s=self._wall_s)

    def stop(self, timeout_s: float) -> bool:
        """Stop the run. Whether it has stopped."""
        try:
            self._client.cancel_run(self._request_id, resumable=True, timeout_s=timeout_s)
        except CommandError as error:
            return error.code == "RUN_NOT_FOUND"  # it has ended meanwhile
        return True
