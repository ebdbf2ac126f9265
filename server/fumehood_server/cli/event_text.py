"""Words for an event of the sidecar's log that has no message: what happened, to which plugin, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BESIDES = frozenset({"event", "level", "timestamp"})


def event_text(event: Mapping[str, Any]) -> str:
    """The event's name as words, with its plugin and its reasons, or else its other fields. Perhaps several lines."""
    words = str(event.get("event", "")).replace("_", " ")
    reasons = event.get("reasons")
    told = [*map(str, reasons)] if isinstance(reasons, list) else []
    told += [str(event[key]) for key in ("problem", "remedy", "exception") if event.get(key)]
    if told:
        return ": ".join(filter(None, (words, str(event.get("plugin") or ""), "; ".join(told))))
    return " ".join((words, *(f"{key}={value}" for key, value in event.items() if key not in _BESIDES and value)))
