"""Turns the outcomes of reserved tools into the messages of `McpService`.

The documents that these are made of fit the schemas of `plugins.mcp_readings`, unless a hook has changed them since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import orjson
from fumehood.v1 import mcp_service_pb2 as pb
from fumehood.v1 import tool_pb2

from fumehood_server.model.call import Block, CallError, CallOutcome
from fumehood_server.model.content_messages import fill_block
from fumehood_server.model.taxonomy import Code
from fumehood_server.rpc.result_messages import ResultWriter

_Document = Mapping[str, Any]
Response = TypeVar(
    "Response",
    pb.ListResourcesResponse,
    pb.ListResourceTemplatesResponse,
    pb.ReadResourceResponse,
    pb.ListPromptsResponse,
    pb.GetPromptResponse,
)
Fill = Callable[[Response, _Document, tuple[Block, ...]], None]


def filled(outcome: CallOutcome, response: Response, fill: Fill[Response]) -> CallError | None:
    """Write what was read into an empty response. Returns why it isn't that of a reading, with the response empty."""
    try:
        fill(response, orjson.loads(outcome.details_json), outcome.content)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        response.Clear()
        return _not_a_reading(outcome)
    return None


def finished(outcome: CallOutcome, response: Response, error: CallError | None, results: ResultWriter) -> bytes:
    """The serialised response, with how the reading went."""
    # By way of a result, which has its other parts in the same messages.
    result = tool_pb2.ToolResult()
    results.fill(result, replace(outcome, content=(), details_json="", error=error))
    reading = response.reading
    reading.call_id, reading.attempts = result.call_id, result.attempts
    if result.HasField("usage"):
        reading.usage.CopyFrom(result.usage)
    if result.HasField("sandbox"):
        reading.sandbox.CopyFrom(result.sandbox)
    if error is not None:
        reading.error.CopyFrom(result.error)
    return response.SerializeToString()


def fill_resources(response: pb.ListResourcesResponse, document: _Document, _content: tuple[Block, ...]) -> None:
    """A page of `resources/list`."""
    for each in document["resources"]:
        made = response.resources.add(uri=each["uri"], **_about(each))
        if "size" in each:
            made.size = each["size"]
    _end_page(response, document)


def fill_templates(
    response: pb.ListResourceTemplatesResponse, document: _Document, _content: tuple[Block, ...]
) -> None:
    """A page of `resources/templates/list`."""
    for each in document["resourceTemplates"]:
        response.templates.add(uri_template=each["uri_template"], **_about(each))
    _end_page(response, document)


def fill_prompts(response: pb.ListPromptsResponse, document: _Document, _content: tuple[Block, ...]) -> None:
    """A page of `prompts/list`."""
    for each in document["prompts"]:
        prompt = response.prompts.add(name=each["name"], **_texts(each))
        for argument in each["arguments"]:
            prompt.arguments.add(name=argument["name"], required=argument["required"], **_texts(argument))
    _end_page(response, document)


def fill_contents(response: pb.ReadResourceResponse, document: _Document, content: tuple[Block, ...]) -> None:
    """What `resources/read` returned: a block for each of its contents."""
    # Without contents, what the call shows is its document.
    blocks = content if document["contents"] else ()
    for each, block in zip(document["contents"], blocks, strict=True):
        made = response.contents.add(uri=each["uri"], media_type=each["media_type"])
        if block.data is not None:
            made.blob = block.data
        else:
            made.text = block.text or ""


def fill_prompt(response: pb.GetPromptResponse, document: _Document, content: tuple[Block, ...]) -> None:
    """What `prompts/get` returned: a block for each of its messages."""
    response.description = document.get("description", "")
    blocks = content if document["messages"] else ()
    for each, block in zip(document["messages"], blocks, strict=True):
        message = response.messages.add(
            role=each["role"], resource_uri=each.get("uri", ""), resource_media_type=each.get("media_type", "")
        )
        fill_block(message.content, block)


def _end_page(
    response: pb.ListResourcesResponse | pb.ListResourceTemplatesResponse | pb.ListPromptsResponse, document: _Document
) -> None:
    response.left_out = document["left_out"]
    response.next_page_token = document.get("next_cursor", "")


def _about(document: _Document) -> dict[str, Any]:
    """What resources and templates have in common."""
    annotations = {key: document[key] for key in ("audience", "priority", "last_modified") if key in document}
    return {
        "name": document["name"],
        "media_type": document.get("media_type", ""),
        "annotations": pb.McpAnnotations(**annotations) if annotations else None,
        **_texts(document),
    }


def _texts(document: _Document) -> dict[str, str]:
    return {key: document.get(key, "") for key in ("title", "description")}


def _not_a_reading(outcome: CallOutcome) -> CallError:
    return CallError(
        code=Code.CONSTRAINT_SCHEMA_INVALID,
        message=f"What became of {outcome.tool} is no answer to it any more: a hook has changed its shape.",
    )
