"""First start of an imported server: its packages are installed, and it is asked for its tools in a sandbox."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fumehood_server.cli.folder_check import propose_folder_pin
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.import_settings import MAX_PROBLEM, Import
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.plugin_builds import build_for, manifest_in
from fumehood_server.config import SidecarConfig
from fumehood_server.plugins import PinProposal

FIRST_START_TIMEOUT_S = 60.0
"""At least: what was installed just now is read from a cold disk, and by npm's packages in thousands of files."""


def build_and_start(folder: Path, config: SidecarConfig, resolved: ResolvedServer, run: Import) -> PinProposal:
    """Install it, and start it in its sandbox to be told its tools.

    Raises:
        NotImportableError: it doesn't start, or its tools can't be taken.
    """
    build_for(manifest_in(folder), config, hosts=resolved.build_hosts, private=resolved.build_private, quiet=run.quiet)
    run.say("starting it in a sandbox, to be told its tools")
    lines: list[str] = []
    server = replace(config.server, start_timeout_s=max(config.server.start_timeout_s, FIRST_START_TIMEOUT_S))
    proposal = propose_folder_pin(folder, replace(config, server=server), lambda line: lines.append(line.message))
    if proposal.report.loaded is None:
        said = [each.problem for each in proposal.report.faults] or [each.message for each in proposal.report.problems]
        more = [each for each in lines[-6:] if not any(each in one for one in said)]
        what = "\n".join((*said[:4], *more))[-MAX_PROBLEM:]
        raise NotImportableError("not_started", what, "Mend what it says, and import it again.")
    return proposal
