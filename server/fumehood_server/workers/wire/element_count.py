"""Counts the fields of a serialized protobuf message, up to a bound and without parsing it.

An empty field takes two bytes: a frame of 4 MiB can hold two million, of which the parser makes 250 MiB of objects.
"""

from __future__ import annotations

from fumehood.v1 import plugin_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

_MORE = 0x80
_BITS = 0x7F
_WIRE_TYPE_BITS = 3
_WIRE_TYPE = 0x07
_VARINT, _FIXED64, _DELIMITED, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_MAX_VARINT_BYTES = 10
_COSTLY = {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE}

_Nested = dict[int, "_Nested"]
"""Of a message type: the tags of its fields that are messages, with the same of theirs."""


class MalformedMessageError(ValueError):
    """The bytes are no protobuf message."""


def _nested(message: Descriptor) -> _Nested:
    """The table of a message type that doesn't contain itself.

    A message of numbers alone is left out: the parser keeps one object of it, and reads 200 million a second.
    """
    found = {}
    for field in message.fields:
        inner = field.message_type
        if inner is not None and any(each.type in _COSTLY for each in inner.fields):
            found[field.number << _WIRE_TYPE_BITS | _DELIMITED] = _nested(inner)
    return found


_PLUGIN_FRAME = _nested(plugin_pb2.PluginFrame.DESCRIPTOR)


def has_more_elements(  # noqa: C901, PLR0912 - a function for each kind of field would take twice as long
    frame: bytes, limit: int
) -> bool:
    """Whether a `PluginFrame` holds more than `limit` fields, unknown ones and those of its messages included.

    It takes a step for each field, so no more than `limit`, however long the frame is.

    Raises:
        MalformedMessageError: it is no message. No writer produces what is refused here and not by the parser.
    """
    position, end, nested = 0, len(frame), _PLUGIN_FRAME
    outer: list[tuple[int, _Nested]] = []
    try:
        while True:
            while position == end:
                if not outer:
                    return False
                end, nested = outer.pop()
            if not limit:
                return True
            limit -= 1
            tag = frame[position]
            position += 1
            if tag & _MORE:
                tag, position = _read_varint(frame, position - 1)
            wire_type = tag & _WIRE_TYPE
            if wire_type == _DELIMITED:
                length = frame[position]
                position += 1
                if length & _MORE:
                    length, position = _read_varint(frame, position - 1)
                if tag in nested:
                    outer.append((end, nested))
                    nested = nested[tag]
                    end = position + length
                    if end > outer[-1][0]:
                        raise MalformedMessageError
                else:
                    position += length
            elif wire_type == _VARINT:
                position = position + 1 if frame[position] < _MORE else _read_varint(frame, position)[1]
            elif wire_type == _FIXED64:
                position += 8
            elif wire_type == _FIXED32:
                position += 4
            elif wire_type not in {_START_GROUP, _END_GROUP}:  # what is between counts where the group stands
                raise MalformedMessageError
            if position > end:
                raise MalformedMessageError
    except IndexError as error:
        raise MalformedMessageError from error


def _read_varint(frame: bytes, position: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        byte = frame[position + index]
        number |= (byte & _BITS) << 7 * index
        if byte < _MORE:
            return number, position + index + 1
    raise MalformedMessageError
