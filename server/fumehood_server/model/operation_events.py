"""What the journal records beside calls: refusals, workers, plugins, the configuration. See `model.events`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fumehood_server.model.events import Event, Fault


@dataclass(slots=True, kw_only=True)
class RequestRefused(Event):
    """A request about a call was refused before anything ran. It is no event of the call whose id it names."""

    TYPE: ClassVar[str] = "request_refused"
    method: str
    reason: str
    """See `RefusalReason`."""
    message: str
    call_id: str
    """As it was asked for, cut. It may be another call's."""
    caller: str


@dataclass(slots=True, kw_only=True)
class RequestsRefused(Event):
    """So many more were refused for one reason than are recorded one by one."""

    TYPE: ClassVar[str] = "requests_refused"
    reason: str
    count: int
    since_us: int
    """When the first of them came: POSIX time in microseconds."""


@dataclass(slots=True, kw_only=True)
class EgressCounted(Event):
    """So many more requests came from a plugin's processes outside of calls than are recorded one by one."""

    TYPE: ClassVar[str] = "egress_counted"
    count: int
    since_us: int


@dataclass(slots=True, kw_only=True)
class WorkerStarted(Event):
    """A process that serves many calls, or that forks one for each, is ready."""

    TYPE: ClassVar[str] = "worker_started"
    worker_id: str
    plugin: str
    """Digest of the plugin's files."""
    level: str
    backend: str
    isolation: str
    receipt: str


@dataclass(slots=True, kw_only=True)
class WorkerEnded(Event):
    """Such a process is gone."""

    TYPE: ClassVar[str] = "worker_ended"
    worker_id: str
    by_itself: bool
    """Whether it ended though nobody had asked for that, or for breaking a rule."""
    ended_by: str
    """The hardest means that was used: see `EscalationStep`."""
    exit: str
    """Its exit status or signal, in words."""
    cause: Fault | None
    calls_served: int
    """Calls that had a result from it."""
    lived_us: int


@dataclass(slots=True, kw_only=True)
class WorkerStartFailed(Event):
    """A process was to be started, and did not become ready."""

    TYPE: ClassVar[str] = "worker_start_failed"
    plugin: str
    """Digest of the plugin's files."""
    level: str
    cause: Fault


@dataclass(slots=True, kw_only=True)
class PluginPinned(Event):
    """A plugin is served with another pin than before: from now on calls of its tools are of these files."""

    TYPE: ClassVar[str] = "plugin_pinned"
    version: str
    digest: str
    previous: str
    """The digest before. Empty: this journal knows none."""
    definitions: Mapping[str, str]
    """Digest of each tool's definition. Those that changed are documents."""
    first_seen: bool
    """Whether this sidecar pinned it, at first sight. Else somebody did by `fumehood plugin add`."""


@dataclass(slots=True, kw_only=True)
class PluginChanged(Event):
    """A plugin's files or definitions are not those that were pinned: it is not served."""

    TYPE: ClassVar[str] = "plugin_changed"
    reason: str
    """"definition_changed" or "digest_changed"."""
    pinned: str
    found: str


@dataclass(slots=True, kw_only=True)
class PluginDisabled(Event):
    """An operator took a plugin out of service."""

    TYPE: ClassVar[str] = "plugin_disabled"
    by: str
    authenticated_by: str
    """See `Authentication`."""
    reason: str
    cancelled_calls: int
    """How many of its calls were cancelled with it."""


@dataclass(slots=True, kw_only=True)
class PluginEnabled(Event):
    """An operator put a plugin back into service."""

    TYPE: ClassVar[str] = "plugin_enabled"
    by: str
    authenticated_by: str


@dataclass(slots=True, kw_only=True)
class ConfigurationLoaded(Event):
    """The configuration that a start has read."""

    TYPE: ClassVar[str] = "configuration_loaded"
    configuration: str
    """Its SHA-256. It is a document."""
    listen: tuple[str, ...]
    plugins: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class ConfigurationReloaded(Event):
    """Another configuration is in force."""

    TYPE: ClassVar[str] = "configuration_reloaded"
    configuration: str
    previous: str
    keys: tuple[str, ...]
    """Dotted keys whose values changed."""
    added: tuple[str, ...]
    """Plugins, as the next two."""
    removed: tuple[str, ...]
    changed: tuple[str, ...]
