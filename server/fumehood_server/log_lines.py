"""The sidecar's own lines of the log: what plugins said, what held everybody up, what the operator must mend."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from fumehood_server.callers import TokenFileError
from fumehood_server.telemetry import LoopFigures, get_logger
from fumehood_server.workers import LogLine


def forward_plugin_line(plugin: str, line: LogLine) -> None:
    """A plugin's line in the sidecar's log. What plugins print is theirs to keep quiet: it is logged at their level."""
    write = getattr(get_logger(), line.level)
    write(
        "plugin_log",
        plugin=plugin,
        source=line.source,
        message=line.message,
        worker_id=line.worker_id,
        call_id=line.call_id,
        dropped=line.dropped,
        fields_json=line.fields_json,
    )


def tokens_unusable(log: FilteringBoundLogger, problem: TokenFileError) -> None:
    """No token holds until it is mended."""
    log.error("tokens_unusable", problem=str(problem), remedy=problem.remedy)


def held_up(log: FilteringBoundLogger, seconds: float, culprit: str, times: int) -> None:
    """The watchdog's line: everybody waited so long."""
    log.warning("loop_held_up", ms=round(seconds * 1000, 1), culprit=culprit, times=times)


def loop_fields(figures: LoopFigures) -> dict[str, object]:
    """The watchdog's figures, as lines have them."""
    return {
        "loop_longest_ms": round(figures.longest_s * 1000, 1),
        "loop_longest_culprit": figures.culprit,
        "loop_over_20_ms": figures.over_20_ms,
        "loop_over_100_ms": figures.over_100_ms,
    }
