"""Converts messages, tools and answers between ours and pydantic-ai's. Imported where an engine is configured alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from uuid import uuid4

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from fumehood_server.model.json_counts import too_much_of
from fumehood_server.orchestration.engines.engine import OfferedTool
from fumehood_server.orchestration.messages import Message, Role, ToolUse
from fumehood_server.validation.budget import INLINE
from fumehood_server.validation.json_in_parts import is_long_text, read

MAX_ID_CHARS = 128
"""Of a tool use. A longer one is replaced: each later request would carry it."""
MAX_TOOL_CHARS = 128
"""Of the name that a model calls a tool by. The rest is cut off: no tool has such a name."""
UNREADABLE = "unreadable_arguments"
"""The key under which a model is shown what it wrote, where that was no JSON object, or was too much. Servers refuse
it otherwise."""
_MOST_REMEMBERED = 4096


class ArgumentReader:
    """Tells which arguments of tools are no JSON objects, or hold too much. Of long ones it remembers the digests.

    Of one event loop.
    """

    __slots__ = ("_are_objects",)

    def __init__(self) -> None:
        """Nothing is remembered."""
        self._are_objects: dict[bytes, bool] = {}

    async def unreadable(self, messages: Iterable[Message]) -> AbstractSet[str]:
        """The arguments, as they stand in the messages. Where they are long together they are read in a thread."""
        texts = {use.arguments_json for message in messages for use in message.tool_uses}
        if sum(map(len, texts)) > INLINE.chars or any(map(is_long_text, texts)):
            return await asyncio.to_thread(self._unreadable, texts)
        return {text for text in texts if not _is_object(text)}

    def _unreadable(self, texts: Iterable[str]) -> AbstractSet[str]:
        return {text for text in texts if not self._is_object(text)}

    def _is_object(self, text: str) -> bool:
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        found = self._are_objects.get(digest)
        if found is None:
            found = _is_object(text)
            if len(self._are_objects) >= _MOST_REMEMBERED:
                self._are_objects.clear()
            self._are_objects[digest] = found
        return found


def to_model_messages(messages: Iterable[Message], unreadable: AbstractSet[str]) -> list[ModelMessage]:
    """What a conversation is to pydantic-ai: what is not a model's becomes one request until the model speaks.

    `unreadable` are the arguments that `ArgumentReader` tells of it.
    """
    found: list[ModelMessage] = []
    for message in messages:
        if message.role is Role.ASSISTANT:
            found.append(ModelResponse(parts=_response_parts(message, unreadable)))
        elif found and isinstance(found[-1], ModelRequest):
            found[-1] = ModelRequest(parts=[*found[-1].parts, _request_part(message)])
        else:
            found.append(ModelRequest(parts=[_request_part(message)]))
    return found


def to_tool_definitions(tools: Iterable[OfferedTool]) -> list[ToolDefinition]:
    """The tools, with their schemas as they are."""
    return [
        ToolDefinition(
            name=each.name,
            description=each.description,
            parameters_json_schema=dict(each.parameters),
            strict=False,
        )
        for each in tools
    ]


def to_message(text: str, parts: Sequence[ToolCallPart], conversation: Iterable[Message]) -> Message:
    """What a model said. Ids of its tool uses differ from one another, and from those of the conversation."""
    taken = {use.id for each in conversation for use in each.tool_uses}
    uses = []
    for part in parts:
        name = part.tool_call_id
        if not name or len(name) > MAX_ID_CHARS or not name.isprintable() or name in taken:
            name = f"call_{uuid4().hex}"
        taken.add(name)
        tool = encodable(part.tool_name[:MAX_TOOL_CHARS])
        uses.append(ToolUse(id=name, tool=tool, arguments_json=encodable(_arguments(part))))
    return Message(role=Role.ASSISTANT, text=encodable(text), tool_uses=tuple(uses))


def encodable(text: str) -> str:
    """The text with halves of surrogate pairs joined, or replaced: JSON's escapes can say them, and UTF-8 can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _request_part(message: Message) -> ModelRequestPart:
    if message.role is Role.SYSTEM:
        return SystemPromptPart(content=message.text)
    if message.role is Role.TOOL:
        return ToolReturnPart(
            tool_name=message.tool,
            content=message.text,
            tool_call_id=message.tool_use_id,
            outcome="failed" if message.is_error else "success",
        )
    return UserPromptPart(content=message.text)


def _response_parts(message: Message, unreadable: AbstractSet[str]) -> list[ModelResponsePart]:
    text: list[ModelResponsePart] = [TextPart(content=message.text)] if message.text else []
    return [
        *text,
        *(
            ToolCallPart(
                tool_name=use.tool,
                args=_shown(use.arguments_json, is_object=use.arguments_json not in unreadable),
                tool_call_id=use.id,
            )
            for use in message.tool_uses
        ),
    ]


def _arguments(part: ToolCallPart) -> str:
    if isinstance(part.args, str):
        return part.args
    return "{}" if part.args is None else json.dumps(part.args)


def _shown(arguments_json: str, *, is_object: bool) -> str:
    """The arguments, as a JSON object in any case: servers parse what stands in the conversation."""
    return arguments_json if is_object else json.dumps({UNREADABLE: arguments_json})


def _is_object(arguments_json: str) -> bool:
    """Whether it is an object that the libraries of models may parse, which they do in one go."""
    if too_much_of(arguments_json.encode(errors="surrogatepass")):
        return False
    try:
        return isinstance(read(arguments_json), dict)
    except (ValueError, RecursionError):
        return False


__all__ = ["ArgumentReader", "encodable", "to_message", "to_model_messages", "to_tool_definitions"]
