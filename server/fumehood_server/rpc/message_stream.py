"""Server streams of serialised messages, at the pace of who reads them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import grpc

from fumehood_server.errors import RefusedError
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.hang_up import hang_ups_end_it
from fumehood_server.rpc.unread import STREAM_BYTES

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext


async def send_messages(
    server: ServerContext,
    messages: AsyncGenerator[bytes, None],
    context: grpc.aio.ServicerContext[Any, bytes],
) -> None:
    """Write messages until there are no more or the caller leaves: of what has an end of its own, also in a drain.

    Raises:
        RefusedError: as `messages` does; the caller may use the method no more.
    """
    with hang_ups_end_it():
        await _send(server, messages, context)


async def follow_messages(
    server: ServerContext,
    messages: AsyncGenerator[bytes, None],
    context: grpc.aio.ServicerContext[Any, bytes],
    refusing: AbstractContextManager[None],
) -> None:
    """Write messages of what never ends until the caller leaves or the sidecar has drained.

    `refusing` makes of what `messages` raises what the caller is told.

    Raises:
        RefusedError: as `messages` and `refusing` do; the caller may use the method no more.
    """
    refused: list[RefusedError] = []  # past a task group, which would wrap it

    async def send() -> None:
        try:
            with refusing:
                await _send(server, messages, context)
        except RefusedError as exc:
            refused.append(exc)

    with hang_ups_end_it():
        await server.drain.until_end(send())
    if refused:
        raise refused[0]


async def _send(
    server: ServerContext, messages: AsyncGenerator[bytes, None], context: grpc.aio.ServicerContext[Any, bytes]
) -> None:
    turn, unread, caller, who = server.pacer.turn, server.unread, context.peer(), asking()
    async with contextlib.aclosing(messages):
        async for message in messages:
            await turn()
            who.still()
            with unread.held(caller, len(message) + STREAM_BYTES):
                await context.write(message)
