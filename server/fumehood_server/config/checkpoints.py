"""Where signed checkpoints of the journal are handed to: `[journal.checkpoints]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fumehood_evidence.errors import NoteError
from fumehood_evidence.note import COSIGNATURE, Verifier

from fumehood_server.config.config_file import CheckpointsTable
from fumehood_server.config.toml_source import TomlSource

_TABLE = ("journal", "checkpoints")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlaces:
    """The places. None of them: checkpoints stay in the journal."""

    file: Path | None = None
    """Absolute."""
    command: tuple[str, ...] = ()
    witness: str = ""
    """URL that `/add-checkpoint` is added to."""
    witness_key: Verifier | None = None
    every_s: float = 60.0


def read_checkpoints(table: CheckpointsTable, source: TomlSource, folder: Path) -> CheckpointPlaces:
    """The table's places.

    Raises:
        ConfigError: one of them can't be used.
    """
    if (table.witness is None) is not (table.witness_key is None):
        missing, given = ("witness_key", "witness") if table.witness is not None else ("witness", "witness_key")
        raise source.problem((*_TABLE, given), f"there is no `{missing}`", "name both, or neither")
    if table.command and not table.command[0]:
        raise source.problem((*_TABLE, "command"), "its first part is empty", "name a program")
    return CheckpointPlaces(
        file=None if table.file is None else folder / table.file,
        command=tuple(table.command),
        witness=table.witness or "",
        witness_key=None if table.witness_key is None else _key(table.witness_key, source),
        every_s=table.every_s,
    )


def _key(text: str, source: TomlSource) -> Verifier:
    hint = "copy the key that the witness publishes: name+hash+key"
    try:
        key = Verifier.parse(text)
    except NoteError as exc:
        raise source.problem((*_TABLE, "witness_key"), str(exc), hint) from exc
    if key.algorithm != COSIGNATURE:
        raise source.problem((*_TABLE, "witness_key"), f'the key "{key.name}" makes no cosignatures', hint)
    return key
