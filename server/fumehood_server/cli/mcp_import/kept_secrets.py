"""Secrets of imported servers: each in a file of its own, under a name that no other plugin is granted."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fumehood_server.cli.mcp_import.asking import Asker
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.names import earlier_secret_name
from fumehood_server.cli.mcp_import.plan import PlannedSecret, ServerPlan
from fumehood_server.cli.mcp_import.undo import replace_secret, secret_restored_on_failure
from fumehood_server.config import SidecarConfig

SECRETS_NAME = "secrets"
"""Folder in `state_dir`, of which no plugin can be granted anything."""


def secret_file(config: SidecarConfig, name: str) -> Path:
    """Where the value of a secret is kept."""
    return config.server.state_dir / SECRETS_NAME / name


def new_secrets(config: SidecarConfig, secrets: Iterable[PlannedSecret]) -> dict[str, tuple[str, Path | str]]:
    """The `[secrets.NAME]` that the configuration lacks."""
    return {
        each.name: ("env", each.environment) if each.environment else ("file", secret_file(config, each.name))
        for each in secrets
        if each.name not in config.secrets
    }


def with_granted_names(
    plan: ServerPlan, config: SidecarConfig, folder: Path, granted: Mapping[str, Any] | None
) -> ServerPlan:
    """The plan with the names under which an earlier import was granted its secrets, which may be of an older form.

    One that another plugin is granted too is not taken up where its value is another: it may be that plugin's.
    """
    named = set() if granted is None else set(granted["secrets"])
    taken = {each.name for each in plan.secrets}
    names: dict[str, str] = {}
    for each in plan.secrets:
        old = earlier_secret_name(plan.name, each.variable)
        if old not in named or old in taken or each.name in named:
            continue
        known = replace(each, name=old)
        if not (others_with(known, config, folder) and (_is_other_source(config, known) or _differs(config, known))):
            names[each.name] = old
            taken.add(old)
    secrets = tuple(replace(each, name=names.get(each.name, each.name)) for each in plan.secrets)
    if plan.remote is None:
        return replace(plan, secrets=secrets)
    fields = tuple(replace(each, name=names.get(each.name, each.name)) for each in plan.remote.secrets)
    return replace(plan, secrets=secrets, remote=replace(plan.remote, secrets=fields))


def check_secrets(config: SidecarConfig, folder: Path, secrets: Iterable[PlannedSecret], *, asks: bool) -> None:
    """Refuse to grant what is kept under these names, where it may be something else than the server's own.

    With `asks`, somebody is asked about another value later on.

    Raises:
        NotImportableError: another plugin is granted one, fumehood.toml has it from elsewhere, or its file another
            value.
    """
    for secret in secrets:
        others = others_with(secret, config, folder)
        if others:
            what = f"the secret {secret.name}, as {secret.variable} would be kept, is granted to {others[0]}"
            todo = "Rename the server in its host's configuration, or take the secret from that plugin."
            raise NotImportableError("secret", what, todo)
        if _is_other_source(config, secret):
            what = f"[secrets.{secret.name}] is there already, and is something else"
            raise NotImportableError("secret", what, "Remove or rename it in fumehood.toml, and import again.")
        if not asks:
            _check_value(config, secret)


def check_granted_values(
    config: SidecarConfig, secrets: Iterable[PlannedSecret], *, asks: bool, is_same_server: bool
) -> None:
    """Refuse a changed server that comes with another value: unseen, it may be another server, that must not have it.

    So may one that comes without its value, as with an input, unless `is_same_server`.

    Raises:
        NotImportableError: a file holds another value, or one that may be another server's, and nobody is asked.
    """
    for secret in () if asks else secrets:
        path, is_other = secret_file(config, secret.name), _is_other_source(config, secret)
        if not is_other and _differs(config, secret):
            what = f"the server has changed, and {path} holds another value for {secret.variable}"
            todo = "Import it at a terminal, where you are asked; or write the new value there, and import it again."
            raise NotImportableError("secret", what, todo)
        is_unknown = not (secret.value or secret.environment) and (is_other or os.path.lexists(path))
        if is_unknown and not is_same_server:
            what = f"the server has changed, and whether the value kept for {secret.variable} is its own isn't known"
            todo = "Import it at a terminal, where you are shown the changes, or give the value with --input."
            raise NotImportableError("secret", what, todo)


def ask_values(secrets: Iterable[PlannedSecret], asker: Asker) -> list[PlannedSecret]:
    """The same, with what the asker says of values that the configuration asks for."""
    return [
        replace(each, value=asker.value(each)) if each.value is None and not each.environment else each
        for each in secrets
    ]


def keep_values(
    config: SidecarConfig, server: str, secrets: Iterable[PlannedSecret], asker: Asker, undo: contextlib.ExitStack
) -> list[str]:
    """Write the values that are known to their files, with `undo` to take that back. What is left to do.

    Raises:
        NotImportableError: a file holds another value, which is not to be replaced.
        OSError: a file can't be written.
    """
    todo: list[str] = []
    for secret in secrets:
        path = secret_file(config, secret.name)
        if secret.environment:
            continue
        make_secrets_folder(path.parent)
        if secret.value:
            undo.enter_context(secret_restored_on_failure(path))
            if not write_new(path, secret.value) and not _replaced(path, server, secret, asker):
                _check_value(config, secret)
        else:
            _check_value(config, secret)
            shown = shlex.quote(str(path))
            todo.append(f"write the value of {secret.variable}: type it, and end with Ctrl-D\n    cat > {shown}")
            todo.append(f"then let nobody else read it\n    chmod 600 {shown}")
    return todo


def renew_values(
    config: SidecarConfig, server: str, secrets: Iterable[PlannedSecret], asker: Asker, undo: contextlib.ExitStack
) -> list[str]:
    """Replace values of granted secrets that the configuration has others for, if the asker says so. What to say of it.

    Raises:
        OSError: a file can't be read or written.
    """
    notes: list[str] = []
    for secret in secrets:
        path = secret_file(config, secret.name)
        if _is_other_source(config, secret):
            notes.append(f"fumehood.toml has {secret.variable} from elsewhere than the configuration, which stays")
        elif _differs(config, secret):
            undo.enter_context(secret_restored_on_failure(path))
            if _replaced(path, server, secret, asker):
                notes.append(f"{path} holds the new value of {secret.variable} now")
            else:
                asked = "" if asker.asks else ": import at a terminal to be asked, or write the new one there"
                notes.append(f"{path} holds another value for {secret.variable}, which stays{asked}")
    return notes


def others_with(secret: PlannedSecret, config: SidecarConfig, folder: Path) -> list[Path]:
    """Folders of other plugins that are granted it."""
    return [each.path for each in config.plugins if each.path != folder and secret.name in each.all_secrets]


def _is_other_source(config: SidecarConfig, secret: PlannedSecret) -> bool:
    """Whether fumehood.toml has the name, and from another place than an import would write."""
    kept = config.secrets.get(secret.name)
    if kept is None:
        return False
    if secret.environment:
        return kept.variable != secret.environment
    return kept.file is None or kept.file.resolve() != secret_file(config, secret.name).resolve()


def _check_value(config: SidecarConfig, secret: PlannedSecret) -> None:
    path = secret_file(config, secret.name)
    if secret.environment or not os.path.lexists(path):
        return
    if not secret.value:
        what = f"{path} is there already, and the value of {secret.variable} isn't known here"
        todo = "Remove that file, if nothing uses it, or give the value with --input, and import again."
        raise NotImportableError("secret", what, todo)
    if not _holds(path, secret.value):
        what = f"{path} holds another value for {secret.variable}"
        raise NotImportableError("secret", what, "Remove that file, if nothing uses it, and import again.")


def _differs(config: SidecarConfig, secret: PlannedSecret) -> bool:
    path = secret_file(config, secret.name)
    return bool(secret.value) and os.path.lexists(path) and not _holds(path, secret.value or "")


def _holds(path: Path, value: str) -> bool:
    return path.is_file() and path.read_bytes().rstrip(b"\r\n") == value.encode().rstrip(b"\r\n")


def write_new(path: Path, value: str) -> bool:
    """Make a secret's file. False: there is one, or something else of its name.

    Raises:
        OSError: it can't be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(value.encode())
    return True


def _replaced(path: Path, server: str, secret: PlannedSecret, asker: Asker) -> bool:
    """Whether the file holds another value and is to be replaced, which is done then."""
    value = secret.value or ""
    if path.is_symlink() or not path.is_file() or _holds(path, value):
        return False
    if not asker.replaces(server, secret, path):
        return False
    replace_secret(path, value.encode())
    return True


def make_secrets_folder(folder: Path) -> None:
    """Make it, for its owner alone.

    Raises:
        OSError: it can't be made.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
