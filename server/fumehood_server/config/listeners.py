"""The sidecar's own TCP listeners, held against what plugins may ask the egress broker for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.config.listen import Listen
from fumehood_server.config.toml_source import Key
from fumehood_server.egress import HostEntry, OwnListeners, parse_granted, parse_private
from fumehood_server.egress.addresses import why_not_public
from fumehood_server.egress.hostname import canonical_host
from fumehood_server.egress.own_listeners import leads_to
from fumehood_server.egress.private import PrivateAddress, private_address


class ReachableListenerError(ValueError):
    """A plugin may connect to the sidecar itself. `key` is where its hosts stand, after that of its [[plugin]]."""

    def __init__(self, plugin: int, key: Key, problem: str, hint: str) -> None:
        """`plugin` is its place among the plugins."""
        super().__init__(problem)
        self.plugin = plugin
        self.key = key
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True, slots=True)
class _Named:
    """A listener, and where fumehood.toml names it."""

    where: str
    listen: Listen


def own_listeners(config: SidecarConfig) -> OwnListeners:
    """Those that the configuration names. What listens on port 0 is added where it is bound."""
    return OwnListeners((each.listen.host, each.listen.port) for each in _named(config))


def check_unreachable(config: SidecarConfig) -> None:
    """Refuse hosts at which a plugin, a tool of it or its build would reach the sidecar itself.

    Names are looked up later: of those only what `allow_private` says is known here, and the rest is the broker's.

    Raises:
        ReachableListenerError: there are such.
    """
    for index, plugin in enumerate(config.plugins):
        private = {parse_private(text) for text in (*config.egress.private, *plugin.grants.private)}
        for key, text in _granted(plugin):
            entry = parse_granted(text)
            for listener in _named(config):
                found = _reached_by(entry, listener.listen, private)
                if found is not None:
                    by = f', and "{found}" in `allow_private`' if found else ""
                    problem = (
                        f"a plugin may reach port {entry.port} of {listener.listen.host}, which is {listener.where}: "
                        f'"{text}" in `{key[-1]}`{by}'
                    )
                    hint = "it could speak to its own sidecar: take one out, or have the sidecar listen elsewhere"
                    raise ReachableListenerError(index, key, problem, hint)


def _named(config: SidecarConfig) -> Iterator[_Named]:
    for each in config.server.listen:
        if each.path is None:
            yield _Named("`listen` in [server]", each)
    if config.mcp is not None:
        yield _Named("`listen` in [mcp]", config.mcp.listen)
    webhook, prometheus = config.approvals.webhook, config.telemetry.prometheus
    if webhook is not None and webhook.replies is not None and webhook.replies.listen.path is None:
        yield _Named("`listen` in [approvals.webhook]", webhook.replies.listen)
    if prometheus is not None:
        yield _Named("`prometheus` in [telemetry]", Listen(host=prometheus[0], port=prometheus[1]))


def _granted(plugin: PluginConfig) -> Iterator[tuple[Key, str]]:
    yield from ((("hosts",), text) for text in plugin.grants.hosts)
    yield from ((("build_hosts",), text) for text in plugin.build_hosts)
    for name, tool in plugin.tools.items():
        yield from ((("tools", name, "hosts"), text) for text in tool.hosts or ())


def _reached_by(entry: HostEntry, listen: Listen, private: set[PrivateAddress]) -> str | None:
    """The entry of `allow_private` by which a granted host leads to a listener; empty where it takes none."""
    if entry.port != listen.port:
        return None
    address = entry.host.address
    if address is not None:
        needed = private_address(entry.host, address)
        open_to_it = needed in private or not why_not_public(address)
        return (str(needed) if needed in private else "") if open_to_it and leads_to(address, listen.host) else None
    names = (each for each in private if each.name and entry.covers(canonical_host(each.name), listen.port))
    return next((str(each) for each in names if leads_to(each.address, listen.host)), None)


__all__ = ["ReachableListenerError", "check_unreachable", "own_listeners"]
