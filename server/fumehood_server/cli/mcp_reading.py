"""Readings of hosted MCP servers for the commands: every page, an approval that is waited for, failures, and JSON."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any

from fumehood_server.cli import json_output, output
from fumehood_server.cli.failure import CommandError, ExitStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from fumehood.v1 import mcp_service_pb2 as pb

    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.json_output import JsonObject

MAX_PAGES = 256
"""Of one listing: a server may have a next page for ever."""
FAILED = "TOOL_EXECUTION_FAILED"
"""The code of an error that a server answers."""
_APPROVAL_REQUIRED = "TOOL_APPROVAL_REQUIRED"
_ID_BYTES = 16


def read(client: SidecarClient, method: str, request: Any) -> Any:  # noqa: ANN401 - of any reading
    """The response of a reading. Where it has to be approved, that is said and waited for."""
    _return_if_approval_required(request)
    response = client.read_mcp(method, request)
    if response.reading.error.code != _APPROVAL_REQUIRED:
        return response
    details = output.json_or_text(response.reading.error.details_json)
    approval_id = details.get("approval_id", "") if isinstance(details, dict) else ""
    output.note(f"this reading waits to be approved: fumehood approvals approve {approval_id}")
    request.options.return_if_approval_required = False
    return client.read_mcp(method, request)


def _return_if_approval_required(request: Any) -> None:  # noqa: ANN401 - likewise
    """Have it answered at once where it has to be approved: the approval is known by the call's id."""
    request.options.call_id = f"call-{secrets.token_hex(_ID_BYTES)}"
    request.options.return_if_approval_required = True


def pages(client: SidecarClient, method: str, request: Any) -> Iterator[Any]:  # noqa: ANN401 - likewise
    """Every page of a listing. The last may have an error."""
    for _ in range(MAX_PAGES):
        page = read(client, method, request)
        yield page
        request.page_token = page.next_page_token
        if page.reading.HasField("error") or not page.next_page_token:
            return
    output.note(f"{request.plugin} has more than {MAX_PAGES} pages; the rest is left out")


def listed(
    client: SidecarClient,
    method: str,
    request: Any,  # noqa: ANN401 - likewise
    failed: dict[str, pb.McpReading],
) -> Iterator[Any]:
    """Every page of a server's listing that could be read. Why one could not is put into `failed`, by the server."""
    for page in pages(client, method, request):
        if page.reading.HasField("error"):
            failed[request.plugin] = page.reading
        yield page


def check_prompt_arguments(client: SidecarClient, plugin: str, name: str, given: Collection[str]) -> None:
    """Say which arguments were left out, where a server failed to fill in a prompt: many answer no more than that.

    It is looked up then alone, since a listing is a call for itself. Nothing is said where that one fails, too.

    Raises:
        CommandError: the prompt requires an argument that isn't given.
    """
    from fumehood.v1 import mcp_service_pb2 as pb

    request = pb.ListPromptsRequest(plugin=plugin)
    for _ in range(MAX_PAGES):
        _return_if_approval_required(request)
        try:
            page = client.read_mcp("ListPrompts", request)
        except CommandError:
            return
        for each in page.prompts:
            lacks = [one.name for one in each.arguments if one.required and one.name not in given]
            if each.name == name and lacks:
                more = " ".join(f"{one}=..." for one in lacks)
                raise CommandError(f"{plugin} {name} requires {', '.join(lacks)}", f"Give {more}")
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def servers(client: SidecarClient, plugin: str, method: str) -> list[str]:
    """The plugins to ask: the one that is named, else all that may be asked and can be."""
    if plugin:
        return [plugin]
    found = [each for each in client.list_mcp_servers() if any(known.method == method for known in each.methods)]
    why: dict[str, list[str]] = {}
    for each in found:
        for reason in each.availability.reasons[:1]:
            message = reason.message
            for known in each.methods:  # the sidecar says it of one of them for all
                message = message.replace(known.method, method)
            why.setdefault(message, []).append(each.plugin)
    for message, names in why.items():
        output.note(output.one_line(f"{', '.join(names)} can't be asked: {message}"))
    return [each.plugin for each in found if each.availability.available]


def explain(what: str, reading: pb.McpReading, *, as_json: bool) -> ExitStatus:
    """Print why a reading failed, on stderr, unless JSON says so. Returns the command's exit status."""
    error = reading.error
    if not as_json:
        text = output.hanging(f"{what}: {error.message}  [{error.code}]")
        output.say(output.Part("error: ", fg="red", bold=True), text, err=True)
    return ExitStatus.WRONG if error.code == "TOOL_NOT_FOUND" else ExitStatus.FAILED


def errors_json(failed: Mapping[str, pb.McpReading]) -> list[JsonObject]:
    """Which servers could not be listed, and why."""
    return [{"plugin": name, "error": json_output.error_json(each.error)} for name, each in failed.items()]


def reading_json(reading: pb.McpReading) -> JsonObject:
    """How a reading went."""
    return {
        "call_id": reading.call_id,
        "error": json_output.error_json(reading.error) if reading.HasField("error") else None,
        "attempts": reading.attempts,
        "usage": json_output.usage_json(reading.usage) if reading.HasField("usage") else None,
        "sandbox": json_output.receipt_json(reading.sandbox) if reading.HasField("sandbox") else None,
    }


def resource_json(plugin: str, resource: pb.McpResource) -> JsonObject:
    """A resource."""
    size = resource.size if resource.HasField("size") else None
    return {"plugin": plugin, "uri": resource.uri, **_about(resource), "size_bytes": size}


def template_json(plugin: str, template: pb.McpResourceTemplate) -> JsonObject:
    """A template of resources."""
    return {"plugin": plugin, "uri_template": template.uri_template, **_about(template)}


def contents_json(contents: pb.McpContents) -> JsonObject:
    """A part of what a resource holds."""
    shape: JsonObject = {"uri": contents.uri, "media_type": contents.media_type}
    if contents.WhichOneof("contents") == "blob":
        return {**shape, "type": "blob", "data_base64": base64.b64encode(contents.blob).decode()}
    return {**shape, "type": "text", "text": contents.text}


def prompt_json(plugin: str, prompt: pb.McpPrompt) -> JsonObject:
    """A prompt, and what it takes."""
    taken = [
        {"name": each.name, "title": each.title, "description": each.description, "required": each.required}
        for each in prompt.arguments
    ]
    return {
        "plugin": plugin,
        "name": prompt.name,
        "title": prompt.title,
        "description": prompt.description,
        "arguments": taken,
    }


def message_json(message: pb.McpPromptMessage) -> JsonObject:
    """A message of a prompt that is filled in."""
    return {
        "role": message.role,
        "content": json_output.block_json(message.content),
        "resource_uri": message.resource_uri,
        "resource_media_type": message.resource_media_type,
    }


def _about(what: pb.McpResource | pb.McpResourceTemplate) -> JsonObject:
    return {
        "name": what.name,
        "title": what.title,
        "description": what.description,
        "media_type": what.media_type,
        "annotations": json_output.annotations_json(what.annotations) if what.HasField("annotations") else None,
    }
