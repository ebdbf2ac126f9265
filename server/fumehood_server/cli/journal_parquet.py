"""Events as a Parquet file, by pyarrow, which is an extra."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.query import outcome_of
from fumehood_server.model.extras import install_command

if TYPE_CHECKING:
    from fumehood_server.journal.store import StoredEvent

ROWS_OF_GROUP = 5_000
"""That are in memory before they are written: some 5 MB of events."""

_COLUMNS = ("position", "time", "type", "sidecar", "number", "call_id", "run_id", "session_id", "tool", "plugin")


def write_parquet(events: Iterable[StoredEvent], target: IO[bytes]) -> int:
    """Write them, some at a time. Returns how many there were.

    Raises:
        CommandError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise CommandError(
            "Parquet is written by pyarrow, which is not installed",
            f"Run {install_command('parquet')}.",
            code="EXTRA_MISSING",
            status=ExitStatus.FAILED,
            details={"extra": "parquet"},
        ) from error
    types = {"position": pa.int64(), "time": pa.timestamp("us", tz="UTC"), "number": pa.int64()}
    names = (*_COLUMNS, "outcome", "body")
    schema = pa.schema([pa.field(name, types.get(name, pa.string()), nullable=False) for name in names])
    written = 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        rows: list[tuple[Any, ...]] = []
        for event in events:
            rows.append(_row(event))
            if len(rows) == ROWS_OF_GROUP:
                written += _write(pa, writer, schema, rows)
        written += _write(pa, writer, schema, rows)
    return written


def _write(pa: Any, writer: Any, schema: Any, rows: list[tuple[Any, ...]]) -> int:  # noqa: ANN401 - untyped library
    count = len(rows)
    if rows:
        columns = [
            pa.array(column, type=each.type) for column, each in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        rows.clear()
    return count


def _row(event: StoredEvent) -> tuple[Any, ...]:
    fields = decode(event.body)
    return (
        event.position,
        event.time_us,
        event.type,
        fields["sidecar"],
        fields["number"],
        fields["call_id"],
        fields["run_id"],
        fields["context"].get("session_id", ""),
        event.tool,
        event.plugin,
        outcome_of(fields),
        event.body.decode(),
    )
