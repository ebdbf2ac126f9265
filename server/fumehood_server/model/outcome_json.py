"""What a call's caller got, as the JSON that is kept of it, and back."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import orjson

from fumehood_server.model.call import Annotations, Block, CallError, CallOutcome
from fumehood_server.model.coercion import Coercion
from fumehood_server.model.taxonomy import Code


def outcome_to_json(outcome: CallOutcome) -> bytes:
    """Content, structured output, hint and error: enough to give them again."""
    fields: dict[str, Any] = {
        "content": [_block_to_json(block) for block in outcome.content],
        "details_json": outcome.details_json,
        "terminate": outcome.terminate,
        "error": _error_to_json(outcome.error),
    }
    if outcome.coercions:
        fields["coercions"] = [(each.pointer, each.rule, each.message) for each in outcome.coercions]
    try:
        return orjson.dumps(fields, default=str)
    except TypeError:  # keys that are no text, halves of surrogate pairs: an outcome is recorded all the same
        return json.dumps(_plain(fields), default=str).encode()


def outcome_from_json(data: bytes, *, call_id: str, tool: str, attempts: int) -> CallOutcome:
    """The outcome that `outcome_to_json` was given, less its usage and receipt.

    Raises:
        ValueError: it is none.
    """
    try:
        fields = orjson.loads(data)
    except ValueError:  # halves of surrogate pairs, which `json` takes
        fields = json.loads(data)
    try:
        return CallOutcome(
            call_id=call_id,
            tool=tool,
            content=tuple(_block_from_json(each) for each in fields["content"]),
            details_json=fields["details_json"],
            terminate=fields["terminate"],
            error=_error_from_json(fields["error"]),
            attempts=attempts,
            coercions=tuple(Coercion(*each) for each in fields.get("coercions", ())),
        )
    except (KeyError, TypeError) as exc:
        raise ValueError("is no outcome") from exc


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value, nearly
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _block_to_json(block: Block) -> dict[str, Any]:
    """What is not said has no key: a block of text is as it was recorded before there was more to say."""
    if block.data is None:
        fields: dict[str, Any] = {"text": block.text or ""}
        if block.media_type:
            fields["media_type"] = block.media_type
    else:
        fields = {"data": b64encode(block.data).decode(), "media_type": block.media_type}
    if block.resource_uri:
        fields["resource_uri"] = block.resource_uri
    said = block.annotations
    if said is not None:
        fields["annotations"] = (said.audience, said.priority, said.last_modified)
    return fields


def _block_from_json(fields: Mapping[str, Any]) -> Block:
    said = fields.get("annotations")
    return Block(
        text=fields.get("text"),
        data=None if "text" in fields else b64decode(fields["data"]),
        media_type=fields.get("media_type", "") if "text" in fields else fields["media_type"],
        resource_uri=fields.get("resource_uri", ""),
        annotations=None if said is None else Annotations(tuple(said[0]), said[1], said[2]),
    )


def _error_to_json(error: CallError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "code": error.code.value,
        "message": error.message,
        "retryable": error.retryable,
        "details": dict(error.details),
        "caused_by": _error_to_json(error.caused_by),
    }


def _error_from_json(fields: Mapping[str, Any] | None) -> CallError | None:
    if fields is None:
        return None
    return CallError(
        code=Code(fields["code"]),
        message=fields["message"],
        retryable=fields["retryable"],
        details=fields["details"],
        caused_by=_error_from_json(fields["caused_by"]),
    )
