"""Checks what a tool requires (level, capabilities) against what its operator grants."""

from __future__ import annotations

from collections.abc import Sequence

from fumehood_sandbox import Level

from fumehood_server.egress import EgressRefusedError, HostRules, parse_denied, parse_granted
from fumehood_server.egress.hostname import canonical_host
from fumehood_server.model.capability import Capability, CapabilityKind, parse_capability
from fumehood_server.model.plugin import Grants, ToolGrant
from fumehood_server.model.tool import Reason, ToolDefinition
from fumehood_server.plugins.specs import Reach


def standing_reasons(
    definition: ToolDefinition, grants: Grants, tool_grant: ToolGrant, *, hosts_a_server: bool = False
) -> tuple[Reason, ...]:
    """Why a tool can't run whatever changes on this machine: its level or a requirement exceeds its grants.

    `hosts_a_server`: its plugin is of kind `mcp`, all of whose tools require the secrets of the one server.
    """
    if definition.never_called:
        message = f"{definition.name} can't be called: {definition.never_called}"
        remedy = "the server's author has to mend it; its other tools are served"
        if definition.takes_task:
            return (Reason("task_required", message, remedy),)
        return (Reason("schema_invalid", message, remedy),)
    reasons: list[Reason] = []
    level = definition.side_effects
    if not grants.max_side_effects.allows(level):
        message = (
            f'{definition.name} declares the level "{level}", and its plugin is granted "{grants.max_side_effects}"'
        )
        reasons.append(Reason("level_not_granted", message, f'max_side_effects = "{level}" in its [[plugin]]'))
    for text in definition.requires:
        place = "[[plugin]]" if hosts_a_server else f"[plugin.tools.{definition.name}]"
        reasons += _capability_reasons(definition, parse_capability(text), grants, tool_grant, place)
    if tool_grant.cache_s:
        reasons += _cache_reasons(definition)
    return tuple(reasons)


def _cache_reasons(definition: ToolDefinition) -> list[Reason]:
    """Why its results may not be kept for other calls, though the operator wants it. Anything less would be silent."""
    why = ""
    if definition.side_effects.allows(Level.WRITE) or not definition.idempotent:
        why = "only tools of level none or read that declare `idempotent` have results that hold for an equal call"
    elif any(parse_capability(text).kind is CapabilityKind.SECRET for text in definition.requires):
        why = "what a tool makes of a secret is not kept"
    if not why:
        return []
    message = f"results of {definition.name} can't be kept: {why}"
    return [Reason("cache_refused", message, f"remove `cache_s` from its [plugin.tools.{definition.name}]")]


def _capability_reasons(
    definition: ToolDefinition, needed: Capability, grants: Grants, tool_grant: ToolGrant, secrets_place: str
) -> list[Reason]:
    readable = (*grants.read, *(grants.write if definition.side_effects.allows(Level.WRITE) else ()))
    if needed.kind is CapabilityKind.READ and not readable:
        message = f"{definition.name} requires a path to read, and none is granted"
        return [Reason("grant_missing", message, "read = [...] in its [[plugin]]")]
    if needed.kind is CapabilityKind.WRITE and not grants.write:
        message = f"{definition.name} requires a folder to write, and none is granted"
        return [Reason("grant_missing", message, "write = [...] in its [[plugin]]")]
    if needed.kind is CapabilityKind.SECRET and needed.name not in tool_grant.secrets:
        return [_secret_not_granted(definition, needed.name, secrets_place)]
    hosts = _granted_hosts(grants, tool_grant)
    if needed.kind is CapabilityKind.HOST and not _may_reach(needed, hosts, grants.deny_hosts):
        host = f"{needed.name}:{needed.port}"
        message = f"{definition.name} requires the host {host}, which is not granted, or is denied"
        return [Reason("host_not_granted", message, f'hosts = ["{host}"] in its [[plugin]]')]
    if needed.kind is CapabilityKind.PROXY and not hosts:
        message = f"{definition.name} requires the proxy, and no host is granted"
        return [Reason("host_not_granted", message, "hosts = [...] in its [[plugin]]")]
    return []


def reach_of(
    definition: ToolDefinition, grants: Grants, tool_grant: ToolGrant, *, private: Sequence[str] = ()
) -> Reach:
    """The secrets, hosts and relay of a tool whose grants cover what it requires.

    `private` is what every plugin may reach that is granted it as an address.
    """
    needed = [parse_capability(text) for text in definition.requires]
    return Reach(
        secrets=tuple(sorted(each.name for each in needed if each.kind is CapabilityKind.SECRET)),
        hosts=_granted_hosts(grants, tool_grant),
        private=tuple(sorted({*grants.private, *private})),
        relay=any(each.kind is CapabilityKind.PROXY for each in needed),
    )


def _granted_hosts(grants: Grants, tool_grant: ToolGrant) -> tuple[str, ...]:
    """The hosts that a tool may reach: its own list where the operator gives one, else its plugin's."""
    return grants.hosts if tool_grant.hosts is None else tool_grant.hosts


def _secret_not_granted(definition: ToolDefinition, name: str, place: str) -> Reason:
    message = f"{definition.name} requires the secret {name}, which it is not granted"
    return Reason("secret_not_granted", message, f'secrets = ["{name}"] in its {place}')


def _may_reach(needed: Capability, hosts: Sequence[str], deny_hosts: Sequence[str]) -> bool:
    """Whether a `host:NAME:PORT` that a tool requires is granted."""
    rules = HostRules(frozenset(map(parse_granted, hosts)), frozenset(map(parse_denied, deny_hosts)))
    try:
        rules.check_host(canonical_host(needed.name), needed.port)
    except EgressRefusedError:
        return False
    return True
