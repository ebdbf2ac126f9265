"""Takes the secrets that a plugin was handed out of its frames, before anything else looks at them.

Each function is a generator of steps of a few milliseconds, in place. What a frame says is as long as a frame may be.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from fumehood_server.model.inferences import MAX_MESSAGES, MAX_TEXT_BYTES
from fumehood_server.model.questions import MAX_MESSAGE_BYTES, MAX_NAME_CHARS, MAX_SCHEMA_BYTES
from fumehood_server.workers.output.logs import json_or_nothing
from fumehood_server.workers.wire.messages import MAX_BLOCKS, MAX_UPDATE_DATA_BYTES

if TYPE_CHECKING:
    from fumehood.v1 import plugin_pb2

    from fumehood_server.secrets import Redactor


AT_ONCE_BYTES = 16 * 1024
AT_ONCE_ITEMS = 32
"""A frame of up to so many bytes, and blocks, values or messages, is scrubbed in one go: of bytes that are all secrets
in under 2 ms, of items in 0.4 ms."""

Steps = Generator[None, None, None]


def is_short(frame: plugin_pb2.PluginFrame, size: int) -> bool:
    """Whether a frame, of `size` bytes, may be scrubbed in one go."""
    if size > AT_ONCE_BYTES:
        return False
    kind = frame.WhichOneof("frame")
    if kind == "result":
        return len(frame.result.content) <= AT_ONCE_ITEMS
    if kind == "recorded_values":
        return len(frame.recorded_values.values) <= AT_ONCE_ITEMS
    return kind != "inference_request" or len(frame.inference_request.messages) <= AT_ONCE_ITEMS


def scrub_frame(frame: plugin_pb2.PluginFrame, redactor: Redactor) -> Steps:
    """Take them out of a frame of any kind that anybody is shown. A log line is cut first, and scrubbed by its log."""
    kind = frame.WhichOneof("frame")
    if kind == "result":
        yield from _scrub_result(frame.result, redactor)
    elif kind == "update":
        yield from _scrub_update(frame.update, redactor)
    elif kind == "question":
        yield from _scrub_question(frame.question, redactor)
    elif kind == "inference_request":
        yield from _scrub_inference(frame.inference_request, redactor)
    elif kind == "recorded_values":
        yield from _scrub_values(frame.recorded_values, redactor)


def _scrub_update(message: plugin_pb2.Update, redactor: Redactor) -> Steps:
    message.message = yield from redactor.text_in_steps(message.message)
    message.unit = yield from redactor.text_in_steps(message.unit)
    before = message.data_json  # each access makes another object
    if len(before) > MAX_UPDATE_DATA_BYTES:  # it is not passed on
        message.data_json = ""
        return
    found = yield from redactor.text_in_steps(before)
    message.data_json = json_or_nothing(before, found)


def _scrub_question(message: plugin_pb2.Question, redactor: Redactor) -> Steps:
    """A schema that is no JSON afterwards is refused as such. One that is too long is refused unread."""
    if len(message.message) > MAX_MESSAGE_BYTES or len(message.schema_json) > MAX_SCHEMA_BYTES:
        return
    message.message = yield from redactor.text_in_steps(message.message)
    message.schema_json = yield from redactor.text_in_steps(message.schema_json)
    message.name = yield from redactor.text_in_steps(message.name[:MAX_NAME_CHARS])


def _scrub_inference(message: plugin_pb2.InferenceRequest, redactor: Redactor) -> Steps:
    """What is too long is refused unread."""
    if len(message.system_prompt) + sum(len(each.text) for each in message.messages) > MAX_TEXT_BYTES:
        return
    message.system_prompt = yield from redactor.text_in_steps(message.system_prompt)
    for each in message.messages[:MAX_MESSAGES]:
        each.text = yield from redactor.text_in_steps(each.text)
        yield


def _scrub_values(message: plugin_pb2.RecordedValues, redactor: Redactor) -> Steps:
    for each in message.values:
        each.name = yield from redactor.text_in_steps(each.name)
        each.value_json = yield from redactor.text_in_steps(each.value_json)
        each.error_json = yield from redactor.text_in_steps(each.error_json)
        yield


def _scrub_result(message: plugin_pb2.Result, redactor: Redactor) -> Steps:
    """Of its blocks only if they are few enough to be passed on.

    Details that are no JSON afterwards stay as they are then: they fail the check of results, as they must.
    """
    text = redactor.text_in_steps
    for content in message.content if len(message.content) <= MAX_BLOCKS else ():
        kind = content.WhichOneof("block")
        if kind == "text":
            content.text = yield from text(content.text)
        elif kind == "blob":
            content.blob.data = yield from redactor.data_in_steps(content.blob.data)
            content.blob.media_type = yield from text(content.blob.media_type)
        content.resource_uri = yield from text(content.resource_uri)
        content.text_media_type = yield from text(content.text_media_type)
        if content.HasField("annotations"):
            content.annotations.last_modified = yield from text(content.annotations.last_modified)
        yield
    message.details_json = yield from text(message.details_json)
    if message.HasField("error"):
        error = message.error
        error.message = yield from text(error.message)
        error.reason = yield from text(error.reason)
        error.details_json = yield from text(error.details_json)
