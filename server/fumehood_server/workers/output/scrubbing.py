"""Takes the secrets that a plugin was handed out of its frames, before anything else looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood_server.model.inferences import MAX_MESSAGES, MAX_TEXT_BYTES
from fumehood_server.model.questions import MAX_MESSAGE_BYTES, MAX_SCHEMA_BYTES
from fumehood_server.workers.output.logs import without_secrets
from fumehood_server.workers.wire.messages import MAX_BLOCKS

if TYPE_CHECKING:
    from fumehood.v1 import plugin_pb2

    from fumehood_server.secrets import Redactor


def scrub_update(message: plugin_pb2.Update, redactor: Redactor) -> None:
    """Take them out of an update, in place."""
    message.message = redactor.text(message.message)
    message.unit = redactor.text(message.unit)
    message.data_json = without_secrets(message.data_json, redactor)


def scrub_question(message: plugin_pb2.Question, redactor: Redactor) -> None:
    """Take them out of a question, in place. A schema that is no JSON afterwards is refused as such.

    One that is too long is refused unread.
    """
    if len(message.message) > MAX_MESSAGE_BYTES or len(message.schema_json) > MAX_SCHEMA_BYTES:
        return
    message.message = redactor.text(message.message)
    message.schema_json = redactor.text(message.schema_json)


def scrub_inference(message: plugin_pb2.InferenceRequest, redactor: Redactor) -> None:
    """Take them out of what a model is to be asked, in place. What is too long is refused unread."""
    if len(message.system_prompt) + sum(len(each.text) for each in message.messages) > MAX_TEXT_BYTES:
        return
    message.system_prompt = redactor.text(message.system_prompt)
    for each in message.messages[:MAX_MESSAGES]:
        each.text = redactor.text(each.text)


def scrub_result(message: plugin_pb2.Result, redactor: Redactor) -> None:
    """Take them out of a result, in place; of its blocks only if they are few enough to be passed on.

    Details that are no JSON afterwards stay as they are then: they fail the check of results, as they must.
    """
    for content in message.content if len(message.content) <= MAX_BLOCKS else ():
        kind = content.WhichOneof("block")
        if kind == "text":
            content.text = redactor.text(content.text)
        elif kind == "blob":
            content.blob.data = redactor.data(content.blob.data)
            content.blob.media_type = redactor.text(content.blob.media_type)
    message.details_json = redactor.text(message.details_json)
    if message.HasField("error"):
        error = message.error
        error.message = redactor.text(error.message)
        error.reason = redactor.text(error.reason)
        error.details_json = redactor.text(error.details_json)
