"""Parses requests of callers: none is parsed that has more fields than its method's requests ever do.

An empty field takes two bytes: 2 MiB can hold a million, which take the event loop for 40 to 300 ms and 100 MiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.field_count import FieldCounter, MalformedMessageError, nested_tags
from fumehood_server.rpc.pacing import Pacer

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

UNCOUNTED_BYTES = 64 * 1024
"""A request of up to so many bytes is parsed without counting what it holds: with 32,768 empty fields, in 0.4 ms."""

PORTION = 512
"""Fields that are counted in one iteration of the loop, in 0.15 ms: after the first so many, requests take turns."""

MAX_FIELDS = PORTION
"""Fields of a request over `UNCOUNTED_BYTES`, on all levels together, where its method says nothing else."""

NOT_UNDERSTOOD = Refusal(RefusalReason.REQUEST_INVALID, "the request is not a message of this method's type")

_Message = TypeVar("_Message", bound=Message)


class RequestParser(Generic[_Message]):
    """Parses the requests of one method."""

    __slots__ = ("_max_bytes", "_max_fields", "_name", "_nested", "_parse", "_turns")

    def __init__(
        self, message: type[_Message], turns: Pacer, *, max_fields: int = MAX_FIELDS, max_bytes: int | None = None
    ) -> None:
        """`max_fields` is for requests over `UNCOUNTED_BYTES`, and counts the fields of their messages too.

        `turns` are those of everybody's requests of many fields. `max_bytes` None: gRPC's own bound is the only one.
        """
        self._parse = message.FromString
        self._name = message.DESCRIPTOR.name
        self._nested = nested_tags(cast("Descriptor", message.DESCRIPTOR))
        self._turns = turns
        self._max_fields = max_fields
        self._max_bytes = max_bytes

    async def parse(self, data: bytes) -> _Message:
        """The request.

        Raises:
            RefusedError: it is none, or too large.
        """
        if self._max_bytes is not None and len(data) > self._max_bytes:
            raise _invalid(f"the request is longer than the {self._max_bytes:,} bytes of a {self._name}")
        try:
            if len(data) > UNCOUNTED_BYTES:
                await self._check_fields(data)
            return self._parse(data)
        except (DecodeError, MalformedMessageError):
            raise RefusedError(NOT_UNDERSTOOD) from None

    async def _check_fields(self, data: bytes) -> None:
        counter, left = FieldCounter(data, self._nested), self._max_fields
        while counter.has_more(min(left, PORTION)):
            left -= PORTION
            if left <= 0:
                raise _invalid(
                    f"the request has more than the {self._max_fields:,} fields, on all levels, of a {self._name}"
                )
            await self._turns.turn()


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))
