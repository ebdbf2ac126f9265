"""What the journal is told of the requests that plugins make of the sidecar, within bounds for each call."""

from __future__ import annotations

from fumehood_server.bounded_events import BoundedEvents
from fumehood_server.egress import EgressEvent, Outcome
from fumehood_server.model.events import About, EgressHop, EgressRequested, SecretRequested
from fumehood_server.model.journal import Journal
from fumehood_server.model.operation_events import EgressCounted
from fumehood_server.model.plugin_requests import RequestingCall
from fumehood_server.model.text import printable

MAX_OF_CALL = 10_000
"""Requests of one call that are recorded one by one. Its end says how many there were."""
MAX_REFUSED_OF_CALL = 64
"""The same of those that a rule refused: they cost nobody but this file anything."""
BURST_OF_PLUGIN = 100
PER_SECOND_OF_PLUGIN = 1.0
"""Requests of one plugin that are no call's: of several calls in one process, of none. More are counted."""
_MAX_NAME = 64


class RequestRecords:
    """Records secrets and requests through the broker. For one event loop."""

    def __init__(self, journal: Journal) -> None:
        """Record nothing yet."""
        self._journal = journal
        self._plugins: dict[str, BoundedEvents] = {}

    def secret(self, call: RequestingCall, name: str, refused: str = "") -> None:
        """A call asked for a secret, and got it unless it was refused."""
        if not self._journal.recording:
            return
        if _takes(call, refused=bool(refused)):
            self._journal.record(SecretRequested(name=printable(name)[:_MAX_NAME], refused=refused), _about(call))

    def start_secret(self, plugin: str, name: str, refused: str = "") -> None:
        """A process was started with a secret, or could not be for want of it."""
        if self._journal.recording:
            self._journal.record(
                SecretRequested(name=printable(name)[:_MAX_NAME], refused=refused), About(plugin=plugin)
            )

    def egress(self, event: EgressEvent, call: RequestingCall | None) -> None:
        """A request through the broker is over. None: nobody knows for which call."""
        if not self._journal.recording:
            return
        plugin = event.origin.plugin
        if call is not None:
            if _takes(call, refused=event.outcome is Outcome.REFUSED):
                self._journal.record(_egress(event), _about(call))
            return
        counted = self._plugins.get(plugin)
        if counted is None:
            counted = self._plugins[plugin] = BoundedEvents(
                self._journal,
                lambda count, since_us: EgressCounted(count=count, since_us=since_us),
                burst=BURST_OF_PLUGIN,
                per_second=PER_SECOND_OF_PLUGIN,
                about=About(plugin=plugin),
            )
        if counted.takes():
            self._journal.record(_egress(event), About(plugin=plugin))

    def close(self) -> None:
        """Record what is counted."""
        for each in self._plugins.values():
            each.close()


def _takes(call: RequestingCall, *, refused: bool) -> bool:
    usage = call.usage
    if usage.recorded >= MAX_OF_CALL or (refused and usage.refused_recorded >= MAX_REFUSED_OF_CALL):
        return False
    usage.recorded += 1
    usage.refused_recorded += refused
    return True


def _egress(event: EgressEvent) -> EgressRequested:
    return EgressRequested(
        method=event.method,
        url_sha256=event.url_digest,
        hops=tuple(EgressHop(hop.scheme, hop.host, hop.port, hop.address, hop.status) for hop in event.hops),
        outcome=event.outcome.value,
        reason="" if event.reason is None else event.reason.value,
        sent_bytes=event.bytes_sent,
        received_bytes=event.bytes_received,
        wall_us=round(event.duration_s * 1e6),
    )


def _about(call: RequestingCall) -> About:
    return call.about or About(plugin=call.spec.plugin)
