"""The sidecar's log: JSON lines on stderr, or readable ones where stderr is a terminal."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
import structlog

from fumehood_server.model.call import CallContext
from fumehood_server.model.text import escape_json, printable, visible_line
from fumehood_server.telemetry.background_writer import BackgroundWriter
from fumehood_server.telemetry.line_writer import LineWriter

_DELETE = b"\x7f"
_NEEDS_QUOTES = frozenset(' "=')
"""Characters that would end a value, or begin another."""

_FOR_PROGRAMS = frozenset({"loop_figures"})
"""Events that a person at a terminal can do nothing with."""
_REMEDIES = {"plugin_refused": "`fumehood plugin list` says what would mend it."}

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, slots=True)
class _Configured:
    """The renderer and writer that `configure_logging` chose."""

    render: Callable[[object, str, structlog.typing.EventDict], bytes]
    writer: LineWriter
    info: bool
    """Whether lines of level info are written."""


_configured: list[_Configured] = []
"""The last choice of `configure_logging`; empty before the first."""


class _LineLogger:
    """The logger wrapped by structlog: every level is one line, warnings and errors are written at once."""

    __slots__ = ("critical", "debug", "error", "exception", "info", "msg", "warning")

    def __init__(self, writer: LineWriter) -> None:
        """Write through `writer`."""
        self.msg = self.debug = self.info = writer.write_line
        self.warning = self.error = self.critical = self.exception = writer.write_line_now


def configure_logging(level: str, *, descriptor: int = 2, terminal: bool | None = None) -> Callable[[], None]:
    """Send the log to `descriptor` from now on. Returns the function that flushes it, within a second.

    Writing a line never waits for the log's reader (`BackgroundWriter`).

    `level` is "debug", "info", "warning" or "error"; `terminal` None asks the descriptor.
    """
    if terminal is None:
        terminal = sys.stderr.isatty()
    render = _plain if terminal else _json

    def dropped_line(lines: int) -> bytes:
        return render(None, "warning", {"event": "log_lines_dropped", "lines": lines})

    for before in _configured:
        before.writer.close()
    writer = LineWriter(BackgroundWriter(descriptor, dropped_line))
    structlog.configure(
        # One processor: each costs every line a call, and a line is written for every call of a tool.
        processors=[render],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _LineLogger(writer),
        cache_logger_on_first_use=False,
    )
    _configured[:] = [_Configured(render, writer, _LEVELS[level] <= logging.INFO)]
    library = logging.getLogger()
    library.handlers[:] = [_LibraryHandler()]
    library.setLevel(logging.WARNING)
    return writer.flush


class _LibraryHandler(logging.Handler):
    """Writes what libraries, gRPC above all, log by the standard library's logging as lines of this log."""

    def emit(self, record: logging.LogRecord) -> None:
        exc = record.exc_info[1] if record.exc_info else None
        write = get_logger().error if record.levelno >= logging.ERROR else get_logger().warning
        write("library_log", logger=record.name, message=record.getMessage(), **({"exc_info": exc} if exc else {}))


def get_logger(**fields: object) -> structlog.typing.FilteringBoundLogger:
    """A logger that puts `fields` on each of its lines. Take one after `configure_logging`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind(**fields)
    return logger


def log_lines_dropped() -> int:
    """Lines dropped so far because the log's reader is slow, as the log was configured last."""
    return _configured[-1].writer.dropped if _configured else 0


def call_lines() -> CallLines:
    """The logger of calls, as the log was configured last."""
    return CallLines(_configured[-1] if _configured and structlog.is_configured() else None)


class CallLines:
    """Logger of calls, without structlog's overhead: only these lines come by the thousand a second."""

    __slots__ = ("_configured",)

    def __init__(self, configured: _Configured | None) -> None:
        """None writes through structlog, whoever configured it."""
        self._configured = configured

    def info(self, event: str, fields: dict[str, object]) -> None:
        """Write a line of level info."""
        configured = self._configured
        if configured is None:
            structlog.get_logger().info(event, **fields)
        elif configured.info:
            configured.writer.write_line(configured.render(None, "info", {"event": event, **fields}))

    def warning(self, event: str, fields: dict[str, object]) -> None:
        """Write a line of level warning."""
        structlog.get_logger().warning(event, **fields)


def correlation(context: CallContext) -> dict[str, str]:
    """All fields of a call's context, for each line about the call; empty when unknown."""
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


def _json(_logger: object, method: str, event: structlog.typing.EventDict) -> bytes:
    """One JSON object: event, level and time first."""
    line = {"event": event.pop("event"), "level": method, "timestamp": _now()}
    line.update(event if "exc_info" not in event else _rendered(event))
    try:
        text = orjson.dumps(line, default=str)
    except TypeError:
        # Lone surrogates, from the names of files, or nesting that orjson refuses. A log line must not fail its call.
        text = orjson.dumps({key: printable(value) for key, value in line.items()})
    if text.isascii() and _DELETE not in text:
        return text
    return escape_json(text.decode()).encode()


def _plain(_logger: object, method: str, event: structlog.typing.EventDict) -> bytes:
    """`TIME LEVEL event key=value …`, empty values left out; an exception's and reasons' lines follow, indented.

    No text can forge a line, since its newlines are escaped or followed by the indentation, nor a field, since its
    quotes are. What is of use to programs alone is left out.
    """
    fields = _rendered(event)
    text = printable(fields.pop("event"))
    if text in _FOR_PROGRAMS:
        raise structlog.DropEvent
    below = [*fields.pop("reasons")] if isinstance(fields.get("reasons"), list | tuple) else []
    below += [fields.pop("problem")] if "\n" in str(fields.get("problem")) else []  # such as how definitions differ
    below += [fields.pop("exception", ""), *([_REMEDIES[text]] if text in _REMEDIES else [])]
    exception = "".join(f"\n    {visible_line(line)}" for each in below for line in str(each).splitlines())
    pairs = "".join(f" {key}={_word(value)}" for key, value in fields.items() if value not in ("", None))
    return f"{_now()[11:19]} {method:<7} {text}{pairs}{exception}".encode(errors="replace")


def _rendered(event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """The fields, with an exception as its text."""
    exc = event.pop("exc_info", None)
    if isinstance(exc, BaseException):
        event["exception"] = "".join(traceback.format_exception(exc))
    elif exc:
        event["exception"] = traceback.format_exc()
    return event


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _word(value: object) -> str:
    text = str(value)
    if not _NEEDS_QUOTES & set(text):
        return printable(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'
