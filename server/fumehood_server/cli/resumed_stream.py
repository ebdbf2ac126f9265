"""A streamed call over as many connections as it takes: after a lost one it goes on behind the last update it had.

The call goes on at the sidecar meanwhile, and is cancelled when the command leaves before it has ended. It is joined
again only where the sidecar still knows it: one that was started anew and records nothing would run it once more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator

from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.cli.client import SidecarClient, deadline_s
from fumehood_server.cli.failure import CommandError, ExitStatus

RECONNECT_S = 60.0
"""How long a lost connection is tried again: for another network, or a restart of what lies between."""
_PAUSE_S = 0.2
"""Before a connection that was lost is made again."""
_LOST = "UNREACHABLE"


def stream_call(
    client: SidecarClient, request: pb.CallToolRequest, *, on_lost: Callable[[], None]
) -> Generator[pb.StreamToolResponse]:
    """Call and yield what happens: `started` once more after each lost connection, of which `on_lost` is told before.

    To be closed: closing it before the call has ended cancels a call that this has begun.

    Raises:
        CommandError: it is refused, or its sidecar is lost for longer, or knows nothing of it any more.
    """
    request.continue_if_disconnected = True
    ends_at = time.monotonic() + deadline_s(request)
    stream = _Stream(client, request)
    try:
        while True:
            try:
                yield from stream.events(max(ends_at - time.monotonic(), _PAUSE_S))
            except CommandError as lost:
                if lost.code != _LOST or not stream.has_begun:
                    raise
                on_lost()
                _find_again(client, request, lost)
            else:
                return
    finally:
        stream.leave()


class _Stream:
    def __init__(self, client: SidecarClient, request: pb.CallToolRequest) -> None:
        self._client = client
        self._request = request
        self._after = 0
        self._is_own = True
        self.has_begun = False
        self._is_over = False

    def events(self, timeout_s: float) -> Generator[pb.StreamToolResponse]:
        """What happens after what was seen."""
        for event in self._client.stream_tool(self._request, after_sequence=self._after, timeout_s=timeout_s):
            kind = event.WhichOneof("event")
            if kind == "started" and not self.has_begun:
                self.has_begun, self._is_own = True, not event.started.joined
            elif kind == "update":
                self._after = event.update.sequence
            elif kind == "finished":
                self._is_over = True
            yield event
        self._is_over = True

    def leave(self) -> None:
        if self._is_own and not self._is_over:
            with contextlib.suppress(CommandError):  # it has ended, was refused, or nobody can be told
                self._client.cancel_call(self._request.call_id)


def _find_again(client: SidecarClient, request: pb.CallToolRequest, lost: CommandError) -> None:
    """Return once the sidecar can be asked again, and knows the call."""
    given_up_at = time.monotonic() + RECONNECT_S
    while True:
        time.sleep(_PAUSE_S)
        left_s = given_up_at - time.monotonic()
        if left_s <= 0:
            todo = f"It goes on there. Send it once more with --call-id {request.call_id} to hear of it."
            raise CommandError(
                f"{lost.what}, and could not be made again within {RECONNECT_S:g} s",
                todo,
                code=_LOST,
                status=ExitStatus.UNREACHABLE,
                details=lost.details,
            ) from lost
        try:
            client.get_call(request.call_id, timeout_s=left_s)
        except CommandError as error:
            if error.status is ExitStatus.UNREACHABLE and error.code != "JOURNAL_UNAVAILABLE":
                continue
            raise CommandError(
                f"the connection was lost, and what became of the call can't be told: {error.what}",
                "Look at whether it had its effect before you call it again.",
                code="STREAM_BROKEN",
                status=ExitStatus.UNREACHABLE,
                details={"reason": error.code},
            ) from error
        return
