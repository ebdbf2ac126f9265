"""Import of a server over HTTP, whose grants are written before it can be asked for its tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fumehood_sandbox import Level

from fumehood_server.cli.config_edit import append_entry
from fumehood_server.cli.folder_check import propose_folder_pin
from fumehood_server.cli.mcp_import.configuration_place import configuration_at, make_configuration
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.granting import AskedGrants, make_entry, prefix_of
from fumehood_server.cli.mcp_import.import_settings import MAX_PROBLEM, Import
from fumehood_server.cli.mcp_import.kept_secrets import ask_values, keep_values
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.places import NamedHost
from fumehood_server.cli.mcp_import.plan import PlannedSecret
from fumehood_server.cli.mcp_import.server_import import ServerImport
from fumehood_server.cli.mcp_import.undo import file_restored_on_failure, write_back
from fumehood_server.plugins import PinProposal


def import_remote(server: ServerImport, grants: AskedGrants, resolved: ResolvedServer) -> PinProposal:
    """Grant, ask for its tools, and pin them. Where it fails, fumehood.toml and the secrets are as they were.

    Raises:
        NotImportableError: it may not be asked, doesn't answer, or its tools can't be taken.
    """
    run, path, folder = server.run, server.path, server.folder
    host = _granted_host(server.plan.hosts[0], grants)
    config = configuration_at(path)
    with contextlib.ExitStack() as undo:
        keep_values(config, server.plan.name, _known(grants.secrets, run), run.asker, undo)
        undo.enter_context(file_restored_on_failure(path))
        make_configuration(path)
        old = path.read_text()
        append_entry(path, make_entry(grants, Level.EXTERNAL, folder, "", resolved, config))
        run.say(f"asking {host} for its tools")
        proposal = _proposal(folder, run, _Asked(host, shows_token=bool(grants.secrets)))
        prefix = prefix_of(proposal.report, config)
        if prefix:
            write_back(path, old)
            append_entry(path, make_entry(grants, Level.EXTERNAL, folder, prefix, resolved, config))
        server.tell_prefix(prefix)
        asyncio.run(proposal.accept())
    return proposal


def _granted_host(named: NamedHost, grants: AskedGrants) -> str:
    if named.host in grants.hosts:
        return named.host
    what, todo = f"it is the server at {named.host}, which was not granted", "Import it again, and grant it."
    if named.private:
        what += f": its name leads to {', '.join(named.private)}, which is not public"
        todo = "Import it at a terminal, where you are asked, or write the address in place of the name."
    raise NotImportableError("host_not_granted", what, todo)


def _known(secrets: Iterable[PlannedSecret], run: Import) -> list[PlannedSecret]:
    """With their values, which are asked for."""
    known = ask_values(secrets, run.asker)
    for secret in known:
        if not secret.value and not secret.environment:
            what = f"the value of {secret.variable} isn't known, and the server isn't asked for its tools without"
            raise NotImportableError("secret", what, _how_to_tell(secret.variable))
    return known


@dataclass(frozen=True, slots=True)
class _Asked:
    """The server that is asked for its tools."""

    host: str
    shows_token: bool

    def remedy(self, what: str) -> str:
        if "status 401" in what or "status 403" in what:
            if self.shows_token:
                return (
                    "It doesn't take the secret that it is shown: look whether that is still good, and for this server."
                )
            return "It wants to know who asks: name a token in its `headers`. OAuth is not done here (docs/mcp.md)."
        if "CERTIFICATE" in what.upper():
            return "Its certificate is by nobody whom this machine trusts: docs/mcp.md tells of `authorities`."
        return f"Look whether an MCP server answers at {self.host} by Streamable HTTP, and import again."


def _proposal(folder: Path, run: Import, asked: _Asked) -> PinProposal:
    config = configuration_at(run.config_path)
    lines: list[str] = []
    proposal = propose_folder_pin(folder, config, lambda line: lines.append(line.message))
    if proposal.report.loaded is None:
        said = [each.problem for each in proposal.report.faults] or [each.message for each in proposal.report.problems]
        what = "\n".join((*said[:4], *lines[-6:]))[-MAX_PROBLEM:]
        raise NotImportableError("not_reached", what, asked.remedy(what))
    return proposal


def _how_to_tell(field: str) -> str:
    return f"Set the variable or give the --input that {field} names, or import at a terminal and type it."
