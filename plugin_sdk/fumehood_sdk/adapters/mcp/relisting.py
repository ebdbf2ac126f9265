"""Looks at a server's list of tools once more: where it says that it has changed; now and then where nobody would."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from fumehood_sdk.adapters.mcp import definitions, negotiation
from fumehood_sdk.adapters.mcp.connection import ServerConnection
from fumehood_sdk.adapters.mcp.listing import ToolPages, has_page
from fumehood_sdk.adapters.mcp.log_lines import LogLines
from fumehood_sdk.adapters.mcp.messages import Message
from fumehood_sdk.wire import sidecar_frames

RELIST_INTERVAL_S = 1.0
"""Between two looks at a list that its server says has changed."""
TIMED_RELIST_S = 30.0
"""Between two looks, where calls come, at a list that changes without a word: over HTTP, and without a subscription."""
RELIST_TIMEOUT_S = 10.0
"""As long a look has from the first call that waits for it; without one it has no end, for nobody waits, and the
sidecar may have frozen the process."""
RETRY_PAUSE_S = 2.0
"""From the first look that failed to the next one, where calls come; doubled each time."""
MAX_RETRY_PAUSE_S = 30.0
UNKNOWN_AFTER_S = 60.0
"""Looks that fail for as long, not counting the time in which nobody calls, leave the list unknown. New calls are
refused then, until one succeeds. The adapter doesn't end for it: the sidecar freezes a process without calls, and what
it is sent next would be lost in its end. The sidecar replaces the process once a call was refused so."""


class Relisting:
    """What differs from the tools of `Ready`, and the calls that wait for a look. For one thread."""

    __slots__ = (
        "_asked",
        "_connection",
        "_failed",
        "_failing_since",
        "_held",
        "_log",
        "_look_at",
        "_look_ends_at",
        "_looked_at",
        "_pages",
        "_released",
        "_session",
        "_timed",
        "_tools",
        "differing",
        "is_unknown",
    )

    def __init__(
        self,
        connection: ServerConnection,
        session: negotiation.Session,
        tools: Mapping[str, tuple[str, bytes]],
        log: LogLines,
    ) -> None:
        """`tools` are those of `Ready`, as `encode_definitions` returns them."""
        self._connection = connection
        self._session = session
        self._tools = tools
        self._log = log
        self.differing: dict[str, str] = {}
        """Tools that the server lists otherwise by now, or no more, and how they differ. Once a call of one was
        refused, the sidecar has the process serve the calls that it has, and replaces it: a new one lists what is
        pinned, or is refused at its start."""
        self._held: list[sidecar_frames.Invoke] | None = None
        """Calls that wait for a look at the list. None: nobody looks."""
        self._asked = 0
        """The request that a look waits for."""
        self._failed = 0
        """Looks that failed, in a row."""
        self._failing_since = 0.0
        """When the first of them ended; later, by the time in which none was asked for since nobody called."""
        self.is_unknown = False
        """Whether looks have failed for so long that nobody can tell whether the tools are as they were."""
        self._released: list[sidecar_frames.Invoke] = []
        self._timed = session.is_remote
        """Whether nobody says when it changes."""
        self._looked_at = time.monotonic() if session.is_remote else -math.inf
        self._look_at = math.inf
        self._look_ends_at = math.inf
        self._pages = ToolPages()

    def subscribe(self) -> None:
        """Ask a server on stdio to say when its list changes, which one of 2026-07-28 does where it is asked to."""
        if not self._session.is_remote and self._session.is_stateless and self._session.lists_change:
            fields = b'"notifications":{"toolsListChanged":true},'
            self._connection.request("subscriptions/listen", self._session.params(fields), self._take_subscription_end)

    def take_acknowledgement(self, params: Mapping[str, Any]) -> None:
        """Take which notifications the server will send for the subscription."""
        honoured = params.get("notifications")
        if isinstance(honoured, dict) and honoured.get("toolsListChanged") is True:
            self.has_changed()  # since it was listed it may have, of which nobody would tell
        else:
            self._timed = True

    def _take_subscription_end(self, answer: Message) -> None:
        why = f": {negotiation.error_text(answer)}" if "error" in answer else ""
        self._log.warn(
            f"the MCP server no longer says when its tools change{why}; they are listed every "
            f"{TIMED_RELIST_S:.0f} s where calls come"
        )
        self._timed = True

    def hold_if_looking(self, frame: sidecar_frames.Invoke) -> bool:
        """Begin a look where a call makes one due, and have the call wait for the look under way. False: none is."""
        now = time.monotonic()
        if self._held is None and self._tools and now >= self._call_looks_at():
            self._begin(now)
        if self._held is None:
            return False
        self._look_ends_at = min(self._look_ends_at, now + RELIST_TIMEOUT_S)
        self._held.append(frame)
        return True

    def release(self, invocation_id: int) -> bool:
        """Let go of a call that waits. False: it doesn't."""
        for frame in self._held or ():
            if frame.invocation_id == invocation_id and self._held is not None:
                self._held.remove(frame)
                return True
        return False

    def take_released(self) -> list[sidecar_frames.Invoke]:
        """The calls that waited for a look that is over."""
        released, self._released = self._released, []
        return released

    def has_changed(self) -> None:
        """The server says that its list has. Where no tool is pinned none can differ, and there may be no list."""
        if not self._tools or (self._failed and self._held is None):  # it is looked at after the pause in any case
            return
        self._look_at = min(self._look_at, self._looked_at + RELIST_INTERVAL_S)
        self.look_if_due(time.monotonic())

    @property
    def due_at(self) -> float:
        """When `look_if_due` has something to do, by time.monotonic."""
        return self._look_at if self._held is None else self._look_ends_at

    def look_if_due(self, now: float) -> None:
        """Begin a look whose time has come, and let go of one that takes too long."""
        if self._held is None and now >= self._look_at:
            self._begin(now)
        if now >= self._look_ends_at:
            self._connection.abandon(self._asked, is_call=False)
            if self._session.is_remote:  # frees its place there; one beside the adapter may yet answer
                self._connection.notify("notifications/cancelled", b'{"requestId":%d}' % self._asked)
            self._fail(f"it doesn't answer within {RELIST_TIMEOUT_S:.0f} s")

    def _call_looks_at(self) -> float:
        """From when on a call has the list looked at."""
        if self._failed:
            return self._looked_at + min(RETRY_PAUSE_S * 2.0 ** min(self._failed - 1, 8), MAX_RETRY_PAUSE_S)
        return self._looked_at + TIMED_RELIST_S if self._timed else math.inf

    def _begin(self, now: float) -> None:
        if self._failed:
            self._failing_since += max(now - self._call_looks_at(), 0.0)
        self._looked_at, self._look_at = now, math.inf
        self._held = []
        self._pages = ToolPages()
        self._ask_page()

    def _ask_page(self) -> None:
        params = self._session.params(self._pages.fields)
        self._asked = self._connection.request("tools/list", params, self._take_page)

    def _take_page(self, answer: Message) -> None:
        if not has_page(answer):
            self._fail(negotiation.error_text(answer))
            return
        if self._pages.take(answer):
            self._ask_page()
            return
        now = definitions.encode_definitions(self._pages.tools, self._session.server)
        self._end(
            {
                name: definitions.changed_fields(was, now.get(name))
                for name, was in self._tools.items()
                if now.get(name) != was
            }
        )

    def _fail(self, why: str) -> None:
        """End a look that tells nothing: it is tried again, and calls go on by what the one before told."""
        self._looked_at, self._look_at = time.monotonic(), math.inf
        self._failing_since += max(self._looked_at - self._look_ends_at, 0.0)  # while the process was frozen
        if not self._failed:
            self._failing_since = self._looked_at
            self._log.warn(f"the MCP server doesn't list its tools anew: {why}; it is asked again, and calls go on")
        elif not self.is_unknown and self._looked_at >= self._failing_since + UNKNOWN_AFTER_S:
            self.is_unknown = True
            self._log.warn(f"the MCP server still doesn't list its tools: {why}; calls are refused until it does")
        self._failed += 1
        self._let_go()

    def _end(self, differing: dict[str, str]) -> None:
        if self._failed:
            self._failed, self.is_unknown = 0, False
            self._log.warn("the MCP server lists its tools again")
        if differing != self.differing:
            shown = "; ".join(f"{name}: {changed}" for name, changed in sorted(differing.items())) or "none"
            self._log.warn(f"the MCP server lists its tools anew; those that are not as they were pinned: {shown}")
        self.differing = differing
        self._let_go()

    def _let_go(self) -> None:
        self._released += self._held or []
        self._held, self._pages, self._asked, self._look_ends_at = None, ToolPages(), 0, math.inf
