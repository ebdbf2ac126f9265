"""Import of a server over HTTP, whose grants are written before it can be asked for its tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fumehood_sandbox import Level

from fumehood_server.cli.folder_check import propose_folder_pin
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.granted_first import import_granted_first
from fumehood_server.cli.mcp_import.granting import AskedGrants
from fumehood_server.cli.mcp_import.import_settings import MAX_PROBLEM
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.places import NamedHost
from fumehood_server.cli.mcp_import.server_import import ServerImport
from fumehood_server.config import SidecarConfig
from fumehood_server.plugins import PinProposal


def import_remote(server: ServerImport, grants: AskedGrants, resolved: ResolvedServer) -> PinProposal:
    """Grant, ask for its tools, and pin them. Where it fails, fumehood.toml and the secrets are as they were.

    Raises:
        NotImportableError: it may not be asked, doesn't answer, or its tools can't be taken.
    """
    host = _granted_host(server.plan.hosts[0], grants)
    path = urlsplit(server.plan.remote.server.url).path if server.plan.remote else ""
    asked = _Asked(host, shows_token=bool(grants.secrets), is_old=path.rstrip("/").endswith("/sse"))

    def ask(config: SidecarConfig) -> tuple[PinProposal, Level]:
        server.run.say(f"asking {host} for its tools")
        return _proposal(server.folder, config, asked), Level.EXTERNAL

    return import_granted_first(server, grants, resolved, Level.EXTERNAL, ask)


def _granted_host(named: NamedHost, grants: AskedGrants) -> str:
    if named.host in grants.hosts:
        return named.host
    what, todo = f"it is the server at {named.host}, which was not granted", "Import it again, and grant it."
    if named.private:
        what += f": its name leads to {', '.join(named.private)}, which is not public"
        todo = "Import it at a terminal, where you are asked, or write the address in place of the name."
    raise NotImportableError("host_not_granted", what, todo)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The server that is asked for its tools."""

    host: str
    shows_token: bool
    is_old: bool
    """Whether its URL ends as those of the HTTP+SSE transport do."""

    def remedy(self, what: str) -> str:
        if "status 405" in what and self.is_old:
            return (
                "By its name it speaks the older HTTP+SSE transport, which isn't hosted: name its Streamable HTTP "
                "endpoint, which often ends in /mcp."
            )
        if "status 401" in what or "status 403" in what:
            if self.shows_token:
                return (
                    "It doesn't take the secret that it is shown: look whether that is still good, and for this server."
                )
            return "It wants to know who asks: name a token in its `headers`. OAuth is not done here (docs/mcp.md)."
        if "CERTIFICATE" in what.upper():
            return "Its certificate is by nobody whom this machine trusts: docs/mcp.md tells of `authorities`."
        return f"Look whether an MCP server answers at {self.host} by Streamable HTTP, and import again."


def _proposal(folder: Path, config: SidecarConfig, asked: _Asked) -> PinProposal:
    lines: list[str] = []
    proposal = propose_folder_pin(folder, config, lambda line: lines.append(line.message))
    if proposal.report.loaded is None:
        said = [each.problem for each in proposal.report.faults] or [each.message for each in proposal.report.problems]
        what = "\n".join((*said[:4], *lines[-6:]))[-MAX_PROBLEM:]
        raise NotImportableError("not_reached", what, asked.remedy(what))
    return proposal
