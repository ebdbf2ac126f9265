"""What a model is told of a call of a tool, and by which id the call is known."""

from __future__ import annotations

import orjson

from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.messages import Message, Role, ToolUse

MAX_TEXT_BYTES = 64 * 1024
"""Of one result. The journal and `GetCall` have it whole."""
_CUT = "\n[cut: the result is longer]"


def tool_message(use: ToolUse, outcome: CallOutcome) -> Message:
    """What the model gets for a use of a tool."""
    return Message(
        role=Role.TOOL,
        text=result_text(outcome),
        tool_use_id=use.id,
        tool=use.tool,
        is_error=outcome.error is not None,
    )


def not_offered(tool: str) -> CallError:
    """Why nothing was called: the model made a name up, or knows one from elsewhere."""
    return CallError(
        code=Code.TOOL_DENIED,
        message=f"There is no tool {tool[:64]!r} in this run. Take one of those that were offered.",
        details={"reason": "not_offered"},
    )


def call_id_of(request_id: str, name: str, index: int) -> str:
    """Of a call of a run: the same whenever the run is carried out again, so that nothing runs twice."""
    return f"{request_id}:{name}:{index}"


def result_text(outcome: CallOutcome) -> str:
    """A result, or why there is none, within `MAX_TEXT_BYTES`."""
    if outcome.error is not None:
        return error_text(outcome.error)
    parts = []
    for block in outcome.content:
        if block.text is not None:
            parts.append(block.text)
        else:
            named = f", {block.resource_uri}" if block.resource_uri else ""
            parts.append(f"[{block.media_type or 'application/octet-stream'}, {len(block.data or b'')} bytes{named}]")
    text = "\n".join(parts) or outcome.details_json or "(no output)"
    return cut(text, MAX_TEXT_BYTES)


def error_text(error: CallError) -> str:
    """Why a call failed: the code, what to do, and for arguments each fault."""
    text = f"{error.code.value}: {error.message}"
    faults = error.details.get("arguments")
    if faults:
        text += "\n" + orjson.dumps(faults, default=str).decode()
    return cut(text, MAX_TEXT_BYTES)


def cut(text: str, limit_bytes: int) -> str:
    """The text, or as much of it as has so many bytes in UTF-8, and a word that it is cut."""
    if len(text) * 4 <= limit_bytes:
        return text
    data = text.encode(errors="replace")
    if len(data) <= limit_bytes:
        return text
    return data[: limit_bytes - len(_CUT)].decode(errors="ignore") + _CUT
