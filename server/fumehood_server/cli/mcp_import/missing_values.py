"""Values of granted secrets that fumehood.toml names files for, which aren't there: written, or left to be written."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from fumehood_server.cli.mcp_import.kept_secrets import (
    SECRETS_NAME,
    ask_values,
    make_secrets_folder,
    others_with,
    write_new,
)
from fumehood_server.cli.mcp_import.outcome import Outcome, Status
from fumehood_server.cli.mcp_import.plan import PlannedSecret
from fumehood_server.cli.mcp_import.server_import import ServerImport
from fumehood_server.cli.mcp_import.undo import secret_restored_on_failure


@dataclass(slots=True)
class MissingValues:
    """What became of them."""

    notes: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    """Where those are to be put that are missing still."""

    def tell(self, outcome: Outcome) -> None:
        """Tell it. With one missing still the import is unfinished."""
        outcome.notes += self.notes
        outcome.todo_later += self.todo
        if self.todo:
            outcome.status = Status.UNFINISHED


def write_missing(server: ServerImport, undo: contextlib.ExitStack) -> MissingValues:
    """Write those that the host's configuration has, if the asker says so, with `undo` to take that back.

    Only where an import keeps values, and for this plugin alone.

    Raises:
        OSError: a file can't be written.
    """
    found = MissingValues()
    for secret in server.held:
        kept = server.config.secrets.get(secret.name)
        path = None if kept is None else kept.file
        if path is None or not _is_missing(path):
            continue
        value = _value(server, secret, path)
        if value and server.run.dry_run:
            found.notes.append(f"{path} isn't there: the value of {secret.variable} would be written to it")
        elif value and _write(path, value, undo):
            found.notes.append(f"{path} wasn't there, and holds the value of {secret.variable} now")
        else:
            if not server.run.dry_run and _is_where_values_are_kept(server, path):
                make_secrets_folder(path.parent)  # into which it is to be put
            found.todo.append(
                f"put the value of {secret.variable} into {path} (mode 0600): it isn't there, and the server doesn't "
                "work without it"
            )
    return found


def _write(path: Path, value: str, undo: contextlib.ExitStack) -> bool:
    make_secrets_folder(path.parent)
    undo.enter_context(secret_restored_on_failure(path))
    return write_new(path, value)


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # whoever serves may see it
        return False
    return False


def _value(server: ServerImport, secret: PlannedSecret, path: Path) -> str:
    """The value that may be written. Empty: there is none."""
    asker = server.run.asker
    if not _is_kept_for(server, secret, path) or not (secret.value or (asker.asks and not secret.environment)):
        return ""
    # It is granted: for one that isn't known, the value is the only question, and Enter leaves it.
    if secret.value is not None and not asker.secret(server.plan.name, secret):
        return ""
    (known,) = ask_values((secret,), asker)
    return known.value or ""


def _is_where_values_are_kept(server: ServerImport, path: Path) -> bool:
    return path.parent.resolve() == (server.config.server.state_dir / SECRETS_NAME).resolve()


def _is_kept_for(server: ServerImport, secret: PlannedSecret, path: Path) -> bool:
    """Whether the file lies where imports keep values, and is for this plugin and this secret alone."""
    config = server.config
    if not _is_where_values_are_kept(server, path) or os.path.lexists(path):
        return False
    if others_with(secret, config, server.folder):
        return False
    place = path.parent.resolve() / path.name
    files = {name: each.file for name, each in config.secrets.items() if each.file is not None}
    return not any(name != secret.name and file.resolve() == place for name, file in files.items())
