"""Exceptions as JSON, and back: what a recorded value raised is raised again when the call is replayed."""

from __future__ import annotations

import json
import sys
from typing import Any

from fumehood_sdk.errors import ToolError
from fumehood_sdk.json_text import dumps

_PLAIN = str | int | float | bool | None


def describe_error(error: Exception) -> str:
    """The class of an exception and what it holds, as JSON."""
    kind = type(error)
    fields: dict[str, Any] = {"module": kind.__module__, "type": kind.__qualname__}
    if isinstance(error, ToolError):
        fields |= {"message": str(error.message), "reason": str(error.reason), "details": error.details}
    else:
        fields["args"] = [each if isinstance(each, _PLAIN) else str(each) for each in error.args]
    try:
        return dumps(fields).decode()
    except (TypeError, ValueError):
        fields["details"] = None
        return dumps(fields).decode()


def rebuild_error(text: str) -> Exception:
    """The exception that `describe_error` was given, of the same class where its module is loaded and has one."""
    fields = json.loads(text)
    found: Any = sys.modules.get(fields["module"])
    for name in fields["type"].split("."):
        found = getattr(found, name, None)
    if "args" not in fields:
        kind = found if isinstance(found, type) and issubclass(found, ToolError) else ToolError
        made = kind.__new__(kind, fields["message"])
        ToolError.__init__(made, fields["message"], reason=fields["reason"], details=fields["details"])
        return made
    if not (isinstance(found, type) and issubclass(found, Exception)):
        found = type(fields["type"].rpartition(".")[2], (Exception,), {})
    error: Exception = found.__new__(found, *fields["args"])  # its own __init__ may want anything
    error.args = tuple(fields["args"])
    return error
