"""`elicitation/create`: a server's form as a question to a person, and the answer as an `ElicitResult`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fumehood_sdk.adapters.mcp.client_requests import RefusedInput
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire.plugin_requests import encode_question
from fumehood_sdk.wire.sidecar_answers import QuestionAnswer

_ACTIONS = {1: "accept", 2: "decline", 3: "cancel"}
"""By the numbers of `AnswerAction`."""
_NAME_CHARS = 65
"""Of `Question.name`, one more than are taken."""


def encode(invocation_id: int, request_id: int, params: Mapping[str, Any], name: str = "") -> bytes:
    """The request as a `Question`, by the name that the server has for it, if any.

    Raises:
        ValueError: it is no form, or is not what the protocol has.
    """
    message, schema = params.get("message"), params.get("requestedSchema")
    if params.get("mode", "form") != "form":
        raise ValueError("it asks for another mode than a form, which is not offered")
    if not (isinstance(message, str) and isinstance(schema, dict)):
        raise ValueError("it has no message or no requestedSchema")  # noqa: TRY004 - what is wrong is the server's
    # Some servers name the dialect that is taken anyway, and many an older one.
    form = {name: value for name, value in schema.items() if name != "$schema"}
    schema_json = dumps(form) if form.get("properties") else b""
    return encode_question(invocation_id, request_id, message, schema_json, name[:_NAME_CHARS])


def result(answer: QuestionAnswer) -> bytes | RefusedInput:
    """What the server is told."""
    action = _ACTIONS.get(answer.action)
    if action is None:
        return RefusedInput(answer.reason, answer.problem)
    if action != "accept":
        return b'{"action":"%b"}' % action.encode()
    # JSON has line ends between its tokens alone, and a message is one line.
    content = (answer.content_json or b"{}").replace(b"\n", b" ").replace(b"\r", b" ")
    return b'{"action":"accept","content":%b}' % content
