"""What of a resumed stream is its request's: a server may replay other streams, which the protocol forbids it.

The event store of the official server `everything` is one that does.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

MAX_SEEN = 1024
"""Requests of the server's that are remembered."""


class Replays:
    """What has been on its way to the server, and what has come from it. For many threads."""

    __slots__ = ("_alone", "_begun", "_lock", "_seen", "_unanswered")

    def __init__(self) -> None:
        """Nothing."""
        self._lock = threading.Lock()
        self._begun = 0
        self._alone = 0
        """Of the last request that was the only one under way when it was sent."""
        self._unanswered = set[int]()
        self._seen: deque[str] = deque(maxlen=MAX_SEEN)

    def begin(self) -> int:
        """A request is sent. Returns its mark."""
        with self._lock:
            self._begun += 1
            if not self._unanswered:
                self._alone = self._begun
            self._unanswered.add(self._begun)
            return self._begun

    def end(self, mark: int) -> None:
        """The request with this mark has its answer. One that never gets it is under way until the session's end."""
        with self._lock:
            self._unanswered.discard(mark)

    def is_alone(self, mark: int) -> bool:
        """Whether the request with this mark has been the only one since it was sent."""
        return mark == self._begun == self._alone

    def begin_session(self) -> None:
        """The ids of the server's requests begin anew, and none of an earlier session is replayed."""
        with self._lock:
            self._seen.clear()
            self._unanswered.clear()

    def has_come(self, message: Mapping[str, Any]) -> bool:
        """Whether a message is a request of the server's that has come before. It has from now on."""
        if "id" not in message or "method" not in message:
            return False
        key = json.dumps(message.get("id"))
        with self._lock:
            if key in self._seen:
                return True
            self._seen.append(key)
            return False


def is_anothers(message: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether a message is an answer to another request, or tells of another's progress."""
    if "method" not in message:
        return True
    if message["method"] != "notifications/progress":
        return False
    told, asked = message.get("params"), request.get("params")
    meta = asked.get("_meta") if isinstance(asked, dict) else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return not isinstance(told, dict) or told.get("progressToken") != token
