"""Serializes what a tool returned, and describes its type by a JSON Schema."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from fumehood_sdk.content import Blob, Content, Text
from fumehood_sdk.errors import ToolError
from fumehood_sdk.json_text import dumps
from fumehood_sdk.schema import outputs
from fumehood_sdk.schema.plain import NotPlainError
from fumehood_sdk.wire.plugin_frames import Block, DescribedBlock, Sent


class Output:
    """Serializes the results of one tool.

    Their types are not checked here but by the sidecar, against the output schema, whose word is the one that counts.
    """

    __slots__ = ("_details", "_write", "annotation", "json_schema")

    def __init__(self, annotation: Any) -> None:  # noqa: ANN401 - an annotation can be anything
        """Read a return annotation. Raises what pydantic raises for a type that it can't write."""
        self.annotation = _details_annotation(annotation)
        self.json_schema: dict[str, Any] | None = None
        self._write: Callable[[Any], bytes] = dumps
        # `-> None` has no details, not "null"; `-> int | None` has details, of which null is one.
        self._details = self.annotation not in (None, type(None), Any)
        if not self._details:
            return
        try:
            self.json_schema = outputs.json_schema_of(self.annotation)
        except NotPlainError:
            from fumehood_sdk.schema import by_pydantic  # noqa: PLC0415 - imports pydantic

            self.json_schema, serializer = by_pydantic.output_schema(self.annotation)
            self._write = lambda value: serializer.to_json(value, warnings=False)

    def encode_result(self, value: Any) -> Sent:  # noqa: ANN401
        """What is sent for a returned value.

        Raises:
            ToolError: it can't be written as JSON.
        """
        content: tuple[Block, ...] = ()
        terminate = False
        if isinstance(value, str):  # first, being most of them
            content = (value,)
        elif isinstance(value, Content):
            content = tuple(_block(block) for block in value.blocks)
            terminate = value.terminate
            value = value.details
            if value is None:
                return content, b"", terminate
        elif isinstance(value, Text | Blob):
            return (_block(value),), b"", False
        elif value is None and not self._details:
            return (), b"", False
        elif isinstance(value, list) and value and isinstance(value[0], Text | Blob):
            return tuple(_block(block) for block in value), b"", False
        try:
            return content, self._write(value), terminate
        except ValueError as error:
            raise ToolError(f"the tool's result can't be written as JSON: {error}", reason="invalid_output") from error


def _block(block: object) -> Block:
    if isinstance(block, Text):
        if not (block.media_type or block.resource_uri or block.annotations):
            return block.text
        return DescribedBlock(
            block.text,
            resource_uri=block.resource_uri,
            text_media_type=block.media_type,
            annotations=block.annotations,
        )
    if isinstance(block, Blob):
        held = bytes(block.data), block.media_type
        if not (block.resource_uri or block.annotations):
            return held
        return DescribedBlock(held, resource_uri=block.resource_uri, annotations=block.annotations)
    raise ToolError(f"a result's block is of type {type(block).__name__}, not Text or Blob", reason="invalid_output")


def _details_annotation(annotation: Any) -> Any:  # noqa: ANN401
    """The part of a return annotation that a schema is made of. Any: none is."""
    if annotation in (Content, Text, Blob):
        return Any
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Content:
        return arguments[0]
    if origin is list and _blocks_only(arguments[0]):
        return Any
    return annotation


def _blocks_only(annotation: Any) -> bool:  # noqa: ANN401
    return all(choice in (Text, Blob) for choice in typing.get_args(annotation) or (annotation,))
