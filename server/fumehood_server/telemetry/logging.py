"""The sidecar's log: JSON lines on stderr, or readable ones where stderr is a terminal."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from typing import Any

import orjson
import structlog

from fumehood_server.model.call import CallContext
from fumehood_server.telemetry.tick_writer import TickWriter

CORRELATION = tuple(CallContext.__dataclass_fields__)
"""Fields of a call's context. Each is on every line about a call, empty when unknown."""

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Lines:
    """The logger beneath structlog: every level is one line."""

    __slots__ = ("msg", "debug", "info", "warning", "error", "critical", "exception")  # noqa: RUF023 - by rank

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` takes one line without its end."""
        self.msg = self.debug = self.info = self.warning = self.error = self.critical = self.exception = write


def configure_logging(level: str, *, descriptor: int = 2, terminal: bool | None = None) -> Callable[[], None]:
    """Send the log to `descriptor` from now on. Returns the function that flushes it.

    `level` is "debug", "info", "warning" or "error"; `terminal` None asks the descriptor.
    """
    writer = TickWriter(descriptor)
    if terminal is None:
        terminal = sys.stderr.isatty()
    render: Any = _plain if terminal else _json
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.ExceptionRenderer(),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _Lines(writer.write),
        cache_logger_on_first_use=False,
    )
    atexit.register(writer.flush)
    return writer.flush


def get_logger(**fields: object) -> structlog.typing.FilteringBoundLogger:
    """A logger that puts `fields` on each of its lines. Take one after `configure_logging`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind(**fields)
    return logger


def correlation(context: CallContext) -> dict[str, str]:
    """The context's fields, for one line."""
    return {
        "request_id": context.request_id,
        "session_id": context.session_id,
        "trace_id": context.trace_id,
        "span_id": context.span_id,
        "parent_span_id": context.parent_span_id,
        "turn_id": context.turn_id,
        "step_name": context.step_name,
        "caused_by": context.caused_by,
    }


def _json(_logger: object, _method: str, event: structlog.typing.EventDict) -> bytes:
    return orjson.dumps(event, default=str)


def _plain(_logger: object, _method: str, event: structlog.typing.EventDict) -> bytes:
    """`TIME LEVEL event key=value …`, empty values left out, no control characters: a plugin's text can hold them."""
    time, level, text = event.pop("timestamp"), event.pop("level"), event.pop("event")
    pairs = "".join(f" {key}={_word(value)}" for key, value in event.items() if value not in {"", None})
    return f"{str(time)[11:19]} {level:<7} {_clean(str(text))}{pairs}".encode(errors="replace")


def _word(value: object) -> str:
    text = _clean(str(value))
    return f'"{text}"' if " " in text else text


def _clean(text: str) -> str:
    return "".join(each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text)
