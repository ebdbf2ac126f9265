"""What an MCP server is asked for its tools with.

Over HTTP that is its own host and secrets, where the operator grants them. On stdio it is nothing, or all that the
operator grants, by `list_with_grants`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fumehood_sandbox import Level

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.egress import EgressRefusedError, HostRules, parse_denied, parse_granted
from fumehood_server.egress.hostname import canonical_host
from fumehood_server.model.plugin import Grants, Kind
from fumehood_server.model.tool import Reason
from fumehood_server.plugins.manifest import Manifest
from fumehood_server.plugins.remote_server import RemoteServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What the operator grants a plugin, as far as its description takes it."""

    grants: Grants
    secrets: tuple[str, ...] = ()
    """Names of the secrets that it may be asked with."""
    list_with_grants: bool = False
    """Whether a server on stdio is asked with all of this."""
    writable: tuple[str, ...] = ()
    """Paths that any plugin of the configuration may write to."""

    def refusal(self, plugin: str, remote: RemoteServer) -> Reason | None:
        """Why the server can't be asked."""
        if not self.grants.max_side_effects.allows(Level.EXTERNAL):
            message = f'{plugin} is a server over HTTP, which takes the level "external"'
            remedy = 'max_side_effects = "external" in its [[plugin]]; `plugin add` takes --max-side-effects external'
            return Reason("level_not_granted", message, remedy)
        rules = HostRules(
            frozenset(map(parse_granted, self.grants.hosts)), frozenset(map(parse_denied, self.grants.deny_hosts))
        )
        name, _, port = remote.host.rpartition(":")
        try:
            rules.check_host(canonical_host(name), int(port))
        except EgressRefusedError:
            message = f"{plugin} is the server at {remote.host}, a host which is not granted, or is denied"
            remedy = f'hosts = ["{remote.host}"] in its [[plugin]]; `plugin add` takes --host {remote.host}'
            return Reason("host_not_granted", message, remedy)
        return None


NOTHING_GRANTED = Granted(grants=Grants(max_side_effects=Level.NONE))


def granted_by(config: SidecarConfig, plugin: PluginConfig) -> Granted:
    """What a configuration grants one of its plugins.

    A server on stdio is asked with what all of its tools have: a secret of one tool alone is not to be in a process
    that reaches more than that tool does.
    """
    private = tuple(sorted({*plugin.grants.private, *config.egress.private}))
    secrets = plugin.secrets if plugin.list_with_grants else plugin.all_secrets
    return Granted(
        grants=replace(plugin.grants, private=private),
        secrets=tuple(sorted(secrets)),
        list_with_grants=plugin.list_with_grants,
        writable=tuple(path for each in config.plugins for path in each.grants.write),
    )


def misplaced_listing(manifest: Manifest) -> str:
    """Why `list_with_grants` is not for this plugin. Empty: it is."""
    if manifest.remote is not None:
        return "`list_with_grants` in [[plugin]] is not for a server with `url`, which is asked so in any case"
    if manifest.kind is not Kind.MCP:
        return '`list_with_grants` in [[plugin]] is for plugins of kind "mcp" alone'
    return ""


__all__ = ["NOTHING_GRANTED", "Granted", "granted_by", "misplaced_listing"]
