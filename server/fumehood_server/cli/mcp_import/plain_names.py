"""Check of `--plain`: each name is that of a variable or header field of the configuration, or "url"."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping

from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.mcp_import.environment_file import read_environment_file
from fumehood_server.cli.mcp_import.host_configuration import HostConfiguration, ServerEntry
from fumehood_server.cli.mcp_import.launchers import NotImportableError, program_name
from fumehood_server.cli.mcp_import.plan import environment_file_of
from fumehood_server.cli.mcp_import.variables import Scope
from fumehood_server.model.nearest import nearest

URL = "url"
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
"""By `env`, as a word of the command line."""


def check_plain(found: HostConfiguration, plain: Collection[str], given: Mapping[str, str]) -> None:
    """Check that each of them is something's name.

    Raises:
        CommandError: one is nothing's. Where an envFile can't be read, it may name anything.
    """
    if not plain:
        return
    scope = Scope(host=found.host, environment=os.environ, inputs=found.inputs, given=given, workspace=found.workspace)
    names = {URL}
    try:
        for entry in found.servers:
            names |= {*entry.environment, *entry.headers, *_assigned(entry), *_of_file(entry, scope)}
    except NotImportableError:  # which its server's import says
        return
    for name in plain:
        if name not in names:
            what = f"--plain {name}: {found.path} has no variable and no header field {name}"
            raise CommandError(what, nearest(name, sorted(names)), code="NOT_FOUND")


def _assigned(entry: ServerEntry) -> Iterator[str]:
    for text in entry.arguments if program_name(entry.command) == "env" else ():
        matched = _ASSIGNED.match(text)
        if matched:
            yield matched[1]


def _of_file(entry: ServerEntry, scope: Scope) -> Collection[str]:
    file = environment_file_of(entry, scope)
    if entry.environment_file and file is None:
        raise NotImportableError("environment_file", "its envFile isn't known", "")
    return read_environment_file(file) if file is not None else ()
