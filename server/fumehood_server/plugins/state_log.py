"""Log lines about what became of each plugin as it was read."""

from __future__ import annotations

from typing import Protocol

from fumehood_server.model.plugin import PluginState
from fumehood_server.plugins.registration import Registration


class Log(Protocol):
    """Interface of a structlog logger, as far as the catalog uses it."""

    def info(self, event: str, /, **fields: object) -> object:
        """Log one line."""

    def warning(self, event: str, /, **fields: object) -> object:
        """Log one line."""


def log_state(log: Log, registration: Registration, *, pinned: bool = False) -> None:
    """Say what a plugin is now, and what of it can't run. `pinned`: it was seen for the first time."""
    plugin = registration.plugin
    write = log.info if plugin.state is PluginState.SERVING else log.warning
    write(
        "plugin_loaded" if registration.loaded else "plugin_refused",
        plugin=plugin.name,
        plugin_digest=plugin.digest,
        path=str(plugin.path),
        state=plugin.state.value,
        tools=len(plugin.tools),
        newly_pinned=pinned,
        reasons=[f"{reason.code}: {reason.message}" for reason in plugin.reasons],
    )
