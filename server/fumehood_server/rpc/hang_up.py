"""Clients that leave: a cancelled stream or a closed connection is no fault, and no traceback in the log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import grpc

_GRPC_LOGGER = logging.getLogger("grpc._cython.cygrpc")


@contextlib.contextmanager
def hang_ups_end_it() -> Iterator[None]:
    """Leave the block quietly where something can't be sent, since whom it is for has gone away."""
    try:
        yield
    except (grpc.aio.InternalError, BaseExceptionGroup) as error:
        if not _is_hang_up(error):
            raise


def keep_hang_ups_from_log() -> None:
    """Have gRPC not log that a status could not be sent: it does so for each client that left before it. Idempotent."""
    if _keep not in _GRPC_LOGGER.filters:
        _GRPC_LOGGER.addFilter(_keep)


def _keep(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, grpc.aio.InternalError)


def _is_hang_up(error: BaseException) -> bool:
    """Whether sending failed, and nothing else: gRPC's core has no other reason for it."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_hang_up(each) for each in error.exceptions)
    return isinstance(error, grpc.aio.InternalError)
