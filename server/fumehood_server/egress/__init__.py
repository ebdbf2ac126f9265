"""Egress broker: the sidecar performs HTTP requests for processes that have no network, by the operator's rules.

docs/egress.md tells the rules in the order in which they run. `open_broker` brings the HTTP library along, the first
https request the trust store. This package alone takes some 10 ms to import: do so where the first host is granted.
"""

from fumehood_server.egress.access import Access, EgressLimits, access_for
from fumehood_server.egress.errors import EgressError, EgressFailedError, EgressRefusedError, Reason
from fumehood_server.egress.events import EgressEvent, EventSink, Hop, Outcome, log_event
from fumehood_server.egress.hosts import HostEntry, HostEntryError, HostRules, parse_denied, parse_granted
from fumehood_server.egress.interface import EgressBroker, RelayServer, import_broker, open_broker, open_relay
from fumehood_server.egress.messages import (
    MAX_PIECE_BYTES,
    CurrentOrigin,
    EgressRequest,
    EgressResponse,
    Headers,
    RequestOrigin,
)
from fumehood_server.egress.own_listeners import OwnListeners
from fumehood_server.egress.private import parse_private
from fumehood_server.egress.url import parse_url

__all__ = [
    "MAX_PIECE_BYTES",
    "Access",
    "CurrentOrigin",
    "EgressBroker",
    "EgressError",
    "EgressEvent",
    "EgressFailedError",
    "EgressLimits",
    "EgressRefusedError",
    "EgressRequest",
    "EgressResponse",
    "EventSink",
    "Headers",
    "Hop",
    "HostEntry",
    "HostEntryError",
    "HostRules",
    "Outcome",
    "OwnListeners",
    "Reason",
    "RelayServer",
    "RequestOrigin",
    "access_for",
    "import_broker",
    "log_event",
    "open_broker",
    "open_relay",
    "parse_denied",
    "parse_granted",
    "parse_private",
    "parse_url",
]
