"""Check of an imported server's grants against what no plugin may read or write, before anything is installed."""

from __future__ import annotations

from pathlib import Path

from fumehood_server.cli.mcp_import.granting import AskedGrants
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.places import NamedPath
from fumehood_server.config import SidecarConfig
from fumehood_server.config.grants import GrantError, Protected, check_links, protected_code, resolve_grants


def check_overlaps(grants: AskedGrants, config: SidecarConfig, folder: Path) -> None:
    """Refuse grants that fumehood.toml would not be valid with. `folder` is the plugin's.

    Raises:
        NotImportableError: one overlaps something protected, is named by a symlink that a plugin may write, or can't be
            granted for another reason.
    """
    _check_links(grants, config)
    # An empty folder stands for a granted one while the server is asked for its tools: its code can't lie within.
    own = Protected(folder, "the plugin's own folder", unreadable=True)
    code = protected_code([each.name for each in config.middleware]) if grants.write else ()
    granted = [list(map(str, paths)) for paths in (grants.read, grants.write)]
    try:
        resolve_grants(*granted, folder=config.folder, protected=(own, *config.protected, *code))
    except GrantError as error:
        todo = "Grant a narrower folder, or keep what it overlaps outside of it"
        if config.folder.is_relative_to(granted[error.key == "write"][error.index]):
            todo = "Name a FILE outside of that folder with --config, or leave --config and --into out"
        raise NotImportableError(
            "overlap", error.problem, f"{todo}. {error.hint[0].upper()}{error.hint[1:]}."
        ) from error


def _check_links(grants: AskedGrants, config: SidecarConfig) -> None:
    """Refuse a path that a plugin may have led elsewhere: what it leads to is all that fumehood.toml would hold."""
    writable = [path for plugin in config.plugins for path in plugin.grants.write] + [
        str(each) for each in grants.write
    ]
    for named in grants.named:
        try:
            check_links("read", [str(named.written)], folder=config.folder, writable=writable)
        except GrantError as error:
            todo = f"{error.hint[0].upper()}{error.hint[1:]}."
            raise NotImportableError("overlap", error.problem, todo) from error
        if not _leads_there(named):  # a link that was there when it was looked at may be none any more
            raise NotImportableError("overlap", f'"{named.written}" leads elsewhere by now', "Import it again.")


def _leads_there(named: NamedPath) -> bool:
    try:
        return named.written.resolve() == named.path
    except RuntimeError:  # its symlinks form a loop
        return False
